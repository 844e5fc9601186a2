package environments

import (
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// targets are the kinds of stacks to which a grant can be given.
var targets = []view.Option{
	{Value: "stack", Text: "one stack"}, {Value: "project", Text: "all stacks of a project"}, {Value: "tag", Text: "all stacks with a tag"},
}

// maxMissing is the number of imports that the page names after a grant.
const maxMissing = 5

// grantForm is the form that gives a grant.
type grantForm struct {
	Kind, Name string
	Previews   bool
	Problem    string
}

// opener is a row of the list of who opens the environment without a user.
type opener struct {
	Icon, Name, Href, Through, For string
	ID                             string // of the grant
}

// openers lists the stacks whose jobs may open the environment, and the packs whose evaluations do.
func (m settingsModel) openers() []opener {
	var out []opener
	for _, g := range m.Given {
		t := grants.TargetOf(g)
		o := opener{Icon: "cube", Name: t.String(), Through: "given by " + g.CreatedBy, For: "updates", ID: g.ID}
		switch {
		case t.Stack != "":
			o.Href = page.StackPath(store.Stack{OrgName: g.OrgName, Project: g.ToProject, Name: g.ToName})
		case t.Project != "":
			o.Icon = "stacks"
		case t.TagName != "":
			o.Icon = "tag"
		}
		if g.Previews {
			o.For = "updates, previews, branches"
		}
		out = append(out, o)
	}
	for _, p := range m.Packs {
		out = append(out, opener{Icon: "shield", Name: "policy pack " + p.Pack, Through: "policy group " + p.Group, For: "evaluations"})
	}
	return out
}

// readGrants reads what [settingsModel.openers] lists.
func (p *pages) readGrants(v *page.Visit, m *settingsModel) (err error) {
	if m.Given, err = p.Grants.Given(v.Context(), grants.OfEnvironment(m.Environment)); err == nil {
		m.Packs, err = p.Grants.Packs(v.Context(), m.Environment)
	}
	return err
}

// setGrant gives or removes a grant.
func (p *pages) setGrant(v *page.Visit) (page.Answer, error) {
	if !v.Who.CanGrant() {
		return page.Answer{}, fault.Forbidden("An exchanged token may not change permissions.")
	}
	e, err := p.Find(v, store.AdminEnvironment)
	if err != nil {
		return page.Answer{}, err
	}
	form := grantForm{Kind: v.Form("kind"), Name: strings.TrimSpace(v.Form("to")), Previews: v.Form("previews") != ""}
	wrong := func(f *forms, problem string) {
		f.GrantForm = form
		f.GrantForm.Problem = problem
	}
	from, removed := grants.OfEnvironment(e.Environment), v.Form("remove")
	var to grants.Target
	switch {
	case removed != "":
		err = p.Grants.Remove(v.Context(), from, removed)
	case form.Name == "":
		err = fault.Invalid("Name a stack, a project or a tag.")
	case form.Kind == "stack":
		to.Stack = form.Name
	case form.Kind == "project":
		to.Project = form.Name
	case form.Kind == "tag":
		to, err = grants.ParseTag(form.Name)
	default:
		err = fault.Invalid("Choose which stacks may open it.")
	}
	if removed != "" || err != nil {
		return p.changed(v, e, err, "grants", wrong)
	}
	made, err := p.Grants.Add(v.Context(), v.Who, from, to, form.Previews)
	answer, answerErr := p.changed(v, e, err, "grants", wrong)
	if err != nil || answerErr != nil {
		return answer, answerErr
	}
	missing, err := p.Grants.Ungranted(v.Context(), v.Who, e.Environment, made)
	if n := len(missing) - maxMissing; n > 0 {
		missing = append(missing[:maxMissing], words.Count(n, "other"))
	}
	if err == nil && len(missing) > 0 {
		answer = answer.Said("It imports environments that need the same grant: " + strings.Join(missing, ", ") + ".")
	}
	return answer, err
}
