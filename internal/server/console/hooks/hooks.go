// Package hooks contains the pages about webhooks and their deliveries. A stack and an organization
// have the same pages, at different places.
package hooks

import (
	"slices"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/webhooks"
)

// Mount is where the pages about the webhooks of one kind of owner are.
type Mount struct {
	// Pattern is the pattern of the list's path.
	Pattern string
	Access  page.Access
	Owner   func(v *page.Visit) webhooks.Owner
	// Path returns the path of the list, or of a page below it.
	Path func(v *page.Visit, more ...string) string
	// Page returns a page with the owner's settings around the content, under a problem.
	Page func(v *page.Visit, problem string, content templ.Component) (view.Page, error)
}

type pages struct {
	Mount
	hooks *webhooks.Service
}

// Register registers the pages about the webhooks of one kind of owner.
func Register(site *page.Site, s *webhooks.Service, at Mount) {
	p := &pages{at, s}
	site.View(at.Pattern, at.Access, p.list)
	site.Action(at.Pattern, page.Fresh(at.Access), p.create)
	site.View(at.Pattern+"/{hook}", at.Access, p.show)
	site.Action(at.Pattern+"/{hook}/{action}", at.Access, p.change)
}

// listModel is the list of an owner's webhooks. Path returns the path of a page.
type listModel struct {
	Path    func(more ...string) string
	OfStack bool
	List    []webhooks.Webhook
	Last    map[string]webhooks.Delivery // by the ids of webhooks
	Form    form
}

// form is the form of a new webhook. Wrong is the name of the field that Problem is about. A form that sends failures asks
// only for the address, and its buttons are the formats of chats.
type form struct {
	Name, URL, Format, Filters, Wrong, Problem string
	Failures                                   bool
}

// FailuresQuery is the query of a list with the form that sends failures to a chat.
const FailuresQuery = "?send=failures#new"

func (f form) problem(name string) string {
	if f.Wrong != name {
		return ""
	}
	return f.Problem
}

// about are words in the errors of the fields of a webhook.
var about = []struct{ words, field string }{
	{"name of a webhook", "name"}, {"displayName", "name"}, {"payloadUrl", "url"}, {"whose events it receives", "url"}, {"event", "filters"}, {"secret is longer", "secret"},
}

// fieldOf returns the field that an error is about, or "".
func fieldOf(problem string) string {
	for _, a := range about {
		if strings.Contains(problem, a.words) {
			return a.field
		}
	}
	return ""
}

func (p *pages) path(v *page.Visit) func(more ...string) string {
	return func(more ...string) string { return p.Path(v, more...) }
}

func (p *pages) list(v *page.Visit) (view.Page, error) {
	f := form{Format: webhooks.FormatRaw}
	if f.Failures = v.Query("send") == "failures"; f.Failures {
		f.Filters = failures()
	}
	return p.listPage(v, f, "")
}

func (p *pages) listPage(v *page.Visit, f form, problem string) (view.Page, error) {
	owner := p.Owner(v)
	list, err := p.hooks.List(v.Context(), owner)
	if err != nil {
		return view.Page{}, err
	}
	last, err := p.hooks.Last(v.Context(), list)
	if err != nil {
		return view.Page{}, err
	}
	if f.Failures && f.Name == "" {
		f.Name = unused("failures", list)
	}
	if f.Wrong = fieldOf(problem); f.Wrong != "" {
		f.Problem, problem = strings.Replace(problem, "'payloadUrl'", "The URL", 1), ""
	}
	return p.Page(v, problem, hookList(listModel{p.path(v), owner.Stack.ID != "", list, last, f}))
}

// formats are the formats of deliveries. Only a stack's webhooks have the last one.
var formats = []view.Option{
	{Value: webhooks.FormatRaw, Text: "JSON"},
	{Value: webhooks.FormatSlack, Text: "Slack"},
	{Value: webhooks.FormatTeams, Text: "Microsoft Teams"},
	{Value: webhooks.FormatDeployments, Text: "Start a deployment of another stack"},
}

func (m listModel) formats() []view.Option {
	if m.OfStack {
		return formats
	}
	return formats[:len(formats)-1]
}

func (m listModel) urlHint() string {
	if m.OfStack {
		return "An address, or project/stack to start a deployment of another stack."
	}
	return ""
}

