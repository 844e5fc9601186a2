// Package orgs contains the pages about organizations as a whole: the list and the limits for administrators of the
// server, and for them and the organization's administrators, its name and its end.
package orgs

import (
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/organizations"
	"workflowagent/internal/server/store"
	"workflowagent/internal/settings"
	"workflowagent/internal/words"
)

// Deps are the services behind the pages.
type Deps struct {
	Identity      *identity.Service
	Organizations *organizations.Service
	// Waiting returns the number of organizations that wait for their release after a restore.
	Waiting func(v *page.Visit) (int, error)
}

// Mount is a place of the page with the name and the end of an organization.
type Mount struct {
	Pattern string
	Access  page.Access
	// Name is the name of the organization.
	Name func(v *page.Visit) string
	// Path returns the path of the page, or of one below it, of an organization.
	Path func(name string, more ...string) string
	// After is where a visitor goes who has deleted the organization.
	After string
	// Page returns a page with the content.
	Page func(v *page.Visit, problem string, content templ.Component) (view.Page, error)
	// Limits shows the numbers and the limits, too.
	Limits bool
}

type pages struct {
	Deps
	Mount
}

// Register registers the page with the name and the end of an organization.
func Register(site *page.Site, d Deps, m Mount) {
	p := &pages{d, m}
	site.View(m.Pattern, m.Access, p.show)
	site.Action(m.Pattern+"/rename", page.Fresh(m.Access), p.rename)
	site.Action(m.Pattern+"/delete", page.Fresh(m.Access), p.remove)
}

const serverList = "/-/server/organizations"

// RegisterServer registers the pages of administrators of the server.
func RegisterServer(site *page.Site, d Deps) {
	m := Mount{
		Pattern: serverList + "/{organization}", Access: page.SiteAdmin, After: serverList, Limits: true,
		Name: func(v *page.Visit) string { return v.Param("organization") },
		Path: func(name string, more ...string) string {
			return links.Path(append([]string{"-", "server", "organizations", name}, more...)...)
		},
		Page: func(v *page.Visit, problem string, content templ.Component) (view.Page, error) {
			name := v.Param("organization")
			out := serverPage(name, problem, content)
			out.Bar, out.Object = nil, &view.Object{Icon: "users", Project: "Organizations", Name: name}
			return out, nil
		},
	}
	Register(site, d, m)
	p := &pages{d, m}
	site.Action(m.Pattern+"/quotas", page.Fresh(page.SiteAdmin), p.setQuotas)
	site.View(serverList, page.SiteAdmin, p.list)
	site.Action(serverList, page.Fresh(page.SiteAdmin), p.create)
}

func serverPage(title, problem string, body templ.Component) view.Page {
	return view.ServerPage(title, "organizations", problem, body)
}

// recent is whether a visitor has signed in recently, and where else to do so.
type recent struct {
	Fresh  bool
	SignIn string
}

func recently(v *page.Visit, here string) recent {
	return recent{v.Session.Fresh(time.Now()), page.LoginPath(page.Here(v, here))}
}

type listModel struct {
	recent
	List        []organizations.Summary
	Name, Admin string
	Waiting     int
	wrong       page.Wrong // of the form
}

func (p *pages) list(v *page.Visit) (view.Page, error) { return p.listPage(v, "") }

func (p *pages) listPage(v *page.Visit, problem string) (view.Page, error) {
	m := listModel{recent: recently(v, serverList), Name: v.Form("name"), Admin: v.Form("admin")}
	var err error
	if m.List, err = p.Organizations.List(v.Context()); err == nil {
		m.Waiting, err = p.Waiting(v)
	}
	m.wrong = page.Locate(problem, page.About{Word: "user", Field: "admin"}, page.About{Word: problem, Field: "name"})
	return serverPage("Organizations", "", listBody(m)), err
}

func (p *pages) create(v *page.Visit) (page.Answer, error) {
	o, err := p.Identity.CreateOrganization(v.Context(), strings.TrimSpace(v.Form("name")), strings.TrimSpace(v.Form("admin")))
	return page.Changed(v, err, p.Path(o.Name), p.listPage)
}

