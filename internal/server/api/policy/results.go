package policy

import (
	"encoding/csv"
	"net/http"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/store"
)

type resultRoutes struct {
	policies *policies.Service
	results  *results.Service
}

// RegisterResults adds the routes of policy issues and of compliance. Their lists contain the stacks that the caller
// sees.
func RegisterResults(rt *web.Router, p *policies.Service, found *results.Service) {
	r := &resultRoutes{p, found}
	const (
		base   = "/api/orgs/{org}/policyresults"
		issues = base + "/issues"
	)
	rt.Org(http.MethodPost, issues, web.NeedMember, r.list)
	rt.Org(http.MethodPost, issues+"/export", web.NeedMember, r.export)
	rt.Org(http.MethodPost, issues+"/filters", web.NeedMember, r.values)
	rt.Org(http.MethodGet, issues+"/{issue}", web.NeedMember, r.get)
	rt.Org(http.MethodPatch, issues+"/{issue}", web.NeedMember, r.change)
	rt.Org(http.MethodPost, base+"/compliance", web.NeedMember, r.compliance)
	rt.Org(http.MethodPost, base+"/policies", web.NeedMember, r.byPolicy)
	rt.Org(http.MethodGet, base+"/metadata", web.NeedMember, r.totals)
}

// condition is a condition of a grid's filter: either a comparison, or a combination.
type condition struct {
	Column     string      `json:"colId"`
	Type       string      `json:"type"`
	Filter     string      `json:"filter"`
	Conditions []condition `json:"conditions"`
}

// maxNesting bounds the nesting of conditions.
const maxNesting = 10

func (c condition) parse(depth int) (store.IssueCondition, error) {
	if depth > maxNesting {
		return store.IssueCondition{}, fault.Invalid("the conditions of a filter can be nested %d times", maxNesting)
	}
	if len(c.Conditions) == 0 {
		return store.IssueCondition{Column: c.Column, Op: c.Type, Value: c.Filter}, nil
	}
	list := make([]store.IssueCondition, len(c.Conditions))
	for i, each := range c.Conditions {
		var err error
		if list[i], err = each.parse(depth + 1); err != nil {
			return store.IssueCondition{}, err
		}
	}
	switch c.Type {
	case "AND":
		return store.IssueCondition{All: list}, nil
	case "OR":
		return store.IssueCondition{Any: list}, nil
	default:
		return store.IssueCondition{}, fault.Invalid("conditions are combined with AND or OR, and not with %q", c.Type)
	}
}

// rowsBody asks for rows of a grid. Clients leave out what they do not need.
type rowsBody struct {
	From   int        `json:"startRow"`
	To     *int       `json:"endRow"`
	Filter *condition `json:"filterModel"`
	Sort   []struct {
		Column string `json:"colId"`
		Order  string `json:"sort"`
	} `json:"sortModel"`
	Groups []struct {
		ID    string `json:"id"`
		Field string `json:"field"`
	} `json:"rowGroupCols"`
	Keys []*string `json:"groupKeys"`
}

// defaultRows is the number of rows for a client that does not say how many it needs.
const defaultRows = 100

func (b rowsBody) query(r *http.Request) (results.Query, error) {
	q := results.Query{From: b.From, Size: defaultRows}
	if b.To != nil {
		q.Size = max(0, min(*b.To-b.From, results.MaxPage))
	}
	if text := r.URL.Query().Get("closed"); text != "" {
		var err error
		if q.Closed, err = strconv.ParseBool(text); err != nil {
			return q, fault.Invalid("Invalid query parameter: closed must be true or false")
		}
	}
	if b.Filter != nil && len(b.Filter.Conditions) > 0 {
		where, err := b.Filter.parse(0)
		if err != nil {
			return q, err
		}
		q.Where = append(q.Where, where)
	}
	for i, key := range b.Keys {
		if i >= len(b.Groups) {
			return q, fault.Invalid("member \"groupKeys\" has more elements than \"rowGroupCols\"")
		}
		where := store.IssueCondition{Column: b.group(i), Op: "equals"}
		if key != nil {
			where.Value = *key
		}
		q.Where = append(q.Where, where)
	}
	for _, by := range b.Sort {
		if by.Order != "asc" && by.Order != "desc" {
			return q, fault.Invalid("rows are sorted asc or desc, and not %q", by.Order)
		}
		q.Sort = append(q.Sort, store.IssueSort{Column: by.Column, Desc: by.Order == "desc"})
	}
	return q, nil
}

func (b rowsBody) group(i int) string {
	if g := b.Groups[i]; g.Field != "" {
		return g.Field
	}
	return b.Groups[i].ID
}

