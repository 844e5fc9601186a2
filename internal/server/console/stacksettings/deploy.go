package stacksettings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// origin is the effective value of a setting, and where it comes from.
type origin struct{ Name, Value, From string }

// deployModel is the page of the deployment settings. Auth is the kind of the credentials.
type deployModel struct {
	St       store.Stack
	D        draft
	Set      *workflow.Settings // those that the draft leads to
	Warnings []string           // about what the last change contained without effect
	Source   string
	Pools    []view.Option
	Auth     string
	// AuthForm and UserForm are the mode and the user of credentials in a form without their secret.
	AuthForm, UserForm string
	Effective          []origin
	Operate            bool
	// Authors are who has set the secrets among the variables, as far as that is known.
	Authors map[string]deployments.Author
	// Environments are those of the settings, and Suggested are names of others.
	Environments []usedEnvironment
	Suggested    []string
	// Saved reports that the visitor has stored the settings just now.
	Saved  bool
	Issuer string
}

func (p *pages) stored(v *page.Visit) (*deployments.StoredSettings, error) {
	set, err := p.Deployments.Settings(v.Context(), v.Stack)
	if fault.KindOf(err) == fault.KindNotFound {
		return nil, nil //nolint:nilnil // the stack has no settings
	}
	return set, err
}

func (p *pages) deploy(v *page.Visit) (view.Page, error) { return p.deployPage(v, "") }

func (p *pages) deployPage(v *page.Visit, problem string) (view.Page, error) {
	d, _, _, err := p.begin(v)
	if err != nil {
		return view.Page{}, err
	}
	return p.showDeploy(v, d, problem)
}

// deployFormID is the id of the form.
const deployFormID = "deploy-settings"

func (p *pages) showDeploy(v *page.Visit, d draft, problem string) (view.Page, error) {
	m := deployModel{St: v.Stack, D: d, Set: d.After, Operate: v.Who.Can(v.Stack, identity.Operate), Issuer: p.Issuer}
	_, source, warnings, err := p.begin(v)
	if err != nil {
		return view.Page{}, err
	}
	m.Source, m.Warnings, m.Saved = source, warnings, justSaved(v, d)
	if m.Authors, err = p.Deployments.SecretAuthors(v.Context(), v.Stack); err != nil {
		return view.Page{}, err
	}
	if err := p.describeEnvironments(v, &m); err != nil {
		return view.Page{}, err
	}
	list, preset, err := p.visiblePools(v, m.Set.AgentPoolID)
	if err != nil {
		return view.Page{}, err
	}
	m.Pools = poolOptions(list, preset)
	m.Auth = authKind(m.Set)
	if d.Problems[authMember] != "" {
		m.AuthForm, m.UserForm = v.Form("auth"), v.Form("git-user")
	} else if v.Form("auth") == "none" {
		m.AuthForm = "none"
	}
	m.Effective = effective(m.Set, list, preset)
	var bar templ.Component
	if m.Operate && !reviewing(d) {
		bar = view.ReviewBar(d.bar(deployFormID, path(v.Stack)))
	}
	return p.settingsPage(v, "", problem, deployForm(m), bar)
}

// justSaved reports whether a visitor has stored the settings just now.
func justSaved(v *page.Visit, d draft) bool {
	return d.Version > 0 && v.Query(savedVersion) == strconv.FormatInt(d.Version, 10)
}

// visiblePools returns the pools that a visitor may see, and the id of the default pool. Visitors who
// may not see all see the own pool of the stack and the default.
func (p *pages) visiblePools(v *page.Visit, own string) (list []pools.Overview, preset string, err error) {
	list, preset, err = p.Pools.List(v.Context(), v.Stack.OrgID)
	if err == nil && !v.Who.CanReadPools(v.Stack.OrgID) {
		list = pools.Own(list, own, preset)
	}
	return list, preset, err
}

// poolName returns the name of a pool, or other if it is not in a list.
func poolName(list []pools.Overview, id, other string) string {
	if at := slices.IndexFunc(list, func(o pools.Overview) bool { return o.ID == id }); at >= 0 {
		return list[at].Name
	}
	return other
}

