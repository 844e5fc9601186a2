package environments

import (
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// permissions are the choices of a permission on an environment.
var permissions = []view.Option{
	{Value: store.ReadEnvironment.String(), Text: "read", Hint: "Read the definition without its secrets, and the revisions, tags and referrers."},
	{Value: store.OpenEnvironment.String(), Text: "open", Hint: "Also read the values and the secrets."},
	{Value: store.WriteEnvironment.String(), Text: "write", Hint: "Also change the definition, tags and revisions."},
	{Value: store.AdminEnvironment.String(), Text: "admin", Hint: "Also delete and protect it, and grant permissions on it."},
}

// may says what a permission lets its holder do.
func may(p store.EnvironmentPermission) string {
	for _, o := range permissions {
		if o.Value == p.String() {
			return o.Hint
		}
	}
	return "See only the names."
}

// forms are the forms of the page, with what is wrong with them.
type forms struct {
	Tag, Value, TagProblem           string
	Team, Permission, AccessProblem  string
	Clone                            environments.Clone
	CloneProblems                    page.Wrong
	ProtectionProblem, DeleteProblem string
	GrantForm                        grantForm
}

type settingsModel struct {
	place
	environments.Listed
	environments.Access
	forms
	Tags    []store.EnvironmentTag
	Given   []store.Grant
	Packs   []store.PackName
	Choices []environments.RevisionInfo // that can be cloned
	Teams   []string                    // to suggest
	Write   bool
	Admin   bool
	Grant   bool // the visitor may change permissions
	Open    bool
}

// wanted is what a visitor types to delete the environment.
func (m settingsModel) wanted() string { return m.Project + "/" + m.Name }

func (p *pages) settings(v *page.Visit) (view.Page, error) { return p.settingsPage(v, func(*forms) {}) }

func (p *pages) settingsPage(v *page.Visit, fill func(f *forms)) (view.Page, error) {
	out, e, err := p.Page(v, Settings, store.ReadEnvironment)
	if err != nil {
		return out, err
	}
	m := settingsModel{
		place: at(v), Listed: e, Write: e.Permission >= store.WriteEnvironment, Open: e.Permission >= store.OpenEnvironment,
		Admin: e.Permission >= store.AdminEnvironment, Grant: e.Permission >= store.AdminEnvironment && v.Who.CanGrant(),
	}
	m.forms = forms{Permission: store.OpenEnvironment.String(), Clone: environments.Clone{Project: e.Project, Tags: true}}
	fill(&m.forms)
	if m.Tags, err = p.Environments.Tags(v.Context(), e.Environment); err != nil {
		return out, err
	}
	if m.Access, err = p.Environments.Access(v.Context(), e.Environment); err != nil {
		return out, err
	}
	if m.Choices, err = p.choices(v, e); err != nil {
		return out, err
	}
	if err := p.readGrants(v, &m); err != nil {
		return out, err
	}
	if m.Grant {
		teams, err := p.Identity.Teams(v.Context(), v.Who, e.OrgID)
		if err != nil {
			return out, err
		}
		for _, t := range teams {
			m.Teams = append(m.Teams, t.Name)
		}
	}
	out.Body = settingsBody(m)
	return out, nil
}

// changed answers after a change on the page. wrong puts a problem into the forms.
func (p *pages) changed(v *page.Visit, e environments.Listed, err error, anchor string, wrong func(f *forms, problem string)) (page.Answer, error) {
	return page.Changed(v, problemOf(err), Path(e.Environment, "settings")+"#"+anchor, func(v *page.Visit, problem string) (view.Page, error) {
		return p.settingsPage(v, func(f *forms) { wrong(f, problem) })
	})
}

// changeTag adds, changes or removes a tag.
func (p *pages) changeTag(v *page.Visit) (page.Answer, error) {
	e, err := p.Find(v, store.WriteEnvironment)
	if err != nil {
		return page.Answer{}, err
	}
	name, value := strings.TrimSpace(v.Form("tag")), strings.TrimSpace(v.Form("content"))
	old, had := e.Tags[name]
	path, who := Path(e.Environment, "settings", "tags"), v.Who
	wrong := func(f *forms, problem string) { f.Tag, f.Value, f.TagProblem = name, value, problem }
	switch {
	case v.Form("action") == "remove":
		answer, err := p.changed(v, e, p.Environments.RemoveTag(v.Context(), who, e.Environment, name), "tags", wrong)
		if !had {
			return answer, err
		}
		return answer.Undo("Removed the tag "+label(name, old)+".", path, "tag", name, "content", old), err
	case had:
		_, err = p.Environments.ChangeTag(v.Context(), who, e.Environment, name, environments.TagChange{Current: old, Value: value})
	default:
		_, err = p.Environments.AddTag(v.Context(), who, e.Environment, name, value)
	}
	return p.changed(v, e, err, "tags", wrong)
}

// protect sets the deletion protection.
func (p *pages) protect(v *page.Visit) (page.Answer, error) {
	e, err := p.Find(v, store.AdminEnvironment)
	if err != nil {
		return page.Answer{}, err
	}
	on := v.Form("protected") == "on"
	err = p.Environments.SetSettings(v.Context(), v.Who, e.Environment, environments.Settings{Protected: &on})
	answer, err := p.changed(v, e, err, "protection", func(f *forms, problem string) { f.ProtectionProblem = problem })
	if on == e.Protected {
		return answer, err
	}
	text, back := "The environment is no longer protected.", "on"
	if on {
		text, back = "The environment is protected from deletion.", ""
	}
	return answer.Undo(text, Path(e.Environment, "settings", "protection"), "protected", back), err
}

// changeAccess sets or removes the permission of a team.
func (p *pages) changeAccess(v *page.Visit) (page.Answer, error) {
	if !v.Who.CanGrant() {
		return page.Answer{}, fault.Forbidden("An exchanged token may not change permissions.")
	}
	e, err := p.Find(v, store.AdminEnvironment)
	if err != nil {
		return page.Answer{}, err
	}
	team, text := strings.TrimSpace(v.Form("team")), v.Form("permission")
	permission, known := store.ParseEnvironmentPermission(text)
	if !known {
		err = fault.Invalid("Choose a permission.")
	} else {
		err = p.Identity.ChangeTeam(v.Context(), v.Who, v.Org, team, identity.TeamChange{Environments: []identity.EnvironmentGrant{{Project: e.Project, Name: e.Name, Permission: permission}}})
	}
	return p.changed(v, e, err, "access", func(f *forms, problem string) { f.Team, f.Permission, f.AccessProblem = team, text, problem })
}

// clone creates an environment with the definition of this one.
func (p *pages) clone(v *page.Visit) (page.Answer, error) {
	e, err := p.Find(v, store.OpenEnvironment)
	if err != nil {
		return page.Answer{}, err
	}
	c := environments.Clone{
		Project: strings.TrimSpace(v.Form("project")), Name: strings.TrimSpace(v.Form("name")),
		History: v.Form("history") == "on", Access: v.Form("access") == "on", Tags: v.Form("tags") == "on", VersionTags: v.Form("versions") == "on",
	}
	made, err := p.Environments.Clone(v.Context(), v.Who, e.Environment, c)
	return page.Changed(v, problemOf(err), Path(made), func(v *page.Visit, problem string) (view.Page, error) {
		return p.settingsPage(v, func(f *forms) {
			f.Clone = c
			f.CloneProblems = locate(problem)
		})
	})
}

// remove deletes the environment, whose name the visitor has typed.
func (p *pages) remove(v *page.Visit) (page.Answer, error) {
	e, err := p.Find(v, store.AdminEnvironment)
	if err != nil {
		return page.Answer{}, err
	}
	confirm := strings.TrimSpace(v.Form("confirm"))
	if wanted := e.Project + "/" + e.Name; confirm != wanted {
		err = fault.Invalid("This is not %s.", wanted)
	} else {
		err = p.Environments.Delete(v.Context(), v.Who, e.Environment)
	}
	answer, err := page.Changed(v, err, at(v).path(), func(v *page.Visit, problem string) (view.Page, error) {
		return p.settingsPage(v, func(f *forms) { f.DeleteProblem = problem })
	})
	if err != nil {
		return answer, err
	}
	return answer.Said("Deleted " + e.Project + "/" + e.Name + "."), nil
}
