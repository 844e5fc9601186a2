package stacksettings

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/forges"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

// triggersModel is the page about what pushes, tags and pull requests deploy.
type triggersModel struct {
	St  store.Stack
	D   draft
	Now workflow.Triggers // those that the draft leads to
	// Forge is the chosen one of the options.
	Forge  string
	Forges []view.Option
	// Connected reports whether the organization has an integration.
	Connected             bool
	Admin, Operate, Saved bool
	Watching              forges.Watching
}

// triggersFormID is the id of the form.
const triggersFormID = "trigger-settings"

var providers = map[string]string{
	vcs.ProviderGitHub: "GitHub", vcs.ProviderGitLab: "GitLab", vcs.ProviderBitbucket: "Bitbucket", vcs.ProviderAzure: "Azure DevOps", vcs.ProviderCustom: "a git server",
}

// forgeValue is the value of the option for an integration. Without an id, the integration is the one
// that contains the repository.
func forgeValue(provider, id string) string { return provider + "/" + id }

func (p *pages) forges() forges.Deps {
	return forges.Deps{Integrations: p.Integrations, Events: p.Events}
}

func (p *pages) triggers(v *page.Visit) (view.Page, error) { return p.triggersPage(v, "") }

func (p *pages) triggersPage(v *page.Visit, problem string) (view.Page, error) {
	d, _, _, err := p.begin(v)
	if err != nil {
		return view.Page{}, err
	}
	return p.showTriggers(v, d, problem)
}

func (p *pages) showTriggers(v *page.Visit, d draft, problem string) (view.Page, error) {
	m := triggersModel{
		St: v.Stack, D: d, Saved: justSaved(v, d), Admin: v.Who.CanAdminOrg(v.Stack.OrgID), Operate: v.Who.Can(v.Stack, identity.Operate),
		Forges: []view.Option{{Text: "none: nothing triggers deployments"}},
	}
	list, err := p.Integrations.List(v.Context(), store.Organization{ID: v.Stack.OrgID})
	if err != nil {
		return view.Page{}, err
	}
	m.choose(list)
	var live []view.Topic
	if m.Watching, live, err = p.forges().Watching(v); err != nil {
		return view.Page{}, err
	}
	var bar templ.Component
	if m.Operate && !reviewing(d) {
		bar = view.ReviewBar(d.bar(triggersFormID, path(v.Stack, "triggers")))
	}
	out, err := p.settingsPage(v, "triggers", problem, triggersBody(m), bar)
	out.Live = live
	return out, err
}

// choose lists the integrations, and selects the one that the settings name.
func (m *triggersModel) choose(list []store.VCSIntegration) {
	var ok bool
	if m.Now, ok = m.D.After.Triggers(); m.D.Triggers != nil {
		m.Now, ok = *m.D.Triggers, m.D.Triggers.Provider != ""
	}
	if ok {
		m.Forge = forgeValue(m.Now.Provider, m.Now.InstallationID)
	}
	m.Connected = len(list) > 0
	known := map[string]bool{"": true}
	for _, i := range list {
		value := forgeValue(i.Provider, i.ID)
		known[value] = true
		m.Forges = append(m.Forges, view.Option{Value: value, Text: providers[i.Provider] + ": " + i.Name})
		// Settings can also name the installation of a GitHub App, or only the provider.
		if m.Now.InstallationID != "" && m.Now.InstallationID == i.Installation && m.Now.Provider == i.Provider {
			m.Forge = value
		}
	}
	if !known[m.Forge] {
		m.Forges = append(m.Forges, view.Option{Value: m.Forge, Text: providers[m.Now.Provider] + ": the integration with the repository"})
	}
}

// branch names the branch of the triggers.
func (m triggersModel) branch() string {
	now, _ := m.D.After.Triggers()
	if git := m.D.After.Git(); git != nil && now.Branch == "" {
		now.Branch = strings.TrimPrefix(git.Branch, headRefs)
	}
	if now.Branch == "" {
		return "The deploy settings name no branch, so that neither commits nor pull requests deploy."
	}
	return "The branch is " + now.Branch + ", which the deploy settings name."
}

func (m triggersModel) forge() view.Select {
	return view.Select{
		Label: "Integration", Name: "forge", Value: m.Forge, Options: m.Forges,
		Changed: m.D.changed("vcs.provider") || m.D.changed("vcs.installationId"), Problem: m.D.Problems["vcs.provider"],
	}
}

// approve approves the commit that the visitor has seen.
func (p *pages) approve(v *page.Visit) (page.Answer, error) {
	return answer(v, p.forges().Approve(v), "triggers", p.triggersPage)
}

// watchedName returns the repository of an integration that settings name, or "".
func watchedName(set *workflow.Settings) string {
	t, _ := set.Triggers()
	return t.Repository
}

// triggersPatch returns the form of the triggers as a patch of the stored settings.
func (p *pages) triggersPatch(v *page.Visit, d *draft) ([]byte, error) {
	patch := map[string]any{}
	now, ok := d.base().Triggers()
	provider, id, _ := strings.Cut(v.Form("forge"), "/")
	want := wantedTriggers(v, id, now)
	d.Triggers = &workflow.Triggers{Provider: provider, GitHubSettings: want}
	if provider != "" {
		if want.Repository == "" {
			d.wrong("vcs.repository", "Name the repository whose pushes and pull requests deploy the stack.")
		}
		if _, err := want.ReviewTTL(); err != nil {
			d.wrong("vcs.reviewStackTTL", page.Sentence(fault.Invalid("%s", err)))
		}
		if !ok || provider != now.Provider || !sameTriggers(want, now.GitHubSettings) {
			patch["gitHub"], patch["vcs"] = nil, workflow.VCSSettings{Provider: provider, GitHubSettings: want}
		}
	} else if ok {
		patch["vcs"], patch["gitHub"] = nil, nil
	}
	out, err := json.Marshal(patch)
	return out, fault.While(err, "encoding the triggers of a form")
}

func wantedTriggers(v *page.Visit, id string, now workflow.Triggers) workflow.GitHubSettings {
	return workflow.GitHubSettings{
		Repository: strings.TrimSuffix(strings.TrimSpace(v.Form("forge-repository")), ".git"), InstallationID: id,
		DeployCommits: v.Form("deployCommits") == "on", PreviewPullRequests: v.Form("previewPullRequests") == "on",
		DeployTags: v.Form("deployTags") == "on", PullRequestTemplate: v.Form("pullRequestTemplate") == "on",
		Paths: v.Lines("paths"), TagFilters: v.Lines("tagFilters"), ReviewStackLabels: v.Lines("reviewStackLabels"),
		ReviewStackTTL: strings.TrimSpace(v.Form("reviewStackTTL")),
		// The form does not show it.
		DeployPullRequest: now.DeployPullRequest,
	}
}

// sameTriggers compares triggers, for which a missing list is an empty one.
func sameTriggers(a, b workflow.GitHubSettings) bool {
	for _, g := range []*workflow.GitHubSettings{&a, &b} {
		for _, list := range []*[]string{&g.Paths, &g.TagFilters, &g.ReviewStackLabels} {
			if len(*list) == 0 {
				*list = nil
			}
		}
	}
	return reflect.DeepEqual(a, b)
}
