// Package forges contains the pages about push to deploy: an organization's connections to git hosts,
// what they reported, and what the server decided for each stack.
package forges

import (
	"cmp"
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

// Deps are the services behind the pages.
type Deps struct {
	Integrations *integrations.Service
	Events       *dispatch.Service
	Pools        *pools.Service
}

// Mount is where the pages about the integrations of an organization are.
type Mount struct {
	// Pattern is the pattern of the list's path.
	Pattern string
	// Path returns the path of the list, or of a page below it.
	Path func(v *page.Visit, more ...string) string
	// Page returns a page with the organization's settings around the content, under a problem.
	Page func(v *page.Visit, problem string, content templ.Component) (view.Page, error)
}

type pages struct {
	Deps
	Mount
}

// Register registers the pages of organizations. Only administrators of an organization
// see its integrations.
func Register(site *page.Site, d Deps, at Mount) {
	p := &pages{d, at}
	admin, fresh := page.Admin, page.Fresh(page.Admin)
	one := at.Pattern + "/{integration}"
	site.View(at.Pattern, admin, p.list)
	site.View(at.Pattern+"/new", admin, p.add)
	site.Action(at.Pattern, fresh, p.create)
	site.View(one, admin, p.show)
	site.View(one+"/events", admin, p.events)
	site.View(one+"/repositories", admin, p.repositories)
	site.Action(one+"/edit", fresh, p.edit)
	site.Action(one+"/rotate", fresh, p.rotate)
	site.Action(one+"/delete", admin, p.remove)
}

// place is where a visitor is.
type place struct {
	// Path returns the path of the list of integrations, or of a page below it.
	Path func(more ...string) string
	Org  string
	// Fresh reports whether the visitor has signed in recently, as most forms require, and SignIn is
	// the path of the sign-in that leads back.
	Fresh  bool
	SignIn string
}

func (p *pages) at(v *page.Visit) place {
	path := func(more ...string) string { return p.Path(v, more...) }
	return place{path, v.Org.Name, v.Session.Fresh(time.Now()), page.LoginPath(page.Here(v, path()))}
}

type listModel struct {
	place
	List    []store.VCSIntegration
	Failing map[string]int64 // stacks whose repository has a problem, by integration
}

func (p *pages) list(v *page.Visit) (view.Page, error) {
	list, err := p.Integrations.List(v.Context(), v.Org)
	if err != nil {
		return view.Page{}, err
	}
	failing, err := p.Integrations.Failing(v.Context(), v.Org)
	if err != nil {
		return view.Page{}, err
	}
	return p.Page(v, "", integrationList(listModel{p.at(v), list, failing}))
}

// formModel is the form of a new or a changed integration.
type formModel struct {
	place
	Kind kind
	Form form
	// ID is the id of the integration, or "" for a new one.
	ID    string
	Pools []view.Option
	Wrong page.Wrong
}

func (p *pages) add(v *page.Visit) (view.Page, error) {
	return p.addPage(v, form{Values: map[string]string{}}, "")
}

func (p *pages) addPage(v *page.Visit, f form, problem string) (view.Page, error) {
	k, ok := kindNamed(cmp.Or(v.Query("kind"), v.Form("kind")))
	if !ok {
		return view.Page{}, fault.NotFound("This server does not connect to git hosts of this kind.")
	}
	m := formModel{place: p.at(v), Kind: k, Form: f}
	var err error
	if m.Pools, err = p.poolOptions(v); err != nil {
		return view.Page{}, err
	}
	m.Wrong = k.wrong(problem)
	out, err := p.Page(v, m.Wrong[""], newIntegration(m))
	out.Title, out.Bar = "New integration: "+k.title, nil
	out.Object = &view.Object{Icon: "branch", Project: "Integrations", Name: "new: " + k.title}
	return out, err
}

func (p *pages) poolOptions(v *page.Visit) ([]view.Option, error) {
	list, _, err := p.Pools.List(v.Context(), v.Org.ID)
	out := []view.Option{{Text: "The pool of the stack"}}
	for _, o := range list {
		out = append(out, view.Option{Value: o.ID, Text: o.Name})
	}
	return out, err
}

func (p *pages) create(v *page.Visit) (page.Answer, error) {
	k, ok := kindNamed(v.Form("kind"))
	if !ok {
		return page.Answer{}, fault.Invalid("Choose a kind of git host.")
	}
	f := formOf(v, k)
	c, err := f.change(k, true)
	var made store.VCSIntegration
	var secret string
	if err == nil {
		made, secret, err = p.Integrations.Create(v.Context(), v.Who, v.Org, k.provider, c)
	}
	if err != nil {
		return page.Changed(v, err, "", func(v *page.Visit, problem string) (view.Page, error) { return p.addPage(v, f, problem) })
	}
	return p.secretPage(v, made, secret)
}

// secretPage shows an integration, and above it the secret of its webhook, which cannot be shown again.
func (p *pages) secretPage(v *page.Visit, i store.VCSIntegration, secret string) (page.Answer, error) {
	out, err := p.showPage(v, i, nil, "", secret)
	out.Live = nil // a page that is shown once cannot be read again
	return page.Once(out), err
}

type hookModel struct {
	place
	Integration store.VCSIntegration
	Kind        kind
	URL, Secret string
}

// showModel is the page of an integration.
type showModel struct {
	formModel
	Integration store.VCSIntegration
	HookURL     string
	Watched     []integrations.Watched
	// Once has the secret of a webhook that was just made.
	Once hookModel
}

// failing returns the number of stacks whose repository has a problem.
func (m showModel) failing() int64 {
	n := 0
	for _, w := range m.Watched {
		if w.Problem() != "" {
			n += len(w.Watches)
		}
	}
	return int64(n)
}

func (p *pages) show(v *page.Visit) (view.Page, error) {
	i, err := p.find(v)
	if err != nil {
		return view.Page{}, err
	}
	return p.showPage(v, i, nil, "", "")
}

// showPage returns the page of an integration, with a refused form f or nil, and a new secret or "".
func (p *pages) showPage(v *page.Visit, i store.VCSIntegration, f *form, problem, secret string) (view.Page, error) {
	m := showModel{Integration: i, HookURL: p.Integrations.HookURL(i)}
	m.Once = hookModel{p.at(v), i, kindOf(i), m.HookURL, secret}
	var err error
	m.formModel = formModel{place: p.at(v), Kind: kindOf(i), ID: i.ID}
	if f != nil {
		m.Form = *f
	} else if m.Form, err = stored(i, m.Kind); err != nil {
		return view.Page{}, err
	}
	if m.Pools, err = p.poolOptions(v); err != nil {
		return view.Page{}, err
	}
	if m.Watched, err = p.Integrations.Watched(v.Context(), v.Org, i.ID); err != nil {
		return view.Page{}, err
	}
	m.Wrong = m.Kind.wrong(problem)
	out, err := p.onePage(v, i, "", m.failing(), m.Wrong[""], integration(m))
	out.Live = []view.Topic{{Channel: dispatch.Topic, About: i.ID}, {Channel: dispatch.Processed, About: i.ID}, {Channel: integrations.Topic, About: i.ID}}
	return out, err
}

func (p *pages) find(v *page.Visit) (store.VCSIntegration, error) {
	return p.Integrations.Get(v.Context(), v.Org, v.Param("integration"))
}

// onePage returns a page about an integration. part is the last segment of its path, and failing the number of stacks whose
// repository has a problem.
func (p *pages) onePage(v *page.Visit, i store.VCSIntegration, part string, failing int64, problem string, content templ.Component) (view.Page, error) {
	parts := []view.Part{{Text: "Connection"}, {Name: "events", Text: "Events"}, {Name: "repositories", Text: "Repositories"}}
	tabs := view.Tabs(parts, part, func(name ...string) string { return p.Path(v, append([]string{i.ID}, name...)...) })
	out, err := p.Page(v, problem, withQuestion(p.at(v), i, content))
	out.Title, out.Bar = i.Name+" · Integrations", nil
	mark, text := healthOf(i, failing)
	out.Object = &view.Object{
		Icon: "branch", Project: "Integrations", Name: i.Name, Facts: integrationFacts(i, mark, text), Actions: integrationMenu(i), Label: "Integration", Tabs: tabs,
	}
	return out, err
}

func (p *pages) edit(v *page.Visit) (page.Answer, error) {
	i, err := p.find(v)
	if err != nil {
		return page.Answer{}, err
	}
	k := kindOf(i)
	f := formOf(v, k)
	c, err := f.change(k, false)
	if err == nil {
		_, _, err = p.Integrations.Update(v.Context(), v.Org, i.ID, c)
	}
	return page.Changed(v, err, p.Path(v, i.ID), func(v *page.Visit, problem string) (view.Page, error) { return p.showPage(v, i, &f, problem, "") })
}

func (p *pages) rotate(v *page.Visit) (page.Answer, error) {
	c := integrations.Change{Rotate: true, Revoke: v.Form("revoke") == "on"}
	i, secret, err := p.Integrations.Update(v.Context(), v.Org, v.Param("integration"), c)
	if err != nil {
		return page.Answer{}, err
	}
	return p.secretPage(v, i, secret)
}

func (p *pages) remove(v *page.Visit) (page.Answer, error) {
	return page.See(p.Path(v)), p.Integrations.Delete(v.Context(), v.Org, v.Param("integration"))
}

func (p *pages) events(v *page.Visit) (view.Page, error) {
	i, err := p.find(v)
	if err != nil {
		return view.Page{}, err
	}
	entries, err := p.Events.OfIntegration(v.Context(), v.Org, i.ID)
	if err != nil {
		return view.Page{}, err
	}
	out, err := p.onePage(v, i, "events", 0, "", integrationEvents(v.Org.Name, entries))
	out.Live = []view.Topic{{Channel: dispatch.Topic, About: i.ID}, {Channel: dispatch.Processed, About: i.ID}}
	return out, err
}

// repositoriesModel are the repositories that stacks can use.
type repositoriesModel struct {
	place
	Integration store.VCSIntegration
	List        []vcs.Repo
	Next        string // path of the next page
	// Name is the repository whose branches are shown, or "".
	Name     string
	Branches []string
}

// repositories asks the git host. So it also tries the credential.
func (p *pages) repositories(v *page.Visit) (view.Page, error) {
	i, err := p.find(v)
	if err != nil {
		return view.Page{}, err
	}
	m := repositoriesModel{place: p.at(v), Integration: i, Name: v.Query("repository")}
	list, next, err := p.Integrations.Repos(v.Context(), v.Org, i.ID, v.Query("page"))
	if m.List = list; next != "" {
		m.Next = "?page=" + escape(next)
	}
	if err == nil && m.Name != "" {
		m.Branches, err = p.Integrations.Branches(v.Context(), v.Org, i.ID, m.Name)
	}
	problem, ok := page.Correctable(err)
	if !ok && fault.KindOf(err) == fault.KindUnavailable {
		problem, ok = page.Sentence(err), true
	}
	if err != nil && !ok {
		return view.Page{}, err
	}
	return p.onePage(v, i, "repositories", 0, problem, repositoryList(m))
}
