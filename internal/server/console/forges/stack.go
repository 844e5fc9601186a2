package forges

import (
	"strconv"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/stack"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs/integrations"
)

// stackModel is the page about the repository of a stack.
type stackModel struct {
	Stack store.Stack
	// Watches is not set if the stack watches no repository.
	Watches bool
	Watched integrations.Watched
	Pulls   []dispatch.Pull
	Entries []dispatch.Entry
	// Admin shows links to the integration, and Operate the buttons.
	Admin, Operate bool
	// Integrations reports whether the organization has any.
	Integrations bool
	Tabs         []view.Tab
}

func (m stackModel) watch() store.VCSWatch { return m.Watched.Watches[0] }

// triggers returns what deploys the stack, in words.
func (m stackModel) triggers() []string {
	w := m.watch()
	var out []string
	branch := "the branch " + w.Branch
	if w.Branch == "" {
		branch = "no branch, because the settings name none"
	}
	for _, t := range []struct {
		on   bool
		text string
	}{
		{w.DeployCommits, "Commits on " + branch + " are deployed."},
		{w.PreviewPulls, "Pull requests against " + branch + " are previewed."},
		{w.DeployTags, "Tags are deployed."},
		{w.Template, "Each pull request against " + branch + " gets a review stack."},
		{w.DeployPull > 0, "Pull request #" + strconv.FormatInt(w.DeployPull, 10) + " is deployed."},
	} {
		if t.on {
			out = append(out, t.text)
		}
	}
	return out
}

// held returns the pull requests whose newest commit waits for an approval, and the others.
func (m stackModel) held() (waiting, others []dispatch.Pull) {
	for _, p := range m.Pulls {
		if p.Approvable {
			waiting = append(waiting, p)
		} else {
			others = append(others, p)
		}
	}
	return waiting, others
}

// pullsShown bounds the pull requests on the page that wait for nothing.
const pullsShown = 50

func (p *pages) git(v *page.Visit) (view.Page, error) { return p.gitPage(v, "") }

func (p *pages) gitPage(v *page.Visit, problem string) (view.Page, error) {
	ctx := v.Context()
	m := stackModel{Stack: v.Stack, Admin: v.Who.CanAdminOrg(v.Stack.OrgID), Operate: v.Who.Can(v.Stack, identity.Operate)}
	out, err := p.Heads.Page(v, stack.Settings)
	if err != nil {
		return out, err
	}
	out.Title = "Git of " + v.Stack.Project + "/" + v.Stack.Name
	m.Tabs = stack.SettingsTabs(v, "git")
	if m.Watched, m.Watches, err = p.Integrations.WatchedBy(ctx, v.Stack); err != nil {
		return out, err
	}
	if m.Watches {
		id := m.Watched.Integration.ID
		out.Live = append(out.Live, view.Topic{Channel: dispatch.Topic, About: id}, view.Topic{Channel: dispatch.Processed, About: id}, view.Topic{Channel: integrations.Topic, About: id})
	} else {
		list, err := p.Integrations.List(ctx, store.Organization{ID: v.Stack.OrgID})
		if err != nil {
			return out, err
		}
		m.Integrations = len(list) > 0
	}
	if m.Pulls, err = p.Events.Pulls(ctx, v.Stack); err != nil {
		return out, err
	}
	if m.Entries, err = p.Events.OfStack(ctx, v.Stack); err != nil {
		return out, err
	}
	out.Body = stackGit(m, problem)
	return out, nil
}

// approve approves the commit that the visitor has seen.
func (p *pages) approve(v *page.Visit) (page.Answer, error) {
	number, err := strconv.ParseInt(v.Form("number"), 10, 64)
	if err != nil || number <= 0 {
		err = fault.Invalid("Choose a pull request.")
	} else {
		_, err = p.Events.Approve(v.Context(), v.Who, v.Stack, number, v.Form("commit"))
	}
	return page.Changed(v, err, page.StackPath(v.Stack, "git"), p.gitPage)
}
