package runs

import (
	"net/url"
	"slices"

	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// filters are the parameters of a list's URL.
type filters struct{ view.Filters }

func newFilters(path string, values url.Values, parameters []string) filters {
	return filters{view.Filters{Path: path, Values: values, Parameters: parameters, Place: "after"}}
}

// filtered reports whether the list shows only a part of the runs, apart from their age.
func (f filters) filtered() bool {
	return slices.ContainsFunc(f.Parameters, func(name string) bool { return name != "since" && f.Values.Get(name) != "" })
}

// state is a state of deployments, or several, that the list can be filtered by.
type state struct{ value, text, mark string }

// states are the values of the parameter status. Those with marks have chips.
var states = []state{
	{deployments.StateStarted, "Running", view.MarkRunning},
	{waiting.StateQueued, "Queued", view.MarkQueued},
	{deployments.StateBad, "Failed", view.MarkFailed},
	{waiting.StateSucceeded, "succeeded", ""},
	{waiting.StateDrift, "drift found", ""},
	{waiting.StateCancelled, "cancelled", ""},
	{waiting.StateSkipped, "skipped", ""},
	{waiting.StateLost, "lost", ""},
	{waiting.StateFailed, "failed, not lost", ""},
}

// chip is a filter, with the number of what it finds, or "".
type chip struct {
	Text, Mark, Count, Href string
	Current                 bool
}

func (l *list) chips() []chip {
	at := l.Values.Get("status")
	list := []chip{{Text: "All", Href: l.With("status", "", "mine", ""), Current: at == "" && !l.Query.Mine}}
	counts := map[string]string{
		deployments.StateStarted: words.UpTo(l.Queues.Running, deployments.CountLimit), waiting.StateQueued: words.UpTo(l.Queues.Queued, deployments.CountLimit),
	}
	if l.Counted {
		counts[deployments.StateBad] = words.UpTo(l.Bad, deployments.BadLimit)
	}
	for _, s := range states {
		if s.mark != "" && (counts[s.value] != "0" || at == s.value) {
			list = append(list, chip{Text: s.text, Mark: s.mark, Count: counts[s.value], Href: l.With("status", s.value), Current: at == s.value})
		}
	}
	if l.Query.Batch != "" {
		list = append(list, chip{Text: "Started together", Href: l.With("batch", ""), Current: true})
	}
	return append(list, chip{Text: "Mine", Href: l.With("mine", "on"), Current: l.Query.Mine})
}

func (l *list) poolMenu() (string, []view.MenuItem) {
	text, list := l.Menu("pool", append([]view.Option{{Text: "any"}}, l.Pools...))
	return "Pool: " + text, list
}

func (l *list) periodMenu() (string, []view.MenuItem) {
	var options []view.Option
	for _, p := range periods {
		options = append(options, view.Option{Value: p.value, Text: p.text})
	}
	options[0].Value = ""
	return l.Menu("since", options)
}

// stackText says which stacks the list shows.
func (l *list) stackText() string {
	if text := l.Values.Get("stack"); text != "" {
		return text
	}
	return "Stack: any"
}

// stacks are the stacks on the page and their projects, as suggestions.
func (l *list) stacks() []string {
	var projects, stacks []string
	for _, g := range l.Groups {
		for _, line := range g.Lines {
			projects, stacks = append(projects, line.Project), append(stacks, line.Project+"/"+line.Stack)
		}
	}
	return append(distinct(projects), distinct(stacks)...)
}

func distinct(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// moreText names the filters of the menu with the rest of them.
func (l *list) moreText() string {
	for _, name := range []string{"status", "operation", "initiator", "who"} {
		value := l.Values.Get(name)
		if name == "status" && slices.ContainsFunc(states, func(s state) bool { return s.value == value && s.mark != "" }) {
			continue
		}
		if value != "" {
			return view.StatusWord(value)
		}
	}
	return "More"
}

func statusOptions() []view.Option {
	list := []view.Option{{Text: "Any status"}}
	for _, s := range states {
		list = append(list, view.Option{Value: s.value, Text: s.text})
	}
	return list
}

func operationOptions() []view.Option {
	return view.Options("Any operation", []workflow.Operation{
		workflow.OperationUpdate, workflow.OperationPreview, workflow.OperationRefresh, workflow.OperationDestroy, workflow.OperationDetectDrift, workflow.OperationRemediateDrift,
	})
}

// initiators are the values of the filter by initiator.
var initiators = []view.Option{
	{Text: "Started by anything"},
	{Value: deployments.InitiatorConsole, Text: "Console"},
	{Value: "cli", Text: "Another CLI"},
	{Value: "api", Text: "API"},
	{Value: view.FromCLI, Text: view.Initiator(view.FromCLI)},
	{Value: "schedule", Text: "Schedule"},
	{Value: "webhook", Text: "Webhook of a stack"},
	{Value: vcs.InitiatorPush, Text: "Git push"},
	{Value: vcs.InitiatorTag, Text: "Git tag"},
	{Value: vcs.InitiatorPull, Text: "Pull request"},
	{Value: vcs.InitiatorReview, Text: "Review stack"},
}
