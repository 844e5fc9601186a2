package stacksettings

import (
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/server/console/view"
	"workflowagent/internal/workflow"
)

// inherits adds the value that applies while a field is empty, and where it comes from.
func inherits(i view.Input, value, origin string) view.Input {
	i.Placeholder = value
	if i.Value == "" {
		i.Origin = origin
	}
	return i
}

func hinted(i view.Input, hint string) view.Input {
	i.Hint = hint
	return i
}

// version says which version of the settings is stored, and who stored it.
func (m deployModel) version() string {
	text := "Version " + strconv.FormatInt(m.D.Version, 10)
	if m.Source != "" {
		text += ", stored by " + m.Source
	}
	return text
}

func (m deployModel) repository(git workflow.SourceContextGit) view.Input {
	i := m.D.input("sourceContext.git.repoUrl", "repository", git.RepoURL)
	i.Mono = false
	if watched := watchedName(m.Set); watched != "" {
		return hinted(inherits(i, watched, fromTriggers), "Empty uses the repository that triggers deployments.")
	}
	return hinted(i, "An address for git clone. Empty if the image contains the program.")
}

// branch is the field of the branch, without the prefix of refs.
func (m deployModel) branch(git workflow.SourceContextGit) view.Input {
	i := m.D.input("sourceContext.git.branch", "branch", strings.TrimPrefix(git.Branch, headRefs))
	i.Was = strings.TrimPrefix(i.Was, headRefs)
	return inherits(i, "the default branch", fromRepo)
}

func (m deployModel) commit(git workflow.SourceContextGit) view.Input {
	return hinted(m.D.input("sourceContext.git.commit", "commit", git.Commit), "Fixes the program to one commit, and replaces the branch.")
}

// credentials is how the repository is read.
func (m deployModel) credentials() view.Select {
	s := view.Select{Label: "Credentials", Name: "auth", Value: "keep", Options: m.authOptions(), Changed: m.D.changed(authMember)}
	if m.AuthForm != "" {
		s.Value = m.AuthForm
	}
	return s
}

func (m deployModel) authOptions() []view.Option {
	keep := view.Option{Value: "keep", Text: "none"}
	if m.Auth != "" {
		keep.Text = "keep the stored " + m.Auth
		if m.D.Pending.Auth != nil {
			keep.Text = "the new " + m.Auth
		}
	}
	out := []view.Option{keep}
	if m.Auth != "" || authKind(m.D.base()) != "" {
		out = append(out, view.Option{Value: "none", Text: "remove"})
	}
	return append(out, view.Option{Value: "token", Text: "new access token"}, view.Option{Value: "ssh", Text: "new SSH key"},
		view.Option{Value: "basic", Text: "new user name and password"})
}

func (m deployModel) secret() view.Input {
	return view.Input{
		Label: "Token, key or password", Name: "git-secret", Rows: 2, Problem: m.D.Problems[authMember],
		Hint: "Choose the kind above. It is stored encrypted and cannot be shown again.",
	}
}

func (m deployModel) pool() view.Select {
	s := view.Select{Label: "Pool", Name: "pool", Value: m.Set.AgentPoolID, Options: m.Pools, Problem: m.D.Problems["agentPoolID"]}
	s.Changed, s.Was = m.D.mark("agentPoolID")
	if s.Value == "" {
		s.Origin = fromOrg
	}
	// Select an option also if the pool is gone.
	if !slices.ContainsFunc(s.Options, func(o view.Option) bool { return o.Value == s.Value }) {
		s.Options = append(slices.Clone(s.Options), view.Option{Value: s.Value, Text: s.Value + ", which does not exist"})
	}
	return s
}

func (m deployModel) image() view.Input {
	return hinted(inherits(m.D.input(imageMember, "image", m.Set.Image()), "the agent's default image", fromAgent), "Only for agents that run containers.")
}

func (m deployModel) group() view.Input {
	i := m.D.input("concurrencyGroup", "group", m.Set.ConcurrencyGroup)
	i.Mono = false
	return hinted(i, "A name. Of the stacks of the organization with the same name, only one runs a deployment at a time.")
}

// changed reports whether a member, or one below it, has changed.
func (d *draft) changed(member string) bool {
	return slices.ContainsFunc(d.Changes, func(c fieldChange) bool { return c.Member == member || strings.HasPrefix(c.Member, member+".") })
}

// cloud reports whether the fields of a cloud are open.
func (d *draft) cloud(name string) bool {
	member := "operationContext.oidc." + name
	for wrong := range d.Problems {
		if strings.HasPrefix(wrong, member+".") {
			return true
		}
	}
	return d.changed(member)
}

// afterChanged reports whether the commands of a kind have changed.
func (m deployModel) afterChanged(when string) bool {
	return !slices.Equal(postRunLines(m.D.base(), when), postRunLines(m.Set, when))
}
