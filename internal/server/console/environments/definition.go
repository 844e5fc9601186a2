package environments

import (
	"strconv"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/opening"
	"workflowagent/internal/server/store"
)

// maxNumbered is the number of lines up to which the page numbers those of a definition.
const maxNumbered = 5000

// shown is a definition as pages show it.
func shown(definition string) string { return opening.Hide(definition) }

type definitionModel struct {
	place
	environments.Listed
	Revision store.EnvironmentRevision
	Asked    string // the version that the visitor asked for, if it leads to another revision
	Imports  []environments.Reference
	Tags     []store.RevisionTag // of the revision
	Problem  string
}

// newest reports whether the page shows the newest revision.
func (m definitionModel) newest() bool { return m.Revision.Number == m.LastNumber }

// canChange reports whether the visitor may roll back to the revision and retract it.
func (m definitionModel) canChange() bool {
	return !m.newest() && m.Permission >= store.WriteEnvironment
}

// lines are those of the definition, or nil if it is too long to number them.
func (m definitionModel) lines() []string {
	text := shown(m.Revision.Definition)
	if strings.Count(text, "\n") > maxNumbered {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// importPath is the path of the page of an imported environment.
func (m definitionModel) importPath(r environments.Reference) string {
	e := store.Environment{OrgName: m.Org, Project: r.Project, Name: r.Name}
	if r.Version == "" {
		return Path(e)
	}
	return VersionPath(e, r.Version)
}

// definition shows a revision: the newest one, or that of the parameter version.
func (p *pages) definition(v *page.Visit) (view.Page, error) {
	return p.definitionPage(v, v.Query("version"), "")
}

func (p *pages) definitionPage(v *page.Visit, version, problem string) (view.Page, error) {
	out, e, err := p.Page(v, Definition, store.ReadEnvironment)
	if err != nil {
		return out, err
	}
	found, err := p.Environments.Revision(v.Context(), v.Who, store.ReadEnvironment, v.Org.Name, environments.Reference{Project: e.Project, Name: e.Name, Version: version})
	if err != nil {
		return out, err
	}
	m := definitionModel{place: at(v), Listed: e, Revision: found.Revision, Problem: problem}
	if n, err := strconv.ParseInt(version, 10, 64); err == nil && n != found.Revision.Number {
		m.Asked = version
	}
	if m.Imports, err = p.Environments.Imports(v.Context(), e.Environment, m.Revision.Number); err != nil {
		return out, err
	}
	if m.Tags, err = p.Environments.VersionTags(v.Context(), e.Environment, number(m.Revision.Number), "", rows); err != nil {
		return out, err
	}
	if !m.newest() {
		out.Title = "Revision " + number(m.Revision.Number) + " of " + out.Title
		out.Object.Number, out.Object.Href = "@"+number(m.Revision.Number), Path(e.Environment)
	}
	if m.canChange() {
		out.Object.Actions = revisionActions(m)
	}
	out.Body = definitionBody(m)
	return out, nil
}
