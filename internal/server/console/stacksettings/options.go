package stacksettings

import (
	"errors"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
)

type optionsModel struct {
	St             store.Stack
	Manage, Delete bool
	// Fresh reports whether the visitor has signed in recently, as a transfer and a deletion require.
	Fresh bool
	// SignIn is the path of a sign-in that leads back to the page.
	SignIn string
	Orgs   []view.Option
	Wanted string        // what a confirmation must contain
	Kept   time.Duration // for which a deleted stack can be restored
	// Readers are the stacks that read from this one, as far as the visitor may see them.
	Readers []store.Stack
	Form    optionsForm
}

// optionsForm is one of the forms of the page, again with what is wrong. Action is the last segment of its path.
type optionsForm struct {
	Action, Problem            string
	Name, Project, To, Confirm string
	Force                      bool
}

// of returns the values of the form with an action.
func (f optionsForm) of(action string) optionsForm {
	if f.Action != action {
		return optionsForm{}
	}
	return f
}

func (p *pages) options(v *page.Visit) (view.Page, error) { return p.optionsPage(v, optionsForm{}) }

func (p *pages) optionsPage(v *page.Visit, form optionsForm) (view.Page, error) {
	m := optionsModel{
		St: v.Stack, Manage: v.Who.Can(v.Stack, identity.Manage), Delete: v.Who.Can(v.Stack, identity.DeleteStack),
		Fresh: v.Session.Fresh(time.Now()), SignIn: page.LoginPath(page.Here(v, path(v.Stack, "options"))),
		Wanted: v.Stack.Project + "/" + v.Stack.Name, Kept: p.Stacks.KeepsDeleted(), Form: form,
	}
	for _, o := range v.Orgs() {
		if o.ID != v.Stack.OrgID && v.Who.CanTransfer(v.Stack, o.ID) {
			m.Orgs = append(m.Orgs, view.Option{Value: o.Name, Text: o.Name})
		}
	}
	var err error
	if m.Readers, err = p.Stacks.Downstream(v.Context(), v.Who, v.Stack); err != nil {
		return view.Page{}, err
	}
	return p.settingsPage(v, "options", "", optionsView(m), nil)
}

// again shows the page after a form with what is wrong with it.
func (p *pages) again(v *page.Visit, action string, err error, to string) (page.Answer, error) {
	return page.Changed(v, err, to, func(v *page.Visit, problem string) (view.Page, error) {
		return p.optionsPage(v, optionsForm{
			Action: action, Problem: problem, Name: v.Form("name"), Project: v.Form("project"), To: v.Form("to"), Confirm: v.Form("confirm"), Force: v.Form("force") == "on",
		})
	})
}

// errNotConfirmed is the error of a dangerous action whose confirmation differs.
var errNotConfirmed = fault.Invalid("Nothing was changed: type the project and the name of the stack exactly as they are shown.")

func confirmed(v *page.Visit) error {
	if v.Form("confirm") != v.Stack.Project+"/"+v.Stack.Name {
		return errNotConfirmed
	}
	return nil
}

func (p *pages) rename(v *page.Visit) (page.Answer, error) {
	name, project := v.Form("name"), v.Form("project")
	_, err := p.Stacks.Rename(v.Context(), v.Who, v.Stack, name, project)
	renamed := v.Stack
	if name != "" {
		renamed.Name = name
	}
	if project != "" {
		renamed.Project = project
	}
	return p.again(v, "rename", err, path(renamed, "options"))
}

func (p *pages) transfer(v *page.Visit) (page.Answer, error) {
	err := confirmed(v)
	var to store.Organization
	if err == nil {
		to, err = p.Identity.Organization(v.Context(), v.Who, v.Form("to"))
	}
	if err == nil {
		err = p.Stacks.Transfer(v.Context(), v.Who, v.Stack, to)
	}
	return p.again(v, "transfer", err, links.Path(to.Name, v.Stack.Project, v.Stack.Name))
}

func (p *pages) remove(v *page.Visit) (page.Answer, error) {
	force := v.Form("force") == "on"
	err := confirmed(v)
	if err == nil && force {
		err = v.Who.Check(v.Stack, identity.Manage)
	}
	if err == nil {
		err = p.Stacks.Delete(v.Context(), v.Who, v.Stack, force)
	}
	if err != nil && !errors.Is(err, errNotConfirmed) && fault.KindOf(err) == fault.KindNotFound {
		return page.Answer{}, err
	}
	return p.again(v, "delete", err, links.Path(v.Stack.OrgName, "-", "stacks"))
}
