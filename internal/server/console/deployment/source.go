package deployment

import (
	"net/url"
	"strings"

	"workflowagent/internal/workflow"
)

// repository is the page of a repository at its git host, if its addresses are known.
type repository struct {
	page *url.URL
	kind string // github, gitlab or bitbucket, whose forms of addresses the host has
}

// publicHosts are the hosts whose kind is known without an integration.
var publicHosts = map[string]string{"github.com": "github", "gitlab.com": "gitlab", "bitbucket.org": "bitbucket", "codeberg.org": "github"}

// kinds are the forms of addresses by provider and flavor.
var kinds = map[string]string{"github": "github", "gitlab": "gitlab", "bitbucket": "bitbucket", "gitea": "github", "forgejo": "github"}

// repository returns the repository of a deployment's program.
func (d shown) repository() (repository, bool) {
	g := d.Settings.Git()
	if g == nil {
		return repository{}, false
	}
	r, err := workflow.ParseRepository(g.RepoURL)
	if err != nil {
		return repository{}, false
	}
	host, path, ok := strings.Cut(r.Name(), "/")
	page := &url.URL{Scheme: "https", Host: host, Path: "/" + path}
	kind := publicHosts[host]
	if i := d.Integration; kind == "" && i != nil {
		if kind = kinds[i.Flavor]; kind == "" {
			kind = kinds[i.Provider]
		}
		base, err := url.Parse(i.BaseURL)
		if err != nil || base.Scheme != "https" && base.Scheme != "http" {
			return repository{}, false
		}
		page = base.JoinPath(path)
	}
	return repository{page, kind}, ok && kind != ""
}

// commitURL returns the page of a commit, or "".
func (d shown) commitURL(id string) string {
	r, ok := d.repository()
	if !ok || !hexadecimal(id) {
		return ""
	}
	return r.page.JoinPath(map[string]string{"github": "commit", "gitlab": "-/commit", "bitbucket": "commits"}[r.kind], id).String()
}

// compareURL returns the page that compares two commits, or "".
func (d shown) compareURL(from, to string) string {
	r, ok := d.repository()
	if !ok || !hexadecimal(from) || !hexadecimal(to) || from == to {
		return ""
	}
	switch r.kind {
	case "bitbucket":
		return r.page.JoinPath("branches/compare", to+".."+from).String()
	case "gitlab":
		return r.page.JoinPath("-/compare", from+"..."+to).String()
	default:
		return r.page.JoinPath("compare", from+"..."+to).String()
	}
}

func hexadecimal(id string) bool {
	return len(id) >= 7 && strings.Trim(id, "0123456789abcdef") == ""
}
