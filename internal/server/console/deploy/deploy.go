// Package deploy contains the form that starts a deployment. With script it is a dialog over the page that links to it,
// and otherwise a page.
package deploy

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/console/drift"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	detection "workflowagent/internal/server/deployments/drift"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Deps are the services behind the form.
type Deps struct {
	Deployments *deployments.Service
	Stacks      *stacks.Service
	Pools       *pools.Service
	Estate      *estate.Service
	Drift       *detection.Service
}

type pages struct{ Deps }

// Register registers the form.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	const path = "/{org}/{project}/{stack}/deploy"
	site.View(path, page.Stack(identity.Operate), p.show)
	site.Action(path, page.Stack(identity.Operate), p.deploy)
}

// form is the state of the form.
type form struct {
	St        store.Stack
	Operation workflow.Operation
	entered
	// RefProblem is about the branch, tag or commit.
	Problem, ConfirmProblem, RepositoryProblem, RefProblem string
	// First reports that the settings of the stack do not say where its program is.
	First bool
	// Default is the branch, tag or commit of the stack's settings, and Source their repository.
	Default, Source string
	Last            *estate.Stack // the last run, if it is a deployment; nil without one
	Pools           []view.Option
	Outlook         outlook
	Loss            *loss        // what a destroy deletes; nil for other operations
	Found           *drift.Found // the drift that the operation ends; nil without drift, and for other operations
}

// entered is what the visitor has entered.
type entered struct {
	Ref, Pool, Confirmed       string
	Repository, Branch, Folder string // of the first deployment
	Set                        []string
	// Check reports that a detection changes nothing, whatever the settings of the stack say.
	Check bool
}

// option is an option of operations.
type option struct {
	Name, Text string
	Only       workflow.Operation // that has the option; "" for all
	// of returns the place of the option in the settings.
	of func(o *workflow.OptionsSettings) **bool
}

var options = []option{
	{"skip-install", "Do not install dependencies", "", func(o *workflow.OptionsSettings) **bool { return &o.SkipInstallDependencies }},
	{"skip-intermediate", "Skip it if a newer deployment is queued when its turn comes", "", func(o *workflow.OptionsSettings) **bool { return &o.SkipIntermediateDeployments }},
	{"delete-stack", "Delete the stack afterwards", workflow.OperationDestroy, func(o *workflow.OptionsSettings) **bool { return &o.DeleteAfterDestroy }},
}

// optionsOf returns the options of an operation.
func optionsOf(op workflow.Operation) []option {
	return slices.DeleteFunc(slices.Clone(options), func(o option) bool { return o.Only != "" && o.Only != op })
}

// dangerous reports whether the form requires the stack's name.
func (f form) dangerous() bool { return f.Operation == workflow.OperationDestroy || f.removes() }

// asks reports whether the form asks where the program is, and saves the answer in the settings of the stack.
func (f form) asks() bool {
	return f.First && (f.Operation == workflow.OperationUpdate || f.Operation == workflow.OperationPreview)
}

// show shows the form. The buttons that choose another operation, and without script those alone, send what was entered.
func (p *pages) show(v *page.Visit) (view.Page, error) {
	q := v.R.URL.Query()
	f := form{Operation: workflow.Operation(cmp.Or(v.Query("operation"), string(workflow.OperationUpdate))), entered: enteredIn(q.Get)}
	f.Confirmed = "" // a link must not confirm for its reader
	if q.Get("asked") != "" {
		f.Set = append([]string{}, q["option"]...)
	}
	if _, err := workflow.ParseOperation(string(f.Operation)); err != nil {
		return view.Page{}, fault.Invalid("%s", err)
	}
	return p.page(v, f)
}

func enteredIn(get func(string) string) entered {
	return entered{
		Ref: strings.TrimSpace(get("ref")), Pool: get("pool"), Confirmed: get("confirm"),
		Repository: get("repository"), Branch: strings.TrimSpace(get("branch")), Folder: get("folder"),
		Check: get("check") != "",
	}
}