type issueBody struct {
	ID           string        `json:"id"`
	EntityType   string        `json:"entityType"`
	Project      string        `json:"entityProject"`
	Stack        string        `json:"entityId"`
	StackVersion int64         `json:"stackVersion"`
	Pack         string        `json:"policyPack"`
	Tag          string        `json:"policyPackTag"`
	Policy       string        `json:"policyName"`
	URN          string        `json:"resourceURN"`
	Provider     string        `json:"resourceProvider"`
	Type         string        `json:"resourceType"`
	Name         string        `json:"resourceName"`
	Message      string        `json:"message,omitempty"`
	ObservedAt   time.Time     `json:"observedAt"`
	Modified     time.Time     `json:"lastModified"`
	Level        string        `json:"level"`
	Severity     string        `json:"severity"`
	Status       string        `json:"status"`
	Kind         string        `json:"kind"`
	Priority     string        `json:"priority"`
	AssignedTo   *web.UserInfo `json:"assignedTo,omitempty"`
	Group        string        `json:"policyGroupName,omitempty"`
	GroupType    string        `json:"policyGroupType,omitempty"`
	Exceptions   []string      `json:"policyExceptionNames,omitempty"`
	LastSeen     time.Time     `json:"lastSeenAt"`
	ResolvedAt   *time.Time    `json:"resolvedAt,omitempty"`
	Reopened     int64         `json:"reopenCount"`
	// Not in the public API: why an issue is ignored or was closed, and until when it is ignored.
	Reason       string     `json:"reason,omitempty"`
	IgnoredUntil *time.Time `json:"ignoredUntil,omitempty"`
}

func issueOf(i store.ListedIssue) issueBody {
	b := issueBody{
		ID: i.ID, EntityType: "stack", Project: i.Project, Stack: i.Stack, StackVersion: i.Version, Pack: i.Pack, Tag: i.Tag, Policy: i.Policy,
		URN: i.URN, Provider: providerOf(i.ResourceType), Type: i.ResourceType, Name: i.ResourceName, Message: i.Message,
		ObservedAt: i.ObservedAt, Modified: i.ModifiedAt, Level: i.Level, Severity: i.Severity, Status: string(i.Status), Kind: i.Kind,
		Priority: i.Priority, Group: i.Group, Exceptions: i.Exceptions, LastSeen: i.SeenAt, Reopened: i.Reopened, Reason: i.Reason,
		ResolvedAt: optional(i.FixedAt), IgnoredUntil: optional(i.IgnoredUntil),
	}
	if i.Group != "" {
		b.GroupType = i.Kind
	}
	if i.Login != "" {
		who := web.MemberInfo(i.Login, i.Name, "")
		b.AssignedTo = &who
	}
	return b
}

