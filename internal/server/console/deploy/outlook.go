package deploy

import (
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// outlook says when a deployment would start, and how long it usually takes.
type outlook struct {
	Strong, Rest string
	Waits        bool
}

func (o outlook) class() string {
	if o.Waits {
		return "note n-warn outlook"
	}
	return "note outlook"
}

// poolOptions lists the pools of the organization, first the one that applies without a choice. agents
// are the summaries of the pools that the visitor may see.
func poolOptions(list []pools.Overview, agents map[string]pools.Summary, pinned, preset string) []view.Option {
	first := view.Option{Text: "No default pool: choose one"}
	out := []view.Option{}
	for _, o := range list {
		text := o.Name
		if s, ok := agents[o.ID]; ok {
			text = fmt.Sprintf("%s (%s)", o.Name, freeText(s))
		}
		switch o.ID {
		case pinned:
			first.Text = "The stack's pool: " + text
		case preset:
			if pinned == "" {
				first.Text = "The default pool: " + text
			}
		}
		out = append(out, view.Option{Value: o.ID, Text: text})
	}
	return append([]view.Option{first}, out...)
}

func freeText(s pools.Summary) string {
	if s.Online == 0 {
		return "no agent online"
	}
	return fmt.Sprintf("%s, %d free", words.Count(s.Online, "agent"), s.Free())
}

// outlook says when the deployment of a form would start in a pool.
func (p *pages) outlook(v *page.Visit, f form, list []pools.Overview, agents map[string]pools.Summary, pool string) (outlook, error) {
	wait, err := p.obstacle(v, f.Operation)
	if err != nil {
		return outlook{}, err
	}
	o := outlook{Strong: "Waits:", Rest: wait, Waits: true}
	if wait == "" {
		o = start(list, agents, pool)
	}
	rest, err := p.usual(v, f.Operation)
	o.Rest = strings.TrimSpace(o.Rest + " " + rest)
	return o, err
}

// obstacle returns why a deployment of the stack would wait, apart from the state of the pools; "" if it would not.
func (p *pages) obstacle(v *page.Visit, op workflow.Operation) (string, error) {
	ctx := v.Context()
	stackPaused, orgPaused, err := p.Deployments.Paused(ctx, v.Stack)
	switch {
	case err != nil:
		return "", err
	case orgPaused:
		return "deployments of the organization are paused.", nil
	case stackPaused:
		return "deployments of the stack are paused.", nil
	}
	active, _, err := p.Deployments.List(ctx, deployments.Filter{OrgID: v.Stack.OrgID, StackID: v.Stack.ID, Page: 1, PageSize: 20})
	if err != nil {
		return "", err
	}
	for _, d := range active {
		if !d.Job.Status.Final() {
			return fmt.Sprintf("#%d is before it, and is %s.", d.Version, view.StatusWord(string(d.Job.Status))), nil
		}
	}
	why, err := p.Deployments.Prospect(ctx, v.Who, v.Stack)
	if err != nil {
		return "", err
	}
	if why.Reason == waiting.Group || why.Reason == waiting.Lost {
		return strings.Replace(why.Text, "Waiting for", "for", 1), nil
	}
	held, err := p.held(v)
	if err != nil || held == "" || !op.Changes() {
		return "", err
	}
	return held + " A deployment that starts before that ends fails.", nil
}

// held says which client outside of deployments holds the stack; "" if none does.
func (p *pages) held(v *page.Visit) (string, error) {
	lock, err := p.Stacks.Lock(v.Context(), v.Who, v.Stack)
	if err != nil || lock == nil || lock.State == stacks.LockLapsed || lock.Deployment > 0 {
		return "", err
	}
	return fmt.Sprintf("%s holds the stack with %s from %s.", lock.By, what(lock.Update), lock.From), nil
}

// what names an update in a sentence.
func what(u store.Update) string {
	if u.Kind == "update" {
		return "an update"
	}
	return "a " + u.Kind
}

// start says when an agent of a pool starts a deployment that nothing holds up.
func start(list []pools.Overview, agents map[string]pools.Summary, pool string) outlook {
	at := slices.IndexFunc(list, func(o pools.Overview) bool { return o.ID == pool })
	if at < 0 {
		return outlook{"Waits:", "until a pool is chosen.", true}
	}
	name := list[at].Name
	switch s, ok := agents[pool]; {
	case !ok:
		return outlook{Strong: "Starts when an agent of the pool is free."}
	case s.Online == 0:
		return outlook{"Waits:", fmt.Sprintf("no agent of pool %s is online.", name), true}
	case s.Slots == 0:
		return outlook{"Waits:", fmt.Sprintf("no agent of pool %s can start deployments.", name), true}
	case s.Free() == 0:
		return outlook{"Waits:", fmt.Sprintf("all agents of pool %s are busy.", name), true}
	default:
		var online []string
		for _, a := range list[at].Agents {
			if a.Online {
				online = append(online, a.Hostname)
			}
		}
		if len(online) == 1 && online[0] != "" {
			return outlook{Strong: "Starts now on " + online[0] + " of pool " + name + "."}
		}
		return outlook{Strong: "Starts now in pool " + name + ":", Rest: fmt.Sprintf("%d of %s free.", s.Free(), words.Count(s.Online, "agent"))}
	}
}

// usual says how long the operation usually takes, and how often the last runs failed.
func (p *pages) usual(v *page.Visit, op workflow.Operation) (string, error) {
	if op == workflow.OperationPreview {
		return "A preview changes nothing.", nil
	}
	u, err := p.Deployments.Usual(v.Context(), v.Stack, op)
	if err != nil || u.Runs == 0 {
		return "", err
	}
	text := "Usually " + words.Age(u.Median)
	row, err := p.Estate.Get(v.Context(), v.Who, v.Stack)
	if err != nil {
		return "", err
	}
	if failed, all := failures(row); failed > 0 {
		text += fmt.Sprintf("; %d of the last %d failed", failed, all)
	}
	return text + ".", nil
}

// failures returns the number of failed ones among the last runs of a stack, and the number of all.
func failures(st estate.Stack) (failed, all int) {
	for _, r := range st.Runs.List() {
		all++
		if r.Result == store.RunFailed {
			failed++
		}
	}
	return failed, all
}
