package estate

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// bulkAction is what can be done with the selected stacks: a deployment of each, or to pause or resume each.
type bulkAction struct {
	name, text, icon string
	verb             string             // of the dialog
	done             string             // its participle
	op               workflow.Operation // "" to pause and to resume
	paused           bool
}

// tagging is the name of the action that sets or removes a tag.
const tagging = "tag"

var bulkActions = []bulkAction{
	{name: "preview", text: "Preview", icon: "eye", verb: "Preview", op: workflow.OperationPreview},
	{name: "update", text: "Deploy", icon: "deploys", verb: "Update", op: workflow.OperationUpdate},
	{name: "detect-drift", text: "Detect drift", icon: "s-drift", verb: "Detect drift of", op: workflow.OperationDetectDrift},
	{name: tagging, text: "Tag", icon: "tag", verb: "Tag", done: "Changed"},
	{name: "pause", text: "Pause", icon: "pause", verb: "Pause", done: "Paused", paused: true},
	{name: "resume", text: "Resume", icon: "play", verb: "Resume", done: "Resumed"},
}

func bulkActionOf(name string) (bulkAction, error) {
	for _, a := range bulkActions {
		if a.name == name {
			return a, nil
		}
	}
	return bulkAction{}, fault.Invalid("%q cannot be done with several stacks", name)
}

// object names a number of stacks after the verb.
func (a bulkAction) object(n int) string { return a.verb + " " + words.Count(n, "stack") }

// bulk is the question before something is done with stacks, or what was not done.
type bulk struct {
	bulkAction
	Org, Batch, Back       string
	Starts, Waits, Refused []deployments.Target
	Done                   bool
	Result                 string // address of what was started
	Tag                    tagForm
}

func (b *bulk) sort(list []deployments.Target) {
	for _, t := range list {
		switch {
		case t.Refused != nil:
			b.Refused = append(b.Refused, t)
		case t.Waits != "":
			b.Waits = append(b.Waits, t)
		default:
			b.Starts = append(b.Starts, t)
		}
	}
}

// targetGroup is a group of the stacks.
type targetGroup int

const (
	groupStarts targetGroup = iota
	groupWaits
	groupCannot
	groupStarted
	groupFailed
)

// groupTitle says what happens with the stacks of a group.
func (b *bulk) groupTitle(g targetGroup) string {
	if b.op == "" {
		return map[targetGroup]string{groupStarts: "Can be " + strings.ToLower(b.done), groupCannot: "Cannot", groupStarted: b.done, groupFailed: "Not " + strings.ToLower(b.done)}[g]
	}
	return map[targetGroup]string{groupStarts: "Start now", groupWaits: "Wait", groupCannot: "Cannot start", groupStarted: "Started", groupFailed: "Not started"}[g]
}

// shownTargets is the number of stacks up to which those that start are listed at once.
const shownTargets = 8

// note says what happens with each stack.
func (b *bulk) note() string {
	switch b.name {
	case "pause":
		return "Queued deployments of the stacks wait until you resume them. Running ones continue."
	case tagging:
		return "A value that a stack has already is replaced. All who see a stack see its tags."
	case "resume":
		return "Queued deployments of the stacks start when agents are free."
	default:
		return "Each stack is deployed with its own settings: its branch, pool and options."
	}
}

// all returns the stacks with which it is done.
func (b *bulk) all() []deployments.Target { return append(slices.Clip(b.Starts), b.Waits...) }

func targetName(t deployments.Target) string {
	if t.Stack.ID == "" {
		return "A stack"
	}
	return t.Stack.Project + "/" + t.Stack.Name
}

func targetWhy(t deployments.Target) string {
	if t.Refused != nil {
		return page.Sentence(t.Refused)
	}
	return t.Waits
}

// number is the number of stacks with which it is done.
func (b *bulk) number() int { return len(b.Starts) + len(b.Waits) }

func (b *bulk) title() string {
	if b.Done {
		return b.object(b.number()) + " of " + words.Number(b.number()+len(b.Refused))
	}
	return b.object(b.number() + len(b.Refused))
}

// bulk asks before it does something with the selected stacks. The answer contains the stacks with which it can be done.
func (p *pages) bulk(v *page.Visit) (page.Answer, error) {
	a, err := bulkActionOf(v.Form("do"))
	if err != nil {
		return page.Answer{}, err
	}
	ids := v.Values()["stack"]
	b := &bulk{bulkAction: a, Org: v.Org.Name, Batch: v.Form("batch"), Back: page.SafeNext(v.Form("back"))}
	if v.Form("confirmed") != "" {
		return p.doBulk(v, b, ids)
	}
	b.Batch, b.Back = identity.NewID(), page.Back(v, listPath(b.Org, ""))
	var list []deployments.Target
	switch {
	case a.op != "":
		list, err = p.Deployments.BatchProspects(v.Context(), v.Who, v.Org.ID, ids, a.op)
	case a.name == tagging:
		list, err = p.taggable(v, ids)
	default:
		list, err = p.Deployments.PauseProspects(v.Context(), v.Who, v.Org.ID, ids, a.paused)
	}
	b.sort(list)
	return page.Once(b.page()), err
}

func (p *pages) doBulk(v *page.Visit, b *bulk, ids []string) (page.Answer, error) {
	var list []deployments.Target
	var err error
	answer := page.See(b.Back)
	switch {
	case b.op != "":
		b.Result = links.Path(b.Org, "-", "deployments") + "?" + url.Values{"batch": {b.Batch}}.Encode()
		answer = page.See(b.Result)
		list, err = p.Deployments.CreateBatch(v.Context(), v.Who, v.Org.ID, ids, b.op, b.Batch)
	case b.name == tagging:
		b.Tag = tagFormOf(v)
		if b.Tag.Problem = b.Tag.wrong(); b.Tag.Problem != "" {
			list, err = p.taggable(v, ids)
			b.sort(list)
			return page.Again(b.page()), err
		}
		var undo []string
		list, undo, err = p.tag(v, ids, b)
		answer = answer.Undo(b.Tag.did(len(ids)), links.Path(b.Org, "-", "stacks", "bulk"), undo...)
	default:
		list, err = p.Deployments.PauseBatch(v.Context(), v.Who, v.Org.ID, ids, b.paused)
		undo := []string{"do", map[bool]string{true: "resume", false: "pause"}[b.paused], "confirmed", "1", "back", b.Back}
		for _, id := range ids {
			undo = append(undo, "stack", id)
		}
		answer = answer.Undo(b.done+" "+words.Count(len(ids), "stack")+".", links.Path(b.Org, "-", "stacks", "bulk"), undo...)
	}
	if b.Done = true; err != nil {
		return page.Answer{}, fmt.Errorf("with some of the stacks: %w", err)
	}
	if b.sort(list); len(b.Refused) == 0 {
		return answer, nil
	}
	return page.Once(b.page()), nil
}

func (b *bulk) page() view.Page {
	return view.Page{Title: b.title(), Section: "stacks", Bar: &view.Bar{Title: "Stacks"}, Body: bulkBody(b)}
}

// bulkAgain leads from the address of the form to the list, for visitors who load it again.
func bulkAgain(w http.ResponseWriter, v *page.Visit) error {
	http.Redirect(w, v.R, listPath(v.Org.Name, ""), http.StatusSeeOther)
	return nil
}
