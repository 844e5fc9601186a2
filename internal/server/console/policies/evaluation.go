package policies

import (
	"strconv"
	"time"

	"workflowagent/internal/server/console/joblog"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

type evaluationModel struct {
	place
	store.ShownEvaluation
	St      store.Stack
	Log     joblog.Model
	Operate bool
}

func evaluationPath(st store.Stack, id string) string { return page.StackPath(st, "evaluations", id) }

// evaluation is the page of one evaluation, with its log.
func (p *pages) evaluation(v *page.Visit) (view.Page, error) {
	id := v.Param("evaluation")
	m := evaluationModel{place: at(v), St: v.Stack, Operate: v.Who.Can(v.Stack, identity.Operate)}
	var err error
	if m.ShownEvaluation, err = p.Evaluations.Get(v.Context(), v.Stack, id); err != nil {
		return view.Page{}, err
	}
	if m.Log, err = joblog.Load(v.Context(), p.Evaluations.Logs(), m.Job(), evaluationPath(v.Stack, id)+"/log", 0, time.Now()); err != nil {
		return view.Page{}, err
	}
	m.Log.Only = true
	out := view.Page{
		Title: "Policy evaluation of " + v.Stack.Project + "/" + v.Stack.Name, Section: section, Layout: view.Work, Skips: []view.Crumb{{Text: "Skip to the log", Href: "#log"}},
		Object: &view.Object{
			Mark: view.MarkOf(stateOf(m.ShownEvaluation)), Word: view.StatusWord(stateOf(m.ShownEvaluation)), Project: v.Stack.Project, Name: v.Stack.Name, Number: "evaluation",
			Href: page.StackPath(v.Stack), Facts: evaluationFacts(m), Actions: evaluationActions(m),
		},
		Body: evaluationBody(m),
	}
	if !m.Status.Final() {
		out.Live = []view.Topic{{Channel: evaluations.Topic, About: evaluations.About(v.Org.ID, id)}}
		out.Feed = joblog.Feed(p.Evaluations, v.Stack, id)
	}
	return out, nil
}

// issues is the path of the open issues that evaluations of the stack report.
func (m evaluationModel) issues() string {
	return m.path("issues") + "?" + query("stack", m.St.Project+"/"+m.St.Name)
}

// update is the path of the update whose state the evaluation evaluates, or "".
func (m evaluationModel) update() string {
	if m.Version == 0 {
		return ""
	}
	return page.StackPath(m.St, "updates", strconv.FormatInt(m.Version, 10))
}

// packs names the packs of the evaluation.
func (m evaluationModel) packs() string {
	return namesOf(m.Packs, func(p store.EvaluatedPack) string { return p.Name + " " + policies.Label(p.Tag, p.Number) })
}

// problem is why the evaluation has failed, or "".
func (m evaluationModel) problem() string {
	if m.Status == workflow.StatusFailed {
		return m.Message
	}
	return ""
}

func (p *pages) cancelEvaluation(v *page.Visit) (page.Answer, error) {
	id := v.Param("evaluation")
	return page.See(evaluationPath(v.Stack, id)), p.Evaluations.Cancel(v.Context(), v.Stack, id, v.Who.Name())
}
