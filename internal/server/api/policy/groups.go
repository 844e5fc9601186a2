package policy

import (
	"encoding/json"
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/store"
)

type summaryBody struct {
	Name         string `json:"name"`
	IsOrgDefault bool   `json:"isOrgDefault"`
	NumStacks    int64  `json:"numStacks"`
	NumAccounts  int64  `json:"numAccounts"`
	EntityType   string `json:"entityType"`
	Mode         string `json:"mode"`
	NumPacks     int64  `json:"numEnabledPolicyPacks"`
}

func summariesOf(list []policies.Summary) map[string]any {
	return map[string]any{"policyGroups": web.Each(list, func(g policies.Summary) summaryBody {
		return summaryBody{Name: g.Name, IsOrgDefault: g.IsDefault, NumStacks: g.Stacks, EntityType: g.EntityType, Mode: g.Mode, NumPacks: g.Packs}
	})}
}

type stackBody struct {
	Name    string `json:"name"`
	Project string `json:"routingProject"`
}

type packRefBody struct {
	Name         string                     `json:"name"`
	DisplayName  string                     `json:"displayName"`
	Version      int64                      `json:"version"`
	VersionTag   string                     `json:"versionTag"`
	Config       map[string]json.RawMessage `json:"config,omitempty"`
	Environments []string                   `json:"environments,omitempty"`
}

type groupBody struct {
	Name         string        `json:"name"`
	IsOrgDefault bool          `json:"isOrgDefault"`
	EntityType   string        `json:"entityType"`
	Mode         string        `json:"mode"`
	Stacks       []stackBody   `json:"stacks"`
	Packs        []packRefBody `json:"appliedPolicyPacks"`
	Accounts     []string      `json:"accounts"`
	AgentPoolID  string        `json:"agentPoolId,omitempty"`
	// EvaluationHours is not in the public API. Only groups that evaluate have it.
	EvaluationHours *int64 `json:"evaluationHours,omitempty"`
}

func (p *routes) listGroups(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	list, err := p.policies.Groups(r.Context(), o.ID)
	return web.Answer(w, r, summariesOf(list), err)
}

func (p *routes) groupsOfStack(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	list, err := p.policies.GroupsOf(r.Context(), st)
	return web.Answer(w, r, summariesOf(list), err)
}

func (p *routes) getGroup(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	g, err := p.policies.Group(r.Context(), web.Principal(r), o, web.Param(r, "group"))
	if err != nil {
		return err
	}
	b := groupBody{
		Name: g.Name, IsOrgDefault: g.IsDefault, EntityType: g.EntityType, Mode: g.Mode, AgentPoolID: g.PoolID, Accounts: []string{}, Packs: []packRefBody{},
		Stacks: web.Each(g.Members, func(st store.MemberName) stackBody { return stackBody{st.Name, st.Project} }),
	}
	if g.Mode == policies.Audit && g.EntityType == policies.Stacks {
		b.EvaluationHours = &g.EvaluationHours
	}
	for _, e := range g.Packs {
		config, err := policies.ConfigOf(e)
		if err != nil {
			return err
		}
		b.Packs = append(b.Packs, packRefBody{e.PackName, e.DisplayName, e.Number, policies.Label(e.Tag, e.Number), config, e.Environments})
	}
	return web.WriteJSON(w, r, http.StatusOK, b)
}

func (p *routes) createGroup(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var b struct {
		Name             string          `json:"name"`
		EntityType       string          `json:"entityType"`
		Mode             string          `json:"mode"`
		AgentPoolID      string          `json:"agentPoolId"`
		EvaluationHours  *int64          `json:"evaluationHours"`
		StackMatchRule   json.RawMessage `json:"stackMatchRule"`
		AccountMatchRule json.RawMessage `json:"accountMatchRule"`
	}
	if err := request.Decode(w, r, &b); err != nil {
		return err
	}
	if given(b.StackMatchRule) || given(b.AccountMatchRule) {
		return policies.ErrMatchRules
	}
	return web.Done(w, p.policies.CreateGroup(r.Context(), o, policies.NewGroup{Name: b.Name, EntityType: b.EntityType, Mode: b.Mode, PoolID: b.AgentPoolID, EvaluationHours: b.EvaluationHours}))
}

func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func (p *routes) deleteGroup(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return web.Done(w, p.policies.DeleteGroup(r.Context(), o, web.Param(r, "group")))
}

// changeBody is a change of a group. The lists replace all members or packs.
type changeBody struct {
	NewName          *string          `json:"newName"`
	AddStack         *stackBody       `json:"addStack"`
	RemoveStack      *stackBody       `json:"removeStack"`
	AddPack          *packRefBody     `json:"addPolicyPack"`
	RemovePack       *packRefBody     `json:"removePolicyPack"`
	AddAccount       *json.RawMessage `json:"addInsightsAccount"`
	AgentPoolID      *string          `json:"agentPoolId"`
	EvaluationHours  *int64           `json:"evaluationHours"`
	Stacks           []stackBody      `json:"stacks"`
	Packs            []packRefBody    `json:"policyPacks"`
	Accounts         []string         `json:"insightsAccounts"`
	StackMatchRule   json.RawMessage  `json:"stackMatchRule"`
	AccountMatchRule json.RawMessage  `json:"accountMatchRule"`
}