type oneModel struct {
	recent
	organizations.Summary
	Mount Mount
	// The values of a refused form, or the current ones.
	NewName, Storage, Deployments string
	// wrong is what is wrong with the forms, by their fields.
	wrong page.Wrong
}

func (m oneModel) path(more ...string) string { return m.Mount.Path(m.Name, more...) }

func (p *pages) show(v *page.Visit) (view.Page, error) { return p.onePage(v, nil) }

// onePage returns the page of an organization, with what is wrong with its forms.
func (p *pages) onePage(v *page.Visit, wrong page.Wrong) (view.Page, error) {
	found, err := p.Organizations.Get(v.Context(), p.Name(v))
	if err != nil {
		return view.Page{}, err
	}
	m := oneModel{
		wrong:  wrong,
		recent: recently(v, p.Path(found.Name)), Summary: found, Mount: p.Mount,
		NewName: v.Form("name"), Storage: storageText(found.StorageQuota), Deployments: deploymentsText(found.DeploymentQuota),
	}
	if v.Values().Has("storage") {
		m.Storage, m.Deployments = v.Form("storage"), v.Form("deployments")
	}
	return p.Page(v, "", oneBody(m))
}

// problemAt returns a function that shows the page with a problem next to a field.
func (p *pages) problemAt(field string) func(v *page.Visit, problem string) (view.Page, error) {
	return func(v *page.Visit, problem string) (view.Page, error) {
		return p.onePage(v, page.Wrong{field: problem})
	}
}

// id returns the id of the organization: of the one to which the visitor was admitted, whose name can have been taken by
// another one since, or for administrators of the server, of the one with the name.
func (p *pages) id(v *page.Visit) (string, error) {
	if v.Org.ID != "" {
		return v.Org.ID, nil
	}
	found, err := p.Identity.Named(v.Context(), p.Name(v))
	return found.ID, err
}

func (p *pages) rename(v *page.Visit) (page.Answer, error) {
	id, err := p.id(v)
	var o store.Organization
	if err == nil {
		o, err = p.Identity.RenameOrganization(v.Context(), v.Who, id, strings.TrimSpace(v.Form("name")))
	}
	return page.Changed(v, err, p.Path(o.Name), p.problemAt("name"))
}

func (p *pages) remove(v *page.Visit) (page.Answer, error) {
	id, err := p.id(v)
	if err == nil {
		_, _, err = p.Organizations.Delete(v.Context(), id, v.Form("confirm"))
	}
	return page.Changed(v, err, p.After, p.problemAt("confirm"))
}

func (p *pages) setQuotas(v *page.Visit) (page.Answer, error) {
	var q organizations.Quotas
	var err error
	field := "storage"
	if q.Storage, err = storageOf(v.Form("storage")); err == nil {
		field = "deployments"
		q.Deployments, err = deploymentsOf(v.Form("deployments"))
	}
	if err == nil {
		_, err = p.Organizations.SetQuotas(v.Context(), p.Name(v), q)
	}
	return page.Changed(v, err, p.Path(p.Name(v)), p.problemAt(field))
}

// none is the text of a limit that does not exist.
const none = "none"

func storageText(quota int64) string {
	switch quota {
	case 0:
		return ""
	case store.NoQuota:
		return none
	default:
		return settings.FormatBytes(settings.Bytes(quota))
	}
}

func storageOf(text string) (*int64, error) {
	switch text = strings.TrimSpace(text); text {
	case "":
		return new(int64), nil
	case none:
		return new(int64(store.NoQuota)), nil
	}
	n, err := settings.ParseBytes(text)
	if err != nil || n == 0 {
		return nil, fault.Invalid("Storage %q is not a size: write a whole number with a unit, such as 50g, or none, or nothing for the server's setting.", text)
	}
	return new(int64(n)), nil
}

func deploymentsText(quota int64) string {
	if quota == 0 {
		return ""
	}
	return strconv.FormatInt(quota, 10)
}

func deploymentsOf(text string) (*int64, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return new(int64), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return nil, fault.Invalid("Deployments %q is not a number from 1; write nothing for the server's setting.", text)
	}
	return &n, nil
}

// limit returns the text of a limit of storage.
func limit(bytes int64) string {
	if bytes == 0 {
		return "any amount"
	}
	return words.Bytes(bytes)
}
