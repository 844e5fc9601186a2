package deployment

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// form is the state of the form that starts a deployment.
type form struct {
	St        store.Stack
	Operation string
	Branch    string
	Commit    string
	Pool      string
	Confirmed string
	Problem   string
	Confirm   string // problem of the confirmation
	// DefaultBranch is the branch of the stack's settings.
	DefaultBranch string
	Repository    string
	Pools         []view.Option
	// Outlook says when the deployment would start.
	Outlook   string
	Resources int64
	NoSource  bool
}

// dangerous are the operations that require the stack's name.
var dangerous = []string{string(workflow.OperationDestroy), string(workflow.OperationRemediateDrift)}

func (p *pages) form(v *page.Visit) (view.Page, error) {
	f := form{Operation: cmp.Or(v.Query("operation"), string(workflow.OperationUpdate))}
	return p.formPage(v, f)
}

func (p *pages) formPage(v *page.Visit, f form) (view.Page, error) {
	f.St = v.Stack
	ctx := v.Context()
	set, err := p.Deployments.Settings(ctx, v.Stack)
	if err != nil && fault.KindOf(err) != fault.KindNotFound {
		return view.Page{}, err
	}
	pinned := ""
	f.NoSource = true
	if set != nil {
		pinned = set.Settings.AgentPoolID
		if git := set.Settings.Git(); git != nil {
			f.NoSource, f.DefaultBranch, f.Repository = false, git.Branch, git.RepoURL
		}
		f.NoSource = f.NoSource && set.Settings.GitHub == nil && set.Settings.VCS == nil && set.Settings.Image() == ""
	}
	list, preset, err := p.Pools.List(ctx, v.Stack.OrgID)
	if err != nil {
		return view.Page{}, err
	}
	agents := map[string]pools.Summary{}
	if v.Who.CanReadPools(v.Stack.OrgID) {
		sums, err := p.Pools.Summaries(ctx, v.Who, v.Stack.OrgID)
		if err != nil {
			return view.Page{}, err
		}
		for _, s := range sums {
			agents[s.ID] = s
		}
	} else {
		list = pools.Own(list, pinned, preset)
	}
	f.Pools = poolOptions(list, agents, pinned, preset)
	if f.Outlook, err = p.outlook(v, list, agents, cmp.Or(f.Pool, pinned, preset)); err != nil {
		return view.Page{}, err
	}
	f.Resources = v.Stack.ResourceCount
	return view.Page{
		Title: "Deploy " + v.Stack.Project + "/" + v.Stack.Name, Section: "deployments",
		Crumbs: page.StackCrumbs(v.Stack, view.Crumb{Text: "Deploy"}),
		Live:   []view.Topic{{Channel: deployments.Topic, About: v.Stack.OrgID}, {Channel: pools.Topic, About: v.Stack.OrgID}},
		Body:   deployForm(f),
	}, nil
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
	return fmt.Sprintf("%d of %s free", s.Free(), words.Count(s.Online, "agent"))
}

// outlook says when a deployment in a pool would start.
func (p *pages) outlook(v *page.Visit, list []pools.Overview, agents map[string]pools.Summary, pool string) (string, error) {
	stackPaused, orgPaused, err := p.Deployments.Paused(v.Context(), v.Stack)
	if err != nil {
		return "", err
	}
	if orgPaused {
		return "It will wait: deployments of the organization are paused.", nil
	}
	if stackPaused {
		return "It will wait: deployments of the stack are paused.", nil
	}
	active, _, err := p.Deployments.List(v.Context(), deployments.Filter{OrgID: v.Stack.OrgID, StackID: v.Stack.ID, Page: 1, PageSize: 20})
	if err != nil {
		return "", err
	}
	for _, d := range active {
		if !d.Job.Status.Final() {
			return fmt.Sprintf("It will wait behind #%d, which is %s.", d.Version, view.StatusWord(string(d.Job.Status))), nil
		}
	}
	why, err := p.Deployments.Prospect(v.Context(), v.Who, v.Stack)
	if err != nil {
		return "", err
	}
	if why.Reason == waiting.Group || why.Reason == waiting.Lost {
		return strings.Replace(why.Text, "Waiting for", "It will wait for", 1), nil
	}
	at := slices.IndexFunc(list, func(o pools.Overview) bool { return o.ID == pool })
	if at < 0 {
		return "It will wait until a pool is chosen.", nil
	}
	name := list[at].Name
	switch s, ok := agents[pool]; {
	case !ok:
		return "It starts when an agent of the pool is free.", nil
	case s.Online == 0:
		return fmt.Sprintf("It will wait: no agent of pool %s is online.", name), nil
	case s.Slots == 0:
		return fmt.Sprintf("It will wait: no agent of pool %s can start deployments.", name), nil
	case s.Free() == 0:
		return fmt.Sprintf("It will wait: all agents of pool %s are busy.", name), nil
	default:
		return fmt.Sprintf("It starts on pool %s (%s).", name, freeText(s)), nil
	}
}

func (p *pages) deploy(v *page.Visit) (page.Answer, error) {
	f := form{
		Operation: v.Form("operation"), Branch: v.Form("branch"), Commit: v.Form("commit"), Pool: v.Form("pool"), Confirmed: v.Form("confirm"),
	}
	name := v.Stack.Project + "/" + v.Stack.Name
	if slices.Contains(dangerous, f.Operation) && f.Confirmed != name {
		f.Confirm = "Type " + name + " to confirm that this changes or deletes its resources."
		return p.refused(v, f)
	}
	var made store.Deployment
	r, err := f.request()
	if err == nil {
		made, err = p.Deployments.Create(v.Context(), v.Who, v.Stack, r, deployments.InitiatorConsole)
	}
	if status, _ := web.Classify(err); err != nil && (status == http.StatusBadRequest || status == http.StatusConflict) {
		f.Problem = page.Sentence(err)
		return p.refused(v, f)
	}
	return page.See(deploymentPath(v.Stack, made.Version)), err
}

func (p *pages) refused(v *page.Visit, f form) (page.Answer, error) {
	again, err := p.formPage(v, f)
	return page.Again(again), err
}

// request returns the request of a form.
func (f form) request() (workflow.Request, error) {
	op, err := workflow.ParseOperation(f.Operation)
	if err != nil {
		return workflow.Request{}, fault.Invalid("%s", err)
	}
	set := &workflow.Settings{AgentPoolID: f.Pool}
	if f.Branch != "" || f.Commit != "" {
		set.SourceContext = &workflow.SourceContext{Git: &workflow.SourceContextGit{Branch: f.Branch, Commit: f.Commit}}
	}
	return workflow.Request{Operation: op, Inherit: true, Settings: set}, nil
}