// failuresHint says whose failures are sent.
func (m listModel) failuresHint() string {
	if m.OfStack {
		return "A message for each failed deployment, update and drift detection of the stack. Administrators of the organization can send those of all stacks."
	}
	return "A message for each failed deployment, update and drift detection of all stacks."
}

func (p *pages) create(v *page.Visit) (page.Answer, error) {
	f := form{
		Name: v.Form("name"), URL: strings.TrimSpace(v.Form("url")), Format: v.Form("format"), Filters: v.Form("filters"), Failures: v.Form("send") == "failures",
	}
	active := true
	change := webhooks.Change{Name: &f.Name, DisplayName: &f.Name, URL: &f.URL, Format: &f.Format, Active: &active, Filters: strings.Fields(f.Filters)}
	if secret := v.Form("secret"); secret != "" {
		change.Secret = &secret
	}
	_, err := p.hooks.Create(v.Context(), v.Who, p.Owner(v), change)
	return page.Changed(v, err, p.Path(v), func(v *page.Visit, problem string) (view.Page, error) { return p.listPage(v, f, problem) })
}

// failures returns the names of the events of failures, as the form takes them.
func failures() string {
	var names []string
	for _, n := range webhooks.Failures {
		names = append(names, string(n))
	}
	return strings.Join(names, " ")
}

// unused returns a name that no webhook has: the given one, or with a number.
func unused(name string, list []webhooks.Webhook) string {
	for n, tried := 2, name; ; n++ {
		if !slices.ContainsFunc(list, func(h webhooks.Webhook) bool { return h.Name == tried }) {
			return tried
		}
		tried = name + "-" + strconv.Itoa(n)
	}
}

func (p *pages) show(v *page.Visit) (view.Page, error) { return p.showPage(v, "") }

func (p *pages) showPage(v *page.Visit, problem string) (view.Page, error) {
	hook, err := p.hooks.Get(v.Context(), p.Owner(v), v.Param("hook"))
	if err != nil {
		return view.Page{}, err
	}
	list, err := p.hooks.Deliveries(v.Context(), p.Owner(v), hook.Name)
	if err != nil {
		return view.Page{}, err
	}
	return p.Page(v, problem, hookView(hookModel{p.path(v), hook, list}))
}

func (p *pages) change(v *page.Visit) (page.Answer, error) {
	ctx, owner, name := v.Context(), p.Owner(v), v.Param("hook")
	back := p.Path(v, name)
	var err error
	switch action := v.Param("action"); action {
	case "ping":
		_, err = p.hooks.Ping(ctx, owner, name)
	case "redeliver":
		_, err = p.hooks.Redeliver(ctx, owner, name, v.Form("delivery"))
	case "enable", "disable":
		active := action == "enable"
		_, err = p.hooks.Update(ctx, v.Who, owner, name, webhooks.Change{Active: &active})
	case "delete":
		err, back = p.hooks.Delete(ctx, owner, name), p.Path(v)
	default:
		err = fault.NotFound("A webhook has no action %q.", action)
	}
	if fault.KindOf(err) == fault.KindNotFound {
		return page.Answer{}, err
	}
	return page.Changed(v, err, back, p.showPage)
}

// hookModel is the page of a webhook.
type hookModel struct {
	Path func(more ...string) string
	Hook webhooks.Webhook
	List []webhooks.Delivery
}

// events says which events a webhook receives.
func (m hookModel) events() string {
	list := append(slices.Clone(m.Hook.Filters), m.Hook.Groups...)
	if len(list) == 0 {
		return "all"
	}
	return strings.Join(list, ", ")
}

// state is the mark of a webhook, and its words: that it does not deliver, or how the last delivery ended.
func (m listModel) state(h webhooks.Webhook) (mark, text string) {
	d, delivered := m.Last[h.ID]
	switch {
	case !h.Active:
		return view.MarkPaused, "disabled"
	case h.SecretLost:
		return view.MarkFailed, "the secret is lost"
	case !delivered:
		return view.MarkNever, "no delivery"
	}
	status := string(d.Status)
	text = view.StatusWord(status)
	if d.ResponseCode > 0 {
		text += ", " + strconv.FormatInt(d.ResponseCode, 10)
	}
	return view.MarkOf(status), text
}

// waits reports whether a delivery has failed and is to be repeated.
func waits(d webhooks.Delivery) bool { return d.Status == store.DeliveryPending && d.Attempts > 0 }