func providerOf(kind string) string {
	name, _, _ := strings.Cut(kind, ":")
	return name
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// list responds with rows, or with the groups of rows that the client asks for.
func (rs *resultRoutes) list(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body rowsBody
	if err := request.DecodeOptional(w, r, &body); err != nil {
		return err
	}
	q, err := body.query(r)
	if err != nil {
		return err
	}
	if len(body.Groups) > len(body.Keys) {
		column := body.group(len(body.Keys))
		list, err := rs.results.Values(r.Context(), web.Principal(r), o, q, column)
		return web.Answer(w, r, map[string]any{
			"policyIssues": []any{}, "rowCount": len(list),
			"groupData": web.Each(list, func(v store.IssueValue) map[string]any { return map[string]any{column: v.Value, "count": v.Count} }),
		}, err)
	}
	page, err := rs.results.Issues(r.Context(), web.Principal(r), o, q)
	return web.Answer(w, r, map[string]any{"policyIssues": web.Each(page.List, issueOf), "groupData": []any{}, "rowCount": page.Total}, err)
}

// values responds with the values of a field, for filters.
func (rs *resultRoutes) values(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body struct {
		Field string `json:"field"`
		rowsBody
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	q, err := body.query(r)
	if err != nil {
		return err
	}
	list, err := rs.results.Values(r.Context(), web.Principal(r), o, q, body.Field)
	return web.Answer(w, r, map[string]any{
		"field":  body.Field,
		"values": web.Each(list, func(v store.IssueValue) map[string]any { return map[string]any{"name": v.Value, "count": v.Count} }),
	}, err)
}

var exportHeader = []string{
	"id", "project", "stack", "policyPack", "policyPackTag", "policyName", "level", "severity", "status", "priority", "kind", "policyGroup",
	"resourceURN", "message", "observedAt", "lastModified", "assignedTo", "exceptions", "reason",
}

// export responds with all selected issues as CSV.
func (rs *resultRoutes) export(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body rowsBody
	if err := request.DecodeOptional(w, r, &body); err != nil {
		return err
	}
	q, err := body.query(r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8") // as the public API says
	err = rs.writeCSV(w, r, o, q)
	if err != nil && web.Begun(w) {
		web.Abort(r, err)
		return nil
	}
	return err
}

func (rs *resultRoutes) writeCSV(w http.ResponseWriter, r *http.Request, o store.Organization, q results.Query) error {
	q.From, q.Size = 0, results.MaxPage
	lines := [][]string{exportHeader}
	out := csv.NewWriter(w)
	for {
		page, err := rs.results.Issues(r.Context(), web.Principal(r), o, q)
		if err != nil {
			return err
		}
		for _, i := range page.List {
			lines = append(lines, exported(i))
		}
		if err := out.WriteAll(lines); err != nil {
			return err
		}
		budget.Of(r.Context()).Give(int64(q.Size) * results.RowMemory)
		if q.From += len(page.List); len(page.List) < q.Size {
			return nil
		}
		lines = lines[:0]
	}
}

func exported(i store.ListedIssue) []string {
	cells := []string{
		i.ID, i.Project, i.Stack, i.Pack, i.Tag, i.Policy, i.Level, i.Severity, string(i.Status), i.Priority, i.Kind, i.Group,
		i.URN, i.Message, i.ObservedAt.UTC().Format(time.RFC3339), i.ModifiedAt.UTC().Format(time.RFC3339), i.Login, strings.Join(i.Exceptions, " "), i.Reason,
	}
	for n, text := range cells {
		if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) { // no spreadsheet must take it for a formula
			cells[n] = "'" + text
		}
	}
	return cells
}

func (rs *resultRoutes) get(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	i, err := rs.results.Issue(r.Context(), web.Principal(r), o, web.Param(r, "issue"))
	if err != nil {
		return err
	}
	return rs.answer(w, r, o, i)
}

// answer responds with an issue, and with its policy if the version of the pack exists.
func (rs *resultRoutes) answer(w http.ResponseWriter, r *http.Request, o store.Organization, i results.Issue) error {
	body := map[string]any{"policyIssue": issueOf(i.ListedIssue)}
	_, v, _, err := rs.policies.Version(r.Context(), o, i.Pack, i.Tag)
	if err == nil {
		list, err := policies.PoliciesOf(v)
		if err != nil {
			return err
		}
		for _, p := range list {
			if p.Name == i.Policy {
				body["policy"] = p
			}
		}
	} else if fault.KindOf(err) != fault.KindNotFound {
		return err
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}

func (rs *resultRoutes) change(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body struct {
		Status     *store.IssueStatus `json:"status"`
		Priority   *string            `json:"priority"`
		AssignedTo *string            `json:"assignedTo"`
		// Not in the public API: why the issue is ignored, and how long, 0 for without an end.
		Reason  *string `json:"reason"`
		Seconds *int64  `json:"ignoredForSeconds"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	c := results.Change{Status: body.Status, Priority: body.Priority, Assignee: body.AssignedTo, Reason: body.Reason}
	if body.Seconds != nil {
		const most = 10 * 366 * 24 * 3600
		if *body.Seconds < 0 || *body.Seconds > most {
			return fault.Invalid("member \"ignoredForSeconds\" must be 0 to %d", most)
		}
		lasts := time.Duration(*body.Seconds) * time.Second
		c.Lasts = &lasts
	}
	i, err := rs.results.ChangeIssue(r.Context(), web.Principal(r), o, web.Param(r, "issue"), c)
	if err != nil {
		return err
	}
	return rs.answer(w, r, o, i)
}

func (rs *resultRoutes) compliance(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body struct {
		Entity string `json:"entity"`
		Size   int    `json:"size"`
		Token  string `json:"continuationToken"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	m, err := rs.results.Compliance(r.Context(), web.Principal(r), o, body.Entity, body.Token, body.Size)
	if err != nil {
		return err
	}
	answer := map[string]any{
		"columns": append([]string{}, m.Columns...),
		"rows": web.Each(m.Rows, func(row results.Row) map[string]any {
			return map[string]any{"entityName": row.Name, "scores": append([]int{}, row.Scores...)}
		}),
	}
	if m.Next != "" {
		answer["continuationToken"] = m.Next
	}
	return web.WriteJSON(w, r, http.StatusOK, answer)
}

// byPolicy responds with the compliance with each policy. It ignores filters, because there are few policies.
func (rs *resultRoutes) byPolicy(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body rowsBody
	if err := request.DecodeOptional(w, r, &body); err != nil {
		return err
	}
	list, err := rs.results.Policies(r.Context(), web.Principal(r), o)
	if err != nil {
		return err
	}
	total := len(list)
	from := max(0, min(body.From, total))
	if list = list[from:]; body.To != nil {
		list = list[:max(0, min(*body.To-from, len(list)))]
	}
	return web.WriteJSON(w, r, http.StatusOK, map[string]any{
		"totalCount": total,
		"policies": web.Each(list, func(p results.Policy) map[string]any {
			return map[string]any{
				"policyName": p.Name, "severity": p.Severity, "failingResources": p.Failing, "governedResources": p.Governed,
				"percentCompliant": p.Percent(), "policyPack": p.Pack, "policyGroupName": p.Group, "policyGroupType": p.Mode,
			}
		}),
	})
}

func (rs *resultRoutes) totals(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	t, err := rs.results.Totals(r.Context(), web.Principal(r), o)
	return web.Answer(w, r, map[string]any{
		"policyTotalCount": t.Policies, "policyWithIssuesCount": t.PoliciesWithIssues,
		"resourcesTotalCount": t.Resources, "resourcesWithIssuesCount": t.ResourcesWithIssues,
	}, err)
}