func (p *pages) page(v *page.Visit, f form) (view.Page, error) {
	f.St = v.Stack
	ctx := v.Context()
	set, err := p.Deployments.Settings(ctx, v.Stack)
	if err != nil && fault.KindOf(err) != fault.KindNotFound {
		return view.Page{}, err
	}
	if set == nil {
		set = &deployments.StoredSettings{}
	}
	pinned := set.Settings.AgentPoolID
	if f.of(&set.Settings); !f.asks() {
		f.Problem = cmp.Or(f.Problem, f.RepositoryProblem)
	}
	if err := p.suggest(v, &f); err != nil {
		return view.Page{}, err
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
	if f.Outlook, err = p.outlook(v, f, list, agents, cmp.Or(f.Pool, pinned, preset)); err != nil {
		return view.Page{}, err
	}
	if err := p.touches(v, &f); err != nil {
		return view.Page{}, err
	}
	if f.Operation == workflow.OperationDestroy {
		if f.Loss, err = p.loss(v); err != nil {
			return view.Page{}, err
		}
	}
	name := v.Stack.Project + "/" + v.Stack.Name
	return view.Page{
		Title: "Deploy " + name, Section: "stacks",
		Bar:  &view.Bar{Title: "Deploy", Count: name},
		Live: []view.Topic{{Channel: deployments.Topic, About: v.Stack.OrgID}, {Channel: pools.Topic, About: v.Stack.OrgID}},
		Body: body(f),
	}, nil
}

// of sets what the form shows of the stack's settings.
func (f *form) of(set *workflow.Settings) {
	if git := set.Git(); git != nil {
		f.Source, f.Default = git.RepoURL, cmp.Or(strings.TrimPrefix(git.Branch, "refs/heads/"), git.Commit)
		if f.Default == "" && git.Tag != "" {
			f.Default = "refs/tags/" + git.Tag
		}
	}
	f.First = f.Source == "" && set.GitHub == nil && set.VCS == nil && set.Image() == ""
	if t, ok := set.Triggers(); ok {
		f.Source, f.Default = cmp.Or(f.Source, t.Repository), cmp.Or(f.Default, t.Branch)
	}
	f.Ref = cmp.Or(f.Ref, f.Default)
	if f.Set == nil && set.OperationContext != nil && set.OperationContext.Options != nil {
		for _, o := range options {
			if on := *o.of(set.OperationContext.Options); on != nil && *on {
				f.Set = append(f.Set, o.Name)
			}
		}
	}
}

// suggest completes the form from what is known about the stack: its last deployment, and for the first one, the
// repository in which the pulumi CLI has found the program.
func (p *pages) suggest(v *page.Visit, f *form) error {
	if !f.asks() {
		row, err := p.Estate.Get(v.Context(), v.Who, v.Stack)
		if err == nil && row.LastDeployment > 0 && row.LastMessage != "" {
			f.Last = &row
		}
		return err
	}
	if f.Repository != "" || f.RepositoryProblem != "" {
		return nil
	}
	tags, err := p.Stacks.Tags(v.Context(), v.Stack)
	if err != nil {
		return err
	}
	if kind, owner, repo := tags["vcs:kind"], tags["vcs:owner"], tags["vcs:repo"]; kind != "" && owner != "" && repo != "" {
		if address := "https://" + kind + "/" + owner + "/" + repo; workflow.CheckRepoURL(address) == nil {
			f.Repository, f.Folder = address, cmp.Or(f.Folder, tags["vcs:root"])
		}
	}
	return nil
}

func (p *pages) deploy(v *page.Visit) (page.Answer, error) {
	f := form{Operation: workflow.Operation(v.Form("operation")), entered: enteredIn(v.Form)}
	if v.Form("asked") != "" {
		f.Set = append([]string{}, v.Values()["option"]...)
	}
	if _, err := workflow.ParseOperation(string(f.Operation)); err != nil {
		return page.Answer{}, fault.Invalid("%s", err)
	}
	if err := p.touches(v, &f); err != nil {
		return page.Answer{}, err
	}
	name := v.Stack.Project + "/" + v.Stack.Name
	if f.dangerous() && f.Confirmed != v.Stack.Name && f.Confirmed != name {
		f.ConfirmProblem = "Type " + v.Stack.Name + " to confirm " + f.confirms() + " " + name + "."
		return p.refused(v, f)
	}
	if err := checkRef(cmp.Or(f.Ref, f.Branch)); err != nil {
		f.RefProblem = page.Sentence(fault.Invalid("%s", err))
		return p.refused(v, f)
	}
	if f.Found != nil {
		// The page of the drift offers no decision meanwhile either.
		held, err := p.held(v)
		if err != nil {
			return page.Answer{}, err
		}
		if held != "" {
			f.Problem = held + " Decide about the drift when that has ended; what you entered is still here."
			return p.refused(v, f)
		}
	}
	if v.Values().Has("repository") {
		if err := p.save(v, f.entered); err != nil {
			message, ok := page.Correctable(err)
			if !ok {
				return page.Answer{}, err
			}
			f.RepositoryProblem = message
			return p.refused(v, f)
		}
		f.Ref = "" // the settings have the branch now
	}
	made, err := p.Deployments.Create(v.Context(), v.Who, v.Stack, f.request(), deployments.InitiatorConsole)
	if status, _ := web.Classify(err); err != nil && (status == http.StatusBadRequest || status == http.StatusConflict) {
		f.Problem = page.Sentence(err)
		return p.refused(v, f)
	}
	return page.See(page.StackPath(v.Stack, "deployments", strconv.FormatInt(made.Version, 10))), err
}

// checkRef returns an error unless a text is "", a commit, or can be a branch or a full ref.
func checkRef(text string) error {
	if text == "" || workflow.CheckCommit(text) == nil {
		return nil
	}
	return workflow.CheckBranch(text)
}

// confirms is what the name of the stack confirms.
func (f form) confirms() string {
	if f.Operation == workflow.OperationRefresh {
		return "that resources are removed from the state of"
	}
	return "that this changes or deletes the resources of"
}

func (p *pages) refused(v *page.Visit, f form) (page.Answer, error) {
	again, err := p.page(v, f)
	return page.Again(again), err
}

// request returns the request of a form.
func (f form) request() workflow.Request {
	set := &workflow.Settings{AgentPoolID: f.Pool}
	if f.Ref != "" {
		git := &workflow.SourceContextGit{Branch: f.Ref}
		if workflow.CheckCommit(f.Ref) == nil {
			git = &workflow.SourceContextGit{Commit: f.Ref}
		}
		set.SourceContext = &workflow.SourceContext{Git: git}
	}
	if f.Set != nil {
		given := &workflow.OptionsSettings{}
		for _, o := range optionsOf(f.Operation) {
			on := slices.Contains(f.Set, o.Name)
			*o.of(given) = &on
		}
		set.OperationContext = &workflow.OperationContext{Options: given}
	}
	if f.Check && f.Operation == workflow.OperationDetectDrift {
		set.OnlyDetect()
	}
	return workflow.Request{Operation: f.Operation, Inherit: true, Settings: set}
}
