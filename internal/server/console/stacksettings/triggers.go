package stacksettings

import (
	"reflect"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

// triggersModel is the part of the form about what pushes, tags and pull requests deploy.
type triggersModel struct {
	Now workflow.Triggers
	// Forge is the chosen one of the options.
	Forge  string
	Forges []view.Option
	// Connected reports whether the organization has an integration.
	Connected bool
	Org       string
	Admin     bool
}

var providers = map[string]string{
	vcs.ProviderGitHub: "GitHub", vcs.ProviderGitLab: "GitLab", vcs.ProviderBitbucket: "Bitbucket", vcs.ProviderAzure: "Azure DevOps", vcs.ProviderCustom: "a git server",
}

// forgeValue is the value of the option for an integration. Without an id, the integration is the one
// that contains the repository.
func forgeValue(provider, id string) string { return provider + "/" + id }

func (p *pages) triggers(v *page.Visit, set *workflow.Settings) (triggersModel, error) {
	m := triggersModel{Org: v.Stack.OrgName, Admin: v.Who.CanAdminOrg(v.Stack.OrgID), Forges: []view.Option{{Text: "none: nothing triggers deployments"}}}
	list, err := p.Integrations.List(v.Context(), store.Organization{ID: v.Stack.OrgID})
	if err != nil {
		return m, err
	}
	var ok bool
	if m.Now, ok = set.Triggers(); ok {
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
	return m, nil
}

// watchedName returns the repository of an integration that settings name, or "".
func watchedName(set *workflow.Settings) string {
	t, _ := set.Triggers()
	return t.Repository
}

// triggersPatch adds the triggers of a form to a patch of the settings, unless they stay the same.
func triggersPatch(v *page.Visit, set *workflow.Settings, patch map[string]any) error {
	now, ok := set.Triggers()
	chosen := v.Form("forge")
	if chosen == "" {
		if ok {
			patch["vcs"], patch["gitHub"] = nil, nil
		}
		return nil
	}
	provider, id, _ := strings.Cut(chosen, "/")
	want := workflow.GitHubSettings{
		Repository: strings.TrimSuffix(strings.TrimSpace(v.Form("forge-repository")), ".git"), InstallationID: id,
		DeployCommits: v.Form("deployCommits") == "on", PreviewPullRequests: v.Form("previewPullRequests") == "on",
		DeployTags: v.Form("deployTags") == "on", PullRequestTemplate: v.Form("pullRequestTemplate") == "on",
		Paths: v.Lines("paths"), TagFilters: v.Lines("tagFilters"), ReviewStackLabels: v.Lines("reviewStackLabels"),
		ReviewStackTTL: strings.TrimSpace(v.Form("reviewStackTTL")),
		// The form does not show it.
		DeployPullRequest: now.DeployPullRequest,
	}
	if want.Repository == "" {
		return fault.Invalid("Name the repository whose pushes and pull requests deploy the stack.")
	}
	if _, err := want.ReviewTTL(); err != nil {
		return fault.Invalid("The time after which review stacks are destroyed: %s.", err)
	}
	if ok && provider == now.Provider && sameTriggers(want, now.GitHubSettings) {
		return nil
	}
	patch["gitHub"], patch["vcs"] = nil, workflow.VCSSettings{Provider: provider, GitHubSettings: want}
	return nil
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
