// Package view contains what all pages of the console share: the frame around a page and the
// components in it. It knows neither HTTP nor the domain.
package view

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/links"
)

// Page is one page of the console.
type Page struct {
	// Title is the title in the window, without the name of the site.
	Title string
	// Mark is the state that title and icon show: "", "queued", "run", "ok" or "bad".
	Mark string
	// Section is the current item of the navigation.
	Section string
	// Bar is the head of a list page or form page, and Object that of a page about an object.
	Bar    *Bar
	Object *Object
	Layout Layout
	// Skips are links to parts of the page, which precede it for the keyboard.
	Skips []Crumb
	Body  templ.Component
	// Live lists the notifications after which an open page is rendered again.
	Live []Topic
	// LiveAt is the address whose changes an open page follows; "" means its own.
	LiveAt string
	// ChangesAt is the next time at which the page changes without a notification; zero without one.
	// An open page is rendered again then.
	ChangesAt time.Time
	// UpTo is the position of the newest entry of a list on the page; "" for other pages. When an open page is rendered
	// again, its parameter upto has this value, so that new entries do not move the others.
	UpTo string
	// Feed, if set, runs while a browser shows the page, and sends events to it.
	Feed Feed
}

// Layout is how a page's body lies in the window.
type Layout int

const (
	// Own leaves all to the body, which contains its own elements of the classes filters and page.
	Own Layout = iota
	// Work is Own, and the page fills the window: parts of the body scroll, but the window does not.
	Work
	// Gate is a page at the door: without navigation, as all pages of visitors that are not signed in.
	Gate
)

// Crumb is a link to another page.
type Crumb struct{ Text, Href string }

// Tab is one of several pages about the same object.
type Tab struct {
	Text, Href string
	Current    bool
	// Count is shown next to the text, if it is not empty.
	Count string
	// Phone shows the tab only where the window is narrow, or while it is the current one.
	Phone bool
}

// Part is one of several pages about the same object, or one of the views of a page.
type Part struct{ Name, Text string }

// Tabs returns the tabs of parts. path returns the path of a part; it gets no name for the part "".
func Tabs(parts []Part, current string, path func(name ...string) string) []Tab {
	tabs := make([]Tab, len(parts))
	for i, p := range parts {
		tabs[i] = Tab{Text: p.Text, Href: path(strings.Fields(p.Name)...), Current: p.Name == current}
	}
	return tabs
}

// ViewTabs returns the tabs of the views of a page, which its parameter view selects.
func ViewTabs(views []Part, current, page string) []Tab {
	return Tabs(views, current, func(name ...string) string { return page + "?view=" + name[0] })
}

// ServerTabs returns the tabs of the pages about the server.
func ServerTabs(current string) []Tab {
	return Tabs([]Part{{"", "State"}, {"organizations", "Organizations"}, {"users", "Users"}, {"audit", "Audit log"}}, current, func(name ...string) string {
		return links.Path(append([]string{"-", "server"}, name...)...)
	})
}

// ActivityTabs returns the tabs of the pages about the activity of an organization.
func ActivityTabs(org, current string) []Tab {
	return Tabs([]Part{{"", "Changes"}, {"calendar", "Calendar"}}, current, func(name ...string) string {
		return links.Path(append([]string{org, "-", "activity"}, name...)...)
	})
}

// Topic selects notifications: those of a channel whose payload begins with About.
type Topic struct{ Channel, About string }

// Matches reports whether a topic selects a notification. An empty payload means that
// notifications might have been lost.
func (t Topic) Matches(payload string) bool {
	return payload == "" || strings.HasPrefix(payload, t.About)
}

// Feed sends events to the browser until ctx is done.
type Feed func(ctx context.Context, send func(event string, data any) error) error

// Href returns the path of a page as the value of an attribute.
func Href(segments ...string) templ.SafeURL { return templ.SafeURL(links.Path(segments...)) }

// Shell is what the frame shows around a page.
type Shell struct {
	// Assets is the path of the embedded files.
	Assets string
	// User is the login of the user, or "" before the sign-in, and Name what the user is called.
	User, Name string
	// Org is the current organization; "" for pages outside one.
	Org string
	// Orgs are the user's organizations.
	Orgs []OrgLink
	// Starred are the stacks of the organization that the user has marked.
	Starred []StarLink
	Numbers Numbers
	// Done is what the visitor has changed just now, if it can be undone.
	Done Done
	// Theme is "light", "dark" or "" for the system's.
	Theme string
	// Density is "compact" or "" for the usual one.
	Density string
	// Zone is the time zone that the user has chosen, or "".
	Zone string
	// NoKeys turns off keys without a modifier.
	NoKeys bool
	// Member shows the organization's lists, and Admin its pages for administrators.
	Member, Admin bool
	// SiteAdmin shows the pages of the server.
	SiteAdmin bool
	// Restored is the time of the backup from which the server was restored while the organization waits for its
	// release, and zero otherwise.
	Restored time.Time
	// Insecure warns that the connection is not encrypted.
	Insecure bool
	// Plain, unless it is "", warns administrators of the server that it accepts connections without TLS
	// on this address.
	Plain string
}

// Numbers are the numbers of the navigation, as texts; "" shows none.
type Numbers struct {
	Home        string // of what needs the user
	Stacks      string
	Deployments string // running and queued
}

// StarLink is a stack in the navigation, with the mark of its state and the word for it.
type StarLink struct{ Project, Name, Href, Mark, Word string }

// OrgLink is an organization to which a user can switch, with what its navigation shows the user.
type OrgLink struct {
	Name   string
	Member bool
}

// Switch returns the path of the organization's page of a section, or of its home if the user sees no such page there.
func (o OrgLink) Switch(section string) string {
	for _, s := range Sections(o.Member) {
		if s.Name == section {
			return s.Path(o.Name)
		}
	}
	return links.Path(o.Name)
}

// Section is an item of the navigation.
type Section struct {
	Name, Text, Icon, Key string
	audience              audience
}

// audience is who sees a section.
type audience int

const (
	everyone audience = iota
	members           // who may see the organization's lists
)

// Sections returns the items of the navigation that a user sees, in their order. member reports
// whether the user may see the organization's lists.
func Sections(member bool) []Section {
	var out []Section
	for _, s := range sections {
		if s.audience == everyone || member {
			out = append(out, s)
		}
	}
	return out
}

var sections = []Section{
	{"home", "Home", "home", "h", everyone},
	{"activity", "Activity", "activity", "a", everyone},
	{"stacks", "Stacks", "stacks", "s", everyone},
	{"deployments", "Deployments", "deploys", "d", everyone},
	{"environments", "Environments", "lock", "e", members},
	{"policies", "Policies", "shield", "y", members},
	{"pools", "Agents", "agents", "p", members},
	{"settings", "Settings", "settings", "o", members},
}

// Path returns the path of a section's page in an organization.
func (s Section) Path(org string) string {
	if s.Name == "home" {
		return links.Path(org)
	}
	return links.Path(org, "-", s.Name)
}

// phoneSections returns the sections of a user that a phone shows at the bottom, and those in its menu More.
func phoneSections(s Shell) (first, more []Section) {
	if s.Org == "" {
		return nil, nil
	}
	all := Sections(s.Member)
	at := slices.IndexFunc(all, func(s Section) bool { return s.Name == "deployments" }) + 1
	return all[:at], all[at:]
}

// inMore reports whether a page belongs to the menu More of phones.
func inMore(section string, first []Section) bool {
	return section != "" && !slices.ContainsFunc(first, func(s Section) bool { return s.Name == section })
}
