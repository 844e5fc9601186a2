package policies

import (
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

type exceptionsModel struct {
	place
	view.Filters
	exceptions.Page
	First, More string
}

func (p *pages) exceptions(v *page.Visit) (view.Page, error) {
	m := exceptionsModel{place: at(v)}
	m.Filters = view.Filters{Path: m.path("exceptions"), Values: v.R.URL.Query(), Parameters: []string{"state", "before"}, Place: "before"}
	before, _ := strconv.ParseInt(v.Query("before"), 10, 64)
	removed := v.Query("state") == stateRemoved
	var err error
	if m.Page, err = p.Exceptions.List(v.Context(), v.Who, v.Org, exceptions.Query{Active: !removed, Removed: removed, Before: before}); err != nil {
		return view.Page{}, err
	}
	count := ""
	if before > 0 {
		m.First = m.With()
	}
	if m.Next > 0 {
		m.More = m.With("before", strconv.FormatInt(m.Next, 10))
	}
	if before == 0 && m.Next == 0 && len(m.Page.Exceptions) > 0 {
		count = words.Number(len(m.Page.Exceptions))
	}
	bar := m.bar("exceptions", count)
	bar.Actions = exceptionsActions(m)
	return view.Page{Title: m.title("exceptions"), Section: section, Bar: bar, Body: exceptionsBody(m), Live: []view.Topic{changes(v)}}, nil
}

// stateRemoved is the value of the parameter state that selects exceptions that apply no longer.
const stateRemoved = "removed"

// policiesOf are the names of the policies of an exception.
func policiesOf(e store.PolicyException) string { return strings.Join(e.Policies(), ", ") }

// targetsOf says what an exception covers.
func targetsOf(e store.PolicyException) string {
	if e.WholeStack {
		return "a whole stack"
	}
	if e.Targets() == 0 { // the visitor may not read the stack
		return "resources"
	}
	return words.Count(e.Targets(), "resource")
}

type exceptionModel struct {
	place
	store.PolicyException
	Active bool
}

func (p *pages) exception(v *page.Visit) (view.Page, error) {
	m := exceptionModel{place: at(v)}
	e, now, err := p.Exceptions.Get(v.Context(), v.Who, v.Org, v.Param("exception"))
	if err != nil {
		return view.Page{}, err
	}
	m.PolicyException, m.Active = e, e.Active(now)
	return view.Page{
		Title: m.Name() + " · " + m.Org, Section: section,
		Object: &view.Object{Icon: "lock", Project: m.Pack, Name: m.Name(), Badges: exceptionBadges(m), Facts: exceptionFacts(m), Actions: exceptionActions(m)},
		Body:   exceptionBody(m), Live: []view.Topic{changes(v)},
	}, nil
}

// exceptionForm is the form for a new exception, with what is wrong with it.
type exceptionForm struct {
	Pack, Policies, Stack, Targets, Reason, Lasts string
	Whole                                         bool
	page.Wrong
}

type newException struct {
	place
	exceptionForm
	Packs     []view.Option
	Suggested []string // stacks
}

func (p *pages) newException(v *page.Visit) (view.Page, error) {
	return p.exceptionPage(v, exceptionForm{Pack: v.Query("pack"), Policies: v.Query("policy"), Targets: v.Query("target"), Lasts: "30"})
}

func (p *pages) exceptionPage(v *page.Visit, f exceptionForm) (view.Page, error) {
	m := newException{place: at(v), exceptionForm: f}
	list, err := p.Policies.Packs(v.Context(), v.Org.ID, "")
	if err != nil {
		return view.Page{}, err
	}
	for _, pack := range list {
		m.Packs = append(m.Packs, view.Option{Value: pack.Name, Text: pack.Name})
	}
	if m.Suggested, err = p.Stacks.Names(v.Context(), v.Who, v.Org.ID, page.Suggested); err != nil {
		return view.Page{}, err
	}
	return view.Page{
		Title: "New exception · Policies · " + m.Org, Section: section, Bar: m.bar("exceptions", ""), Body: newExceptionBody(m),
	}, nil
}

func (p *pages) createException(v *page.Visit) (page.Answer, error) {
	f := exceptionForm{
		Pack: v.Form("pack"), Policies: v.Form("policies"), Stack: strings.TrimSpace(v.Form("stack")), Targets: v.Form("targets"), Reason: strings.TrimSpace(v.Form("reason")), Lasts: v.Form("lasts"), Whole: v.Form("whole") == "on",
	}
	targets := v.Lines("targets")
	if project, name, ok := strings.Cut(f.Stack, "/"); ok && f.Whole && len(targets) == 0 {
		targets = []string{stackURN(project, name)}
	}
	days, err := strconv.Atoi(f.Lasts)
	if err != nil || days < 0 || days > 3650 {
		days = 30
	}
	made, _, err := p.Exceptions.Create(v.Context(), v.Who, v.Org, exceptions.New{
		Pack: f.Pack, Reason: f.Reason, WholeStack: f.Whole, Lasts: time.Duration(days) * 24 * time.Hour,
		Entries: []store.ExceptionEntry{{Policies: v.Lines("policies"), Targets: targets}},
	})
	next := ""
	if err == nil {
		next = at(v).path("exceptions", made.Name())
	}
	return page.Changed(v, err, next, func(v *page.Visit, problem string) (view.Page, error) {
		f.Wrong = page.Locate(strings.ReplaceAll(problem, "match[0]", "The exception"),
			page.About{Word: "reason", Field: "reason"}, page.About{Word: "target", Field: "targets"}, page.About{Word: "no policy pack", Field: "pack"}, page.About{Word: "polic", Field: "policies"})
		return p.exceptionPage(v, f)
	})
}

// stackURN is the URN of the resource that represents a stack.
func stackURN(project, name string) string {
	return "urn:pulumi:" + name + "::" + project + "::pulumi:pulumi:Stack::" + project + "-" + name
}

func (p *pages) removeException(v *page.Visit) (page.Answer, error) {
	err := p.Exceptions.Remove(v.Context(), v.Who, v.Org, v.Param("exception"))
	return page.See(at(v).path("exceptions", v.Param("exception"))), err
}
