package policies

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/words"
)

// rows is the number of rows of a list on a page.
const rows = 100

func now() time.Time { return time.Now() }

// openOf are the numbers of the open issues of a pack that a visitor sees.
type openOf struct{ Mandatory, Advisory int64 }

type packRow struct {
	policies.PackInUse
	Open openOf
}

type packsModel struct {
	place
	view.Filters
	Text        string
	List        []packRow
	First, Next string
}

func (p *pages) packs(v *page.Visit) (view.Page, error) {
	m := packsModel{place: at(v), Text: strings.TrimSpace(v.Query("q"))}
	m.Filters = view.Filters{Path: m.path(), Values: v.R.URL.Query(), Parameters: []string{"q", "after"}, Place: "after"}
	list, more, err := p.Policies.PackPage(v.Context(), v.Org.ID, m.Text, v.Query("after"), rows)
	if err != nil {
		return view.Page{}, err
	}
	names := make([]string, len(list))
	for i, each := range list {
		names[i] = each.Name
	}
	open, err := p.open(v, names...)
	if err != nil {
		return view.Page{}, err
	}
	for _, each := range list {
		m.List = append(m.List, packRow{each, open[each.Name]})
	}
	if v.Query("after") != "" {
		m.First = m.With()
	}
	if more {
		m.Next = m.With("after", list[len(list)-1].Name)
	}
	count := ""
	if m.First == "" && m.Next == "" && m.Text == "" && len(list) > 0 {
		count = words.Number(len(list))
	}
	return view.Page{Title: m.title(""), Section: section, Bar: m.bar("", count), Body: packsBody(m), Live: topics(v)}, nil
}

// changes are the notifications of what the audit log records, such as all changes of packs, groups and exceptions.
func changes(v *page.Visit) view.Topic { return view.Topic{Channel: audit.Topic, About: v.Org.ID} }

// section is the place in the navigation.
const section = "policies"

// open counts the open issues of packs in the stacks that the visitor sees, up to [results.Counted].
func (p *pages) open(v *page.Visit, packs ...string) (map[string]openOf, error) {
	list, err := p.Results.OpenOfPacks(v.Context(), v.Who, v.Org, packs)
	out := map[string]openOf{}
	for _, each := range list {
		counts := out[each.Pack]
		if each.Level == policies.Mandatory {
			counts.Mandatory = each.Count
		} else {
			counts.Advisory = each.Count
		}
		out[each.Pack] = counts
	}
	return out, err
}

// countOf is a number of open issues.
func countOf(n int64) string { return words.UpTo(n, results.Counted) }

// issuesOf returns the path of the open issues of a pack.
func (p place) issuesOf(pack, level string) string {
	return p.path("issues") + "?" + url.Values{"pack": {pack}, "level": {level}}.Encode()
}

// releases is the number of versions that the page of a pack lists.
const releases = 100

type packModel struct {
	place
	policies.PackHistory
	Open    openOf
	Newest  bool // the page shows the newest version
	Problem string
}

// version names the version that the page shows.
func (m packModel) version() string { return label(m.Version.Tag, m.Version.Number) }

// used reports whether a group enables the version that the page shows.
func (m packModel) used() bool {
	for _, u := range m.Uses {
		if u.VersionID == m.Version.ID {
			return true
		}
	}
	return false
}

func (p *pages) pack(v *page.Visit) (view.Page, error) { return p.packPage(v, v.Query("version"), "") }

func (p *pages) packPage(v *page.Visit, version, problem string) (view.Page, error) {
	m := packModel{place: at(v), Problem: problem}
	var err error
	if m.PackHistory, err = p.Policies.PackHistory(v.Context(), v.Org, v.Param("pack"), version, releases); err != nil {
		return view.Page{}, err
	}
	m.Newest = len(m.Releases) > 0 && m.Releases[0].VersionID == m.Version.ID
	open, err := p.open(v, m.Name)
	if err != nil {
		return view.Page{}, err
	}
	m.Open = open[m.Name]
	return view.Page{
		Title: m.Name + " " + m.version() + " · " + m.Org, Section: section,
		Object: &view.Object{Icon: "shield", Name: m.Name, Number: m.version(), Badges: packBadges(m), Facts: packFacts(m), Actions: packActions(m)},
		Body:   packBody(m), Live: topics(v),
	}, nil
}

func (p *pages) removePack(v *page.Visit) (page.Answer, error) {
	if err := mayChange(v); err != nil {
		return page.Answer{}, err
	}
	name, version := v.Param("pack"), v.Form("version")
	err := p.Policies.Remove(v.Context(), v.Org, name, version)
	next := at(v).path()
	if version != "" && err == nil {
		if _, left := p.Policies.PackHistory(v.Context(), v.Org, name, "", 1); left == nil {
			next = at(v).path("packs", name)
		}
	}
	return page.Changed(v, err, next, func(v *page.Visit, problem string) (view.Page, error) {
		return p.packPage(v, version, problem)
	})
}

// printed leads from the address of a pack that the pulumi CLI prints to the page.
func printed(w http.ResponseWriter, v *page.Visit) error {
	target := links.Path(v.Org.Name, "-", "policies", "packs", v.Param("pack")) + "?version=" + url.QueryEscape(v.Param("version"))
	http.Redirect(w, v.R, target, http.StatusSeeOther)
	return nil
}

// levelBadge is the kind of the badge of a level.
func levelBadge(level string) string {
	switch level {
	case policies.Mandatory, policies.Remediate:
		return "bad"
	case policies.Advisory:
		return "warn"
	default:
		return ""
	}
}

// titleOf returns the name of a policy for readers.
func titleOf(p policies.Policy) string { return cmp.Or(p.DisplayName, p.Name) }

func policyCount(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return words.Number(n) + " policies"
}
