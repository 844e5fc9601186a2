package policies

import (
	"cmp"
	"strings"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

type evaluationsModel struct {
	place
	view.Filters
	List        []store.ShownEvaluation
	Groups      []string // that evaluate
	Stacks      []string // suggestions
	First, Next string
	Problem     string
	Form        evaluateForm
}

// evaluateForm is the form that requests evaluations, with what is wrong with it.
type evaluateForm struct{ Stack, Group, StackProblem, GroupProblem string }

func (p *pages) evaluations(v *page.Visit) (view.Page, error) {
	return p.evaluationsPage(v, evaluateForm{Stack: v.Query("stack"), Group: v.Query("group")})
}

func (p *pages) evaluationsPage(v *page.Visit, f evaluateForm) (view.Page, error) {
	m := evaluationsModel{place: at(v), Form: f}
	m.Filters = view.Filters{Path: m.path("evaluations"), Values: v.R.URL.Query(), Parameters: []string{"state", "group", "stack", "after"}, Place: "after"}
	if err := p.evaluationChoices(v, &m); err != nil {
		return view.Page{}, err
	}
	q := evaluations.Query{Stack: v.Query("stack"), Group: v.Query("group"), State: evaluations.State(v.Query("state")), After: v.Query("after")}
	found, err := p.Evaluations.Page(v.Context(), v.Who, v.Org.ID, q)
	if problem, ok := page.Correctable(err); ok {
		m.Problem = problem
	} else if err != nil {
		return view.Page{}, err
	}
	m.List = found.Evaluations
	if q.After != "" {
		m.First = m.With()
	}
	if found.Next != "" {
		m.Next = m.With("after", found.Next)
	}
	count := ""
	if m.First == "" && m.Next == "" && len(m.List) > 0 {
		count = words.Number(len(m.List))
	}
	bar := m.bar("evaluations", count)
	bar.Actions = evaluationsActions(m)
	return view.Page{Title: m.title("evaluations"), Section: section, Bar: bar, Body: evaluationsBody(m), Live: topics(v)}, nil
}

// evaluationChoices reads the groups and the stacks that the page offers.
func (p *pages) evaluationChoices(v *page.Visit, m *evaluationsModel) (err error) {
	list, err := p.Policies.Groups(v.Context(), v.Org.ID)
	if err != nil {
		return err
	}
	for _, g := range list {
		if g.Mode == policies.Audit && g.EntityType == policies.Stacks {
			m.Groups = append(m.Groups, g.Name)
		}
	}
	m.Stacks, err = p.Stacks.Names(v.Context(), v.Who, v.Org.ID, page.Suggested)
	return err
}

func (m evaluationsModel) state(text string, value evaluations.State) view.MenuItem {
	return view.MenuItem{Text: text, Href: m.With("state", string(value)), Current: m.Values.Get("state") == string(value)}
}

func (m evaluationsModel) groupOptions() []view.Option {
	list := []view.Option{{Text: "any"}}
	for _, name := range m.Groups {
		list = append(list, view.Option{Value: name, Text: name})
	}
	return list
}

// filtered reports whether the list shows only a part of the evaluations.
func (m evaluationsModel) filtered() bool {
	return m.Values.Get("state") != "" || m.Values.Get("group") != "" || m.Values.Get("stack") != "" || m.First != ""
}

// causes say why an evaluation was queued.
var causes = map[store.EvaluationCause]string{
	store.CauseUpdate: "update", store.CauseGroup: "change of group", store.CauseRequest: "request", store.CauseSchedule: "schedule",
}

// stateOf is the state of an evaluation, as of a deployment.
func stateOf(e store.ShownEvaluation) string { return waiting.State(e.Job()) }

// resultOf says in a few words how an evaluation does, or what it found.
func resultOf(e store.ShownEvaluation) string {
	switch state := stateOf(e); state {
	case waiting.StateQueued:
		return "waits for an agent"
	case waiting.StateClaimed, waiting.StateRunning:
		return "runs on " + cmp.Or(e.AgentHostname, "an agent")
	case waiting.StateSucceeded:
		if e.Violations == 0 {
			return "no violation"
		}
		return words.Count(e.Violations, "violation")
	default:
		return cmp.Or(e.Message, view.StatusWord(state))
	}
}

// evaluate queues evaluations of a stack or a group.
func (p *pages) evaluate(v *page.Visit) (page.Answer, error) {
	f := evaluateForm{Stack: strings.TrimSpace(v.Form("stack")), Group: v.Form("group")}
	back := at(v).path("evaluations")
	if f.Group != "" {
		n, err := p.Evaluations.EvaluateGroup(v.Context(), v.Who, v.Org.ID, f.Group)
		back += "?" + query("group", f.Group)
		return p.queued(v, n, err, back, func(problem string) evaluateForm { f.GroupProblem = problem; return f })
	}
	n, err := p.evaluateStack(v, f.Stack)
	return p.queued(v, n, err, back+"?"+query("stack", f.Stack), func(problem string) evaluateForm { f.StackProblem = problem; return f })
}

func (p *pages) evaluateStack(v *page.Visit, text string) (int64, error) {
	project, name, both := strings.Cut(text, "/")
	if !both {
		return 0, fault.Invalid("write the stack as project/stack")
	}
	who, st, err := p.Stacks.Find(v.Context(), v.Who, identity.Operate, v.Org.Name, project, name)
	if err != nil {
		return 0, err
	}
	return p.Evaluations.EvaluateStack(v.Context(), who, st)
}

// nothingQueued says why no evaluation was added.
const nothingQueued = "Nothing was queued: evaluations need a stack with a state and an audit group with packs, and at most one waits for each stack and group."

// queued answers after n evaluations were queued.
func (p *pages) queued(v *page.Visit, n int64, err error, next string, wrong func(problem string) evaluateForm) (page.Answer, error) {
	if err == nil && n == 0 {
		shown, err := p.evaluationsPage(v, wrong(nothingQueued))
		return page.Again(shown), err
	}
	answer, err := page.Changed(v, err, next, func(v *page.Visit, problem string) (view.Page, error) { return p.evaluationsPage(v, wrong(problem)) })
	return answer.Said("Queued " + words.Count(n, "evaluation") + "."), err
}

// topics are the notifications that change what packs found.
func topics(v *page.Visit) []view.Topic {
	return []view.Topic{
		{Channel: stacks.Topic, About: v.Org.ID + "/"},
		{Channel: evaluations.Topic, About: evaluations.About(v.Org.ID, "")},
		{Channel: audit.Topic, About: v.Org.ID},
	}
}
