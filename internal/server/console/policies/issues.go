package policies

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// The values of the parameter state. The list without it shows open issues.
const (
	stateClosed = "closed"
	stateAll    = "all"
)

type issuesModel struct {
	place
	view.Filters
	Text        string
	List        []store.ListedIssue
	Stacks      []string // suggestions
	Packs       []view.Option
	First, Next string
	Problem     string
}

func (p *pages) issues(v *page.Visit) (view.Page, error) {
	m := issuesModel{place: at(v), Text: strings.TrimSpace(v.Query("q"))}
	m.Filters = view.Filters{
		Path: m.path("issues"), Values: v.R.URL.Query(), Parameters: []string{"q", "state", "level", "pack", "stack", "mine", "after"}, Place: "after",
	}
	q, err := p.issueQuery(v, m)
	if err != nil {
		return view.Page{}, err
	}
	found, err := p.Results.IssuePage(v.Context(), v.Who, v.Org, q, v.Query("after"))
	if err != nil {
		if problem, ok := page.Correctable(err); ok {
			m.Problem = problem
			return m.page(), nil
		}
		return view.Page{}, err
	}
	m.List = found.List
	if err := p.issueChoices(v, &m); err != nil {
		return view.Page{}, err
	}
	if v.Query("after") != "" {
		m.First = m.With()
	}
	if found.Next != "" {
		m.Next = m.With("after", found.Next)
	}
	return m.page(topics(v)...), nil
}

// issueChoices reads the packs and the stacks by which issues can be selected.
func (p *pages) issueChoices(v *page.Visit, m *issuesModel) error {
	packs, err := p.Policies.Names(v.Context(), v.Org.ID)
	if err != nil {
		return err
	}
	if now := m.Values.Get("pack"); now != "" && !slices.Contains(packs, now) {
		packs = append(packs, now) // a pack that was removed
	}
	m.Packs = []view.Option{{Text: "any"}}
	for _, name := range packs {
		m.Packs = append(m.Packs, view.Option{Value: name, Text: name})
	}
	m.Stacks, err = p.Stacks.Names(v.Context(), v.Who, v.Org.ID, page.Suggested)
	return err
}

func (m issuesModel) page(live ...view.Topic) view.Page {
	count := ""
	if m.First == "" && m.Next == "" && len(m.List) > 0 {
		count = words.Number(len(m.List))
	}
	return view.Page{Title: m.title("issues"), Section: section, Bar: m.bar("issues", count), Body: issuesBody(m), Live: live}
}

// issueQuery returns what the parameters select.
func (p *pages) issueQuery(v *page.Visit, m issuesModel) (results.Query, error) {
	q := results.Query{Size: rows, Closed: m.Values.Get("state") == stateClosed, All: m.Values.Get("state") == stateAll}
	add := func(column, value string) {
		if value != "" {
			q.Where = append(q.Where, store.IssueCondition{Column: column, Op: "equals", Value: value})
		}
	}
	add("level", m.Values.Get("level"))
	add("policyPack", m.Values.Get("pack"))
	if project, name, both := strings.Cut(m.Values.Get("stack"), "/"); both {
		_, st, err := p.Stacks.Find(v.Context(), v.Who, identity.StateRead, v.Org.Name, project, name)
		if err != nil && !fault.Refuses(err) {
			return q, err
		}
		q.StackID = st.ID
		add("entityProject", project)
		add("entityId", name)
	} else {
		add("entityProject", project)
	}
	if m.Values.Get("mine") != "" {
		add("assignedTo", v.Who.User.Login)
	}
	if m.Text != "" {
		var any []store.IssueCondition
		for _, column := range []string{"message", "policyName", "resourceURN"} {
			any = append(any, store.IssueCondition{Column: column, Op: "contains", Value: m.Text})
		}
		q.Where = append(q.Where, store.IssueCondition{Any: any})
	}
	return q, nil
}

// filtered reports whether the list shows only a part of the open issues.
func (m issuesModel) filtered() bool {
	return slices.ContainsFunc(m.Parameters, func(name string) bool { return m.Values.Get(name) != "" })
}

func (m issuesModel) state(text, value string) view.MenuItem {
	return view.MenuItem{Text: text, Href: m.With("state", value), Current: m.Values.Get("state") == value}
}

func (m issuesModel) levelMenu() (string, []view.MenuItem) {
	return m.Menu("level", []view.Option{{Text: "any"}, {Value: policies.Mandatory, Text: policies.Mandatory}, {Value: policies.Advisory, Text: policies.Advisory}, {Value: policies.Remediate, Text: policies.Remediate}})
}

func (m issuesModel) packMenu() (string, []view.MenuItem) { return m.Menu("pack", m.Packs) }

// issueMark is the mark of an issue.
func issueMark(i store.PolicyIssue) string {
	switch {
	case i.Status == store.IssueFixed:
		return view.MarkOK
	case i.Status == store.IssueIgnored || i.Status == store.IssueByDesign:
		return view.MarkSkipped
	case i.Level == policies.Mandatory:
		return view.MarkFailed
	default:
		return view.MarkWarn
	}
}

var statusWords = map[store.IssueStatus]string{
	store.IssueOpen: "open", store.IssueInProgress: "in progress", store.IssueIgnored: "ignored", store.IssueByDesign: "permitted by an exception", store.IssueFixed: "fixed",
}

