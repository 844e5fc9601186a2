package forges

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

const base = "/api/console/orgs/{org}/integrations"

// paths are the providers by their element of the path.
var paths = map[string]string{
	"custom": vcs.ProviderCustom, "github": vcs.ProviderGitHub, "github-enterprise": vcs.ProviderGitHub,
	"gitlab": vcs.ProviderGitLab, "bitbucket": vcs.ProviderBitbucket, "azure-devops": vcs.ProviderAzure,
}

func (h *routes) registerIntegrations(rt *web.Router) {
	rt.Org(http.MethodGet, base, web.NeedMember, h.summaries)
	rt.Authed(http.MethodGet, base+"/github-app", web.People, h.githubApp)
	for path, provider := range paths {
		of := func(i store.VCSIntegration) bool {
			return i.Provider == provider && (provider != vcs.ProviderGitHub || integrations.IsHosted(i) == (path == "github"))
		}
		rt.Org(http.MethodGet, base+"/"+path, web.NeedAdmin, h.list(of))
		rt.Org(http.MethodPost, base+"/"+path, web.NeedGrant, h.create(provider))
		one := base + "/" + path + "/{integration}"
		rt.Org(http.MethodGet, one, web.NeedAdmin, h.get(of))
		rt.Org(http.MethodPatch, one, web.NeedGrant, h.update(of, provider))
		rt.Org(http.MethodDelete, one, web.NeedGrant, h.delete(of))
		if path != "custom" {
			rt.Org(http.MethodGet, one+"/repos", web.NeedAdmin, h.repos)
		}
		rt.Org(http.MethodGet, one+"/repos/{repo}/branches", web.NeedAdmin, h.branches)
		rt.Org(http.MethodGet, one+"/events", web.NeedAdmin, h.events)
	}
	custom := base + "/custom/{integration}/repos"
	rt.Org(http.MethodGet, custom, web.NeedAdmin, h.repos)
	rt.Org(http.MethodPost, custom, web.NeedGrant, h.addRepo)
	rt.Org(http.MethodDelete, custom, web.NeedGrant, h.removeRepo)
}

// summary describes an integration to members of the organization.
type summary struct {
	ID                  string `json:"id"`
	Provider            string `json:"vcsProvider"`
	Name                string `json:"name"`
	Host                string `json:"host"`
	BaseURL             string `json:"baseUrl"`
	HasIndividualAccess bool   `json:"hasIndividualAccess"`
}

func (h *routes) summaries(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	all, err := h.integrations.List(r.Context(), o)
	out := make([]summary, 0, len(all))
	for _, i := range all {
		s := summary{ID: i.ID, Provider: i.Provider, Name: i.Name, BaseURL: i.BaseURL}
		if u, err := url.Parse(i.BaseURL); err == nil {
			s.Host = u.Host
		}
		if i.Provider == vcs.ProviderGitHub && !integrations.IsHosted(i) {
			s.Provider = "github_enterprise"
		}
		out = append(out, s)
	}
	return web.Answer(w, r, map[string]any{"integrations": out}, err)
}

// githubApp reports whether the organization is connected to GitHub. The CLI requests this before it
// sets up deployment settings. Callers who may not see the organization learn nothing.
func (h *routes) githubApp(w http.ResponseWriter, r *http.Request) error {
	installed, err := h.integrations.HasGitHub(r.Context(), web.Principal(r), web.Param(r, "org"))
	return web.Answer(w, r, map[string]bool{"installed": installed}, err)
}

func (h *routes) list(of func(store.VCSIntegration) bool) orgHandler {
	return func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
		all, err := h.integrations.List(r.Context(), o)
		if err != nil {
			return err
		}
		out := make([]map[string]any, 0, len(all))
		for _, i := range all {
			if !of(i) {
				continue
			}
			d, err := h.details(i)
			if err != nil {
				return err
			}
			out = append(out, d)
		}
		return web.Answer(w, r, map[string]any{"integrations": out}, nil)
	}
}

type orgHandler = func(w http.ResponseWriter, r *http.Request, o store.Organization) error

// find returns the integration of a path.
func (h *routes) find(r *http.Request, o store.Organization, of func(store.VCSIntegration) bool) (store.VCSIntegration, error) {
	i, err := h.integrations.Get(r.Context(), o, web.Param(r, "integration"))
	if err == nil && !of(i) {
		err = fault.NotFound("the organization has no integration of this provider with the id %q", i.ID)
	}
	return i, err
}

func (h *routes) get(of func(store.VCSIntegration) bool) orgHandler {
	return func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
		i, err := h.find(r, o, of)
		if err != nil {
			return err
		}
		d, err := h.details(i)
		return web.Answer(w, r, d, err)
	}
}

