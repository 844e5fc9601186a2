// Package githubapp contains the pages with which an administrator registers a GitHub App for an
// organization: the form, and the pages to which GitHub sends the browser back.
package githubapp

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/vcs/integrations"
)

// Deps are the services behind the pages.
type Deps struct {
	Integrations *integrations.Service
	// APIURL is the server's address for forges, without a trailing slash.
	APIURL string
}

type pages struct {
	Deps
	site *page.Site
}

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d, site}
	const base = "/{org}/-/settings/integrations/github-app"
	site.View(base, page.Admin, p.form)
	site.Action(base, page.Fresh(page.Admin), p.start)
	site.View(base+"/created", page.Admin, p.created)
	site.View(base+"/installed", page.Admin, p.installed)
	site.View(base+"/apps/{integration}", page.Admin, p.app)
}

// path returns the path of one of the pages.
func path(v *page.Visit, more ...string) string {
	return links.Path(append([]string{v.Org.Name, "-", "settings", "integrations", "github-app"}, more...)...)
}

type formModel struct {
	Path, Here        string
	Name, Owner, Base string
	Hook, Fresh       bool
	wrong             page.Wrong
}

// form shows the form. Links to it can contain its values.
func (p *pages) form(v *page.Visit) (view.Page, error) {
	return p.formPage(v, formModel{
		Name: cmp.Or(v.Query("name"), "pulumi-"+v.Org.Name), Owner: v.Query("owner"), Hook: !p.local(),
	}, "")
}

func (p *pages) formPage(v *page.Visit, m formModel, problem string) (view.Page, error) {
	m.Path, m.Here, m.Fresh = path(v), v.R.URL.RequestURI(), v.Session.Fresh(time.Now())
	m.wrong = page.Locate(problem, page.About{Word: "name", Field: "name"}, page.About{Word: "BaseUrl", Field: "baseUrl", Label: "The address"}, page.About{Word: "address", Field: "baseUrl"}, page.About{Word: "wner", Field: "owner"})
	return p.page(v, "Create a GitHub App", m.wrong[""], form(m)), nil
}

// local reports whether forges elsewhere cannot reach this server.
func (p *pages) local() bool {
	u, err := url.Parse(p.APIURL)
	return err != nil || u.Scheme != "https"
}

func (p *pages) page(v *page.Visit, title, problem string, content templ.Component) view.Page {
	return view.Page{
		Title: title + " · " + v.Org.Name, Section: "settings", Body: body(problem, content),
		Object: &view.Object{Icon: "branch", Project: "Integrations", Name: title},
	}
}

type confirmModel struct {
	integrations.AppForm
	Host string
}

func (p *pages) start(v *page.Visit) (page.Answer, error) {
	m := formModel{Name: v.Form("name"), Owner: v.Form("owner"), Base: v.Form("baseUrl"), Hook: v.Form("hook") != ""}
	f, err := p.Integrations.StartApp(v.Context(), v.Who, v.Org, v.Session.ID, integrations.AppRequest{
		Name: m.Name, Owner: m.Owner, BaseURL: m.Base, Hook: m.Hook,
		Home: p.site.URL(), Redirect: p.site.URL() + path(v, "created"), Setup: p.site.URL() + path(v, "installed"),
	})
	if err != nil {
		return page.Changed(v, err, "", func(v *page.Visit, problem string) (view.Page, error) { return p.formPage(v, m, problem) })
	}
	_, rest, _ := strings.Cut(f.Address, "://")
	host, _, _ := strings.Cut(rest, "/")
	return page.Once(p.page(v, "Create a GitHub App", "", confirm(confirmModel{f, host}))).FormTo(f.Address), nil
}

// created receives the browser from GitHub, with a code. The state shows that this browser started it.
func (p *pages) created(v *page.Visit) (view.Page, error) {
	i, err := p.Integrations.FinishApp(v.Context(), v.Who, v.Org, v.Session.ID, v.Query("state"), v.Query("code"))
	if message, ok := page.Correctable(err); ok {
		return p.formPage(v, formModel{Name: "pulumi-" + v.Org.Name, Hook: !p.local()}, message)
	}
	if err != nil {
		return view.Page{}, err
	}
	return view.Page{}, page.GoTo(path(v, "apps", i.ID))
}

// installed receives the browser from GitHub after an installation. It believes nothing that the
// address says: the page to which it leads asks the forge.
func (p *pages) installed(v *page.Visit) (view.Page, error) {
	list, err := p.Integrations.List(v.Context(), v.Org)
	if err != nil {
		return view.Page{}, err
	}
	to := path(v)
	for _, i := range list {
		if i.AppID == "" {
			continue
		}
		if to = path(v, "apps", i.ID); i.Installation != "" {
			continue
		}
		if app, err := p.Integrations.CheckApp(v.Context(), v.Org, i.ID); err == nil && app.InstallURL == "" {
			break
		}
	}
	return view.Page{}, page.GoTo(to)
}

type appModel struct {
	integrations.App
	Problem  string // why the forge could not be asked
	Here     string
	Overview string // page of the integration
}

func (p *pages) app(v *page.Visit) (view.Page, error) {
	found, err := p.Integrations.CheckApp(v.Context(), v.Org, v.Param("integration"))
	m := appModel{App: found, Here: path(v, "apps", v.Param("integration")), Overview: links.Path(v.Org.Name, "-", "settings", "integrations", v.Param("integration"))}
	if err != nil && found.Integration.ID == "" {
		return view.Page{}, err
	}
	if err != nil {
		m.Problem = "The forge could not be asked whether the app is installed: " + err.Error()
	}
	out := p.page(v, found.Integration.Name, m.Problem, app(m))
	out.Object.Facts = appFacts(m)
	return out, nil
}