func statusWord(s store.IssueStatus) string { return cmp.Or(statusWords[s], string(s)) }

// oneLine is the first line of a message.
func oneLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// issueForm is the form about an issue, with what is wrong with it.
type issueForm struct {
	Status, Reason, Lasts, Assignee, Priority string
	page.Wrong
}

type issueModel struct {
	place
	results.Issue
	Policy   policies.Policy // zero if the version does not exist any more
	MayWrite bool
	Members  []store.Member
	Form     issueForm
}

func (p *pages) issue(v *page.Visit) (view.Page, error) { return p.issuePage(v, nil) }

func (p *pages) issuePage(v *page.Visit, f *issueForm) (view.Page, error) {
	m := issueModel{place: at(v)}
	var err error
	if m.Issue, err = p.Results.Issue(v.Context(), v.Who, v.Org, v.Param("issue")); err != nil {
		return view.Page{}, err
	}
	m.Form = issueForm{Status: string(m.Status), Reason: m.Reason, Assignee: m.Login, Priority: m.Priority}
	if m.Status == store.IssueIgnored {
		m.Form.Lasts = keepEnd
	}
	if f != nil {
		m.Form = *f
	}
	if _, _, err := p.Stacks.Find(v.Context(), v.Who, identity.Write, v.Org.Name, m.Project, m.Stack); err == nil {
		m.MayWrite = true
		if m.Members, _, err = p.Identity.Members(v.Context(), v.Org.ID, "", "", candidates); err != nil {
			return view.Page{}, err
		}
	} else if !fault.Refuses(err) {
		return view.Page{}, err
	}
	h, err := p.Policies.PackHistory(v.Context(), v.Org, m.Pack, m.Tag, 1)
	if err != nil && !fault.Refuses(err) {
		return view.Page{}, err
	}
	for _, each := range h.Policies {
		if each.Name == m.PolicyIssue.Policy {
			m.Policy = each
		}
	}
	return view.Page{
		Title: m.PolicyIssue.Policy + " · " + m.Project + "/" + m.Stack, Section: section,
		Object: &view.Object{Mark: issueMark(m.PolicyIssue), Word: statusWord(m.Status), Project: m.Pack, Name: m.PolicyIssue.Policy, Badges: issueBadges(m), Facts: issueFacts(m), Actions: issueActions(m)},
		Body:   issueBody(m), Live: topics(v),
	}, nil
}

// candidates is the number of members that a field suggests.
const candidates = 200

// keepEnd leaves the end of an ignored issue as it is.
const keepEnd = "keep"

// ends are the times for which an issue can be ignored, in days.
func (m issueModel) ends() []view.Option {
	list := []view.Option{{Value: "7", Text: "7 days"}, {Value: "30", Text: "30 days"}, {Value: "90", Text: "90 days"}, {Value: "365", Text: "1 year"}, {Value: "0", Text: "without an end"}}
	if m.Status != store.IssueIgnored {
		return list
	}
	until := "as now: without an end"
	if !m.IgnoredUntil.IsZero() {
		until = "as now: until " + m.IgnoredUntil.UTC().Format("2 Jan 2006")
	}
	return append([]view.Option{{Value: keepEnd, Text: until}}, list...)
}

// seenIn is the path of the update that reported the issue last, or "".
func (m issueModel) seenIn() string {
	if m.Kind != policies.Preventative || m.Version == 0 {
		return ""
	}
	return page.StackPath(m.StackRow, "updates", strconv.FormatInt(m.Version, 10))
}

// except is the path of the form for an exception that covers the issue.
func (m issueModel) except() string {
	return m.path("exceptions", "new") + "?" + url.Values{"pack": {m.Pack}, "policy": {m.PolicyIssue.Policy}, "target": {m.URN}}.Encode()
}

func (p *pages) changeIssue(v *page.Visit) (page.Answer, error) {
	f := issueForm{Status: v.Form("status"), Reason: strings.TrimSpace(v.Form("reason")), Lasts: v.Form("lasts"), Assignee: strings.TrimSpace(v.Form("assignee")), Priority: v.Form("priority")}
	c := results.Change{Assignee: &f.Assignee}
	if f.Priority != "" {
		c.Priority = &f.Priority
	}
	if f.Status != "" {
		status := store.IssueStatus(f.Status)
		c.Status = &status
	}
	err := error(nil)
	if f.Status == string(store.IssueIgnored) {
		c.Reason = &f.Reason
		if days, bad := strconv.Atoi(f.Lasts); bad == nil && days >= 0 && days <= 3650 {
			lasts := time.Duration(days) * 24 * time.Hour
			c.Lasts = &lasts
		}
		if f.Reason == "" {
			err = fault.Invalid("an ignored issue needs a reason, which others read")
		}
	}
	id := v.Param("issue")
	if err == nil {
		_, err = p.Results.ChangeIssue(v.Context(), v.Who, v.Org, id, c)
	}
	return page.Changed(v, err, links.Path(v.Org.Name, "-", "policies", "issues", id), func(v *page.Visit, problem string) (view.Page, error) {
		f.Wrong = page.Locate(problem, page.About{Word: "reason", Field: "reason"}, page.About{Word: "member", Field: "assignee"}, page.About{Word: "priority", Field: "priority"})
		return p.issuePage(v, &f)
	})
}