// create adds an integration. Its answer is the only one that contains the webhook's secret. Without a
// credential for GitHub, the answer is the address of the page that creates a GitHub App.
func (h *routes) create(provider string) orgHandler {
	return func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
		c, err := readChange(w, r, provider)
		if err != nil {
			return err
		}
		if setup := h.console.GitHubApp(o.Name); provider == vcs.ProviderGitHub && setup != "" && c.Token == nil && c.AppKey == nil && c.BaseURL == nil {
			return web.WriteJSON(w, r, http.StatusOK, map[string]string{"installationUrl": setup})
		}
		if provider != vcs.ProviderCustom && c.Token == nil && c.AppKey == nil {
			return fault.Invalid("this server cannot sign in at the forge for you: send accessToken, or for a GitHub App appId, privateKey, installationId and webhookSecret")
		}
		i, secret, err := h.integrations.Create(r.Context(), web.Principal(r), o, provider, c)
		if err != nil {
			return err
		}
		return h.answer(w, r, http.StatusCreated, i, secret)
	}
}

func (h *routes) answer(w http.ResponseWriter, r *http.Request, status int, i store.VCSIntegration, secret string) error {
	d, err := h.details(i)
	if err != nil {
		return err
	}
	if secret != "" {
		d["webhookSecret"] = secret
	}
	return web.WriteJSON(w, r, status, d)
}

func (h *routes) update(of func(store.VCSIntegration) bool, provider string) orgHandler {
	return func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
		if _, err := h.find(r, o, of); err != nil {
			return err
		}
		c, err := readChange(w, r, provider)
		if err != nil {
			return err
		}
		i, secret, err := h.integrations.Update(r.Context(), o, web.Param(r, "integration"), c)
		if err != nil || provider != vcs.ProviderCustom && secret == "" {
			return web.Done(w, err)
		}
		return h.answer(w, r, http.StatusOK, i, secret)
	}
}

func (h *routes) delete(of func(store.VCSIntegration) bool) orgHandler {
	return func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
		i, err := h.find(r, o, of)
		if err != nil {
			return err
		}
		return web.Done(w, h.integrations.Delete(r.Context(), o, i.ID))
	}
}

// repoBody describes a repository. Its id is its full name, by which [routes.branches] finds it.
type repoBody struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Owner string `json:"owner"`
}

func (h *routes) repos(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	list, next, err := h.integrations.Repos(r.Context(), o, web.Param(r, "integration"), r.URL.Query().Get("page"))
	answer := map[string]any{"repos": web.Each(list, func(repo vcs.Repo) repoBody {
		b := repoBody{ID: repo.Name, Name: repo.Name}
		if at := strings.LastIndexByte(repo.Name, '/'); at > 0 {
			b.Owner, b.Name = repo.Name[:at], repo.Name[at+1:]
		}
		return b
	})}
	if next != "" {
		answer["nextPageToken"] = next
	}
	return web.Answer(w, r, answer, err)
}

type branchBody struct {
	Name      string `json:"name"`
	Protected bool   `json:"isProtected"`
}

// branches lists the branches of the repository whose name, with escaped slashes, is in the path.
func (h *routes) branches(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	names, err := h.integrations.Branches(r.Context(), o, web.Param(r, "integration"), web.Param(r, "repo"))
	return web.Answer(w, r, map[string]any{"branches": web.Each(names, func(name string) branchBody { return branchBody{Name: name} })}, err)
}

func (h *routes) addRepo(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return h.changeRepos(w, r, o, func(set *integrations.Settings, b integrations.Listed, at int) error {
		if at >= 0 {
			return fault.Conflict("the integration has the repository %s", b.Name)
		}
		set.Repositories = append(set.Repositories, b)
		return nil
	})
}

func (h *routes) removeRepo(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return h.changeRepos(w, r, o, func(set *integrations.Settings, b integrations.Listed, at int) error {
		if at < 0 {
			return fault.NotFound("the integration has no repository %s", b.Name)
		}
		set.Repositories = append(set.Repositories[:at], set.Repositories[at+1:]...)
		return nil
	})
}

func (h *routes) changeRepos(w http.ResponseWriter, r *http.Request, o store.Organization, change func(set *integrations.Settings, b integrations.Listed, at int) error) error {
	if _, err := h.find(r, o, func(i store.VCSIntegration) bool { return i.Provider == vcs.ProviderCustom }); err != nil {
		return err
	}
	var b integrations.Listed
	if err := request.Decode(w, r, &b); err != nil {
		return err
	}
	_, _, err := h.integrations.Update(r.Context(), o, web.Param(r, "integration"), integrations.Change{Settings: func(set *integrations.Settings) error {
		at := -1
		for n, listed := range set.Repositories {
			if listed.Name == b.Name {
				at = n
			}
		}
		return change(set, b, at)
	}})
	return web.Done(w, err)
}

// number returns a number in a text, or 0.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
