package stacksettings

import (
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/store"
)

// targets are the kinds of stacks to which a grant can be given.
var targets = []view.Option{
	{Value: "stack", Text: "one stack"}, {Value: "project", Text: "all stacks of a project"}, {Value: "tag", Text: "all stacks with a tag"},
}

// grantForm is the form that gives a grant.
type grantForm struct {
	Kind, Name string
	Previews   bool
	Problem    string
}

// lent is a row of the lists of grants.
type lent struct {
	Icon, Name, Href, Through, For string
	// ID is the id of the grant, if the visitor can remove it.
	ID string
}

// readBy lists who may read the outputs of the stack.
func (m accessModel) readBy() []lent {
	var out []lent
	for _, g := range m.Grants.ReadBy {
		t := grants.TargetOf(g)
		l := lent{Icon: "cube", Name: t.String(), Through: "given by " + g.CreatedBy, For: scopeOf(g)}
		switch {
		case t.Stack != "":
			l.Href = page.StackPath(store.Stack{OrgName: g.OrgName, Project: g.ToProject, Name: g.ToName})
		case t.Project != "":
			l.Icon = "stacks"
		case t.TagName != "":
			l.Icon = "tag"
		}
		if m.Manage {
			l.ID = g.ID
		}
		out = append(out, l)
	}
	return m.withRule(out)
}

// reads lists the stacks whose outputs jobs of the stack may read.
func (m accessModel) reads() []lent {
	var out []lent
	for _, g := range m.Grants.Reads {
		l := lent{
			Icon: "cube", Name: g.From(), Href: page.StackPath(store.Stack{OrgName: g.OrgName, Project: g.FromProject, Name: g.FromName}), For: scopeOf(g),
			Through: "grant to this stack",
		}
		if t := grants.TargetOf(g); g.ReaderID == "" {
			l.Through = "grant to " + t.String()
		}
		if g.Excluded {
			l.Through, l.For = l.Through+", which excludes it: it was created, renamed or tagged without the permission to read that stack", "nothing"
		}
		out = append(out, l)
	}
	return append(m.withRule(out), m.opens()...)
}

// opens lists the environments that jobs of the stack may open.
func (m accessModel) opens() []lent {
	var out []lent
	for _, g := range m.Grants.Opens {
		l := lent{Icon: "lock", Name: "environment " + g.From(), For: scopeOf(g), Through: "grant to this stack"}
		if t := grants.TargetOf(g); g.ReaderID == "" {
			l.Through = "grant to " + t.String()
		}
		if g.Excluded {
			l.Through, l.For = l.Through+", which excludes it: it was created, renamed or tagged without the permission to open the environment", "nothing"
		}
		out = append(out, l)
	}
	return out
}

// withRule adds the rule of the organization for stacks of one project.
func (m accessModel) withRule(list []lent) []lent {
	if !m.Grants.ProjectReads {
		return list
	}
	return append(list, lent{Icon: "stacks", Name: "other stacks of " + m.St.Project, Through: "rule of " + m.St.OrgName, For: "updates"})
}

// scopeOf says which deployments a grant covers.
func scopeOf(g store.Grant) string {
	if g.Previews {
		return "updates, previews, branches"
	}
	return "updates"
}

// setGrant gives or removes a grant.
func (p *pages) setGrant(v *page.Visit) (page.Answer, error) {
	form := grantForm{Kind: v.Form("kind"), Name: strings.TrimSpace(v.Form("name")), Previews: v.Form("previews") != ""}
	removed := v.Form("remove")
	var to grants.Target
	var err error
	switch {
	case removed != "":
		err = p.Grants.Remove(v.Context(), grants.OfStack(v.Stack), removed)
	case form.Name == "":
		err = fault.Invalid("Name a stack, a project or a tag.")
	case form.Kind == "stack":
		to.Stack = form.Name
	case form.Kind == "project":
		to.Project = form.Name
	case form.Kind == "tag":
		to, err = grants.ParseTag(form.Name)
	default:
		err = fault.Invalid("Choose which stacks may read.")
	}
	if err == nil && removed == "" {
		_, err = p.Grants.Add(v.Context(), v.Who, grants.OfStack(v.Stack), to, form.Previews)
	}
	return page.Changed(v, err, path(v.Stack, "access"), func(v *page.Visit, problem string) (view.Page, error) {
		if removed == "" {
			form.Problem, problem = problem, ""
		}
		return p.accessPage(v, accessForm{}, form, problem)
	})
}