func (b changeBody) change() policies.Change {
	c := policies.Change{
		NewName: b.NewName, PoolID: b.AgentPoolID, EvaluationHours: b.EvaluationHours, AddStack: stackName(b.AddStack), RemoveStack: stackName(b.RemoveStack),
		AddPack: packRef(b.AddPack), RemovePack: packRef(b.RemovePack), AddAccount: b.AddAccount != nil || len(b.Accounts) > 0,
		MatchesTags: given(b.StackMatchRule) || given(b.AccountMatchRule),
	}
	if b.Stacks != nil {
		c.Stacks = web.Each(b.Stacks, func(s stackBody) policies.StackName { return *stackName(&s) })
	}
	if b.Packs != nil {
		c.Packs = web.Each(b.Packs, func(ref packRefBody) policies.PackRef { return *packRef(&ref) })
	}
	return c
}

func stackName(b *stackBody) *policies.StackName {
	if b == nil {
		return nil
	}
	return &policies.StackName{Project: b.Project, Name: b.Name}
}

func packRef(b *packRefBody) *policies.PackRef {
	if b == nil {
		return nil
	}
	return &policies.PackRef{Name: b.Name, Tag: b.VersionTag, Number: b.Version, Config: b.Config, Environments: b.Environments}
}

func (p *routes) changeGroup(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var b changeBody
	if err := request.Decode(w, r, &b); err != nil {
		return err
	}
	return p.change(w, r, o, []changeBody{b})
}

// changeGroupInBatch makes several changes together.
func (p *routes) changeGroupInBatch(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var list []changeBody
	if err := request.Decode(w, r, &list); err != nil {
		return err
	}
	return p.change(w, r, o, list)
}

func (p *routes) change(w http.ResponseWriter, r *http.Request, o store.Organization, list []changeBody) error {
	warnings, err := p.policies.ChangeGroup(r.Context(), o, web.Param(r, "group"), web.Each(list, changeBody.change))
	for _, text := range warnings {
		warn(w, text)
	}
	return web.Done(w, err)
}

type memberBody struct {
	stackBody
	Source string            `json:"source"`
	Tags   map[string]string `json:"tags"`
}

// The ways in which stacks become members. A server without rules knows only the first one.
const (
	sourceExplicit = "explicit"
	sourceRule     = "rule"
)

// page returns the number of members on a page and whether the page can have any.
func page(r *http.Request) (count int, some bool, err error) {
	const most = 500
	count = 100
	if err := request.QueryInt(r, "count", &count); err != nil {
		return 0, false, err
	}
	if count < 1 || count > most {
		return 0, false, fault.Invalid("Invalid query parameter: count must be between 1 and %d", most)
	}
	switch source := r.URL.Query().Get("source"); source {
	case "", sourceExplicit:
		return count, true, nil
	case sourceRule:
		return count, false, nil
	default:
		return 0, false, fault.Invalid("Invalid query parameter: source must be explicit or rule")
	}
}

func (p *routes) listMembers(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	count, some, err := page(r)
	if err != nil {
		return err
	}
	after, err := request.After(r)
	if err != nil {
		return err
	}
	list, next, err := p.policies.MemberPage(r.Context(), web.Principal(r), o, web.Param(r, "group"), after, count)
	if !some {
		list, next = nil, ""
	}
	body := map[string]any{"stacks": web.Each(list, func(m policies.Member) memberBody {
		return memberBody{stackBody{m.Name, m.Project}, sourceExplicit, m.Tags}
	})}
	if next != "" {
		body["continuationToken"] = request.Continuation(next)
	}
	return web.Answer(w, r, body, err)
}

// listAccounts responds with no accounts, because the server does not offer Pulumi Insights.
func (p *routes) listAccounts(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	_, _, err := page(r)
	if err == nil {
		err = p.policies.CheckGroup(r.Context(), o, web.Param(r, "group"))
	}
	return web.Answer(w, r, map[string]any{"accounts": []any{}}, err)
}

// coverage responds with the numbers of stacks to which policy packs apply.
func (p *routes) coverage(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	c, err := p.policies.Coverage(r.Context(), o.ID)
	return web.Answer(w, r, map[string]int64{
		"ProtectedStacks": c.Any.Stacks, "ProtectedStackResources": c.Any.Resources,
		"PreventativeStacks": c.Preventative.Stacks, "PreventativeStackResources": c.Preventative.Resources,
		"AuditStacks": c.Audit.Stacks, "AuditStackResources": c.Audit.Resources,
		"TotalStacks": c.All.Stacks, "TotalStackResources": c.All.Resources,
		"ProtectedAccounts": 0, "ProtectedAccountResources": 0, "TotalAccounts": 0, "TotalAccountResources": 0,
	}, err)
}