// poolOptions lists the pools with their agents. The first option names the inherited default.
func poolOptions(list []pools.Overview, preset string) []view.Option {
	inherited := view.Option{Text: "The organization's default pool, which is not set"}
	out := make([]view.Option, 0, len(list)+1)
	out = append(out, inherited)
	for _, o := range list {
		online := 0
		for _, a := range o.Agents {
			if a.Online {
				online++
			}
		}
		text := o.Name
		if o.Agents != nil {
			text = fmt.Sprintf("%s (%s, %d online)", o.Name, words.Count(len(o.Agents), "agent"), online)
		}
		if o.ID == preset {
			out[0].Text = "The organization's default pool: " + text
		}
		out = append(out, view.Option{Value: o.ID, Text: text})
	}
	return out
}

func authKind(set *workflow.Settings) string {
	git := set.Git()
	switch {
	case git == nil || git.GitAuth == nil:
		return ""
	case git.GitAuth.SSHAuth != nil:
		return "SSH key"
	case git.GitAuth.BasicAuth != nil:
		return "user name and password"
	default:
		return "access token"
	}
}

func gitOf(set *workflow.Settings) workflow.SourceContextGit {
	if git := set.Git(); git != nil {
		return *git
	}
	return workflow.SourceContextGit{}
}

func oidcOf(set *workflow.Settings) (aws workflow.OIDCAWS, azure workflow.OIDCAzure, gcp workflow.OIDCGCP) {
	o := set.OIDC()
	if o == nil {
		return aws, azure, gcp
	}
	if o.AWS != nil {
		aws = *o.AWS
	}
	if o.Azure != nil {
		azure = *o.Azure
	}
	if o.GCP != nil {
		gcp = *o.GCP
	}
	return aws, azure, gcp
}

// effective lists what a deployment would use, and the origin of each value.
func effective(set *workflow.Settings, list []pools.Overview, preset string) []origin {
	const own, org, none = "this stack", "the organization", "the server's default"
	from := func(value, fallback string) origin {
		if value != "" {
			return origin{Value: value, From: own}
		}
		return origin{Value: fallback, From: none}
	}
	pool := origin{Value: poolName(list, cmp.Or(set.AgentPoolID, preset), "none: deployments wait until a pool is chosen"), From: own}
	if set.AgentPoolID == "" {
		pool.From = org
	}
	pool.Name = "Pool"
	git := gitOf(set)
	type setting struct{ name, value, fallback string }
	revision := setting{"Branch", strings.TrimPrefix(git.Branch, headRefs), "the repository's default branch"}
	if git.Commit != "" {
		revision = setting{name: "Commit", value: git.Commit}
	}
	out := []origin{pool}
	for _, o := range []setting{
		{"Repository", cmp.Or(git.RepoURL, watchedName(set)), "none: the image must contain the program"},
		revision,
		{"Folder", git.RepoDir, "the root of the repository"},
		{"Image", set.Image(), "the agent's default image"},
		{"Commands before the operation", strings.Join(set.PreRunCommands(), "; "), "none"},
	} {
		e := from(o.value, o.fallback)
		e.Name = o.name
		out = append(out, e)
	}
	if names := set.Environments(); len(names) > 0 {
		out = append(out, origin{"Environments", strings.Join(names, ", "), own})
	}
	if set.ConcurrencyGroup != "" {
		out = append(out, origin{"Concurrency group", set.ConcurrencyGroup, own})
	}
	return out
}

// trustSubject is the subject of the identity tokens of a stack's updates.
func trustSubject(st store.Stack) string {
	return fmt.Sprintf("pulumi:deploy:org:%s:project:%s:stack:%s:operation:update:scope:write", st.OrgName, st.Project, st.Name)
}

// awsPolicy is the trust policy of an AWS role for a stack's updates.
func awsPolicy(st store.Stack, issuer string) string {
	host := strings.TrimPrefix(strings.TrimPrefix(issuer, "https://"), "http://")
	doc := map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{
		"Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity",
		"Principal": map[string]any{"Federated": "arn:aws:iam::ACCOUNT:oidc-provider/" + host},
		"Condition": map[string]any{"StringEquals": map[string]any{host + ":aud": st.OrgName, host + ":sub": trustSubject(st)}},
	}}}
	out, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return ""
	}
	return string(out)
}
