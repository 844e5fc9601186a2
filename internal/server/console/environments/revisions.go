package environments

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/difference"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
)

const (
	// offered is the number of revisions that a form offers.
	offered = 200
	// shownVersions bounds the version tags that the page lists.
	shownVersions = 500
	// context is the number of equal lines around the changed ones, and shownLines bounds the lines of a difference.
	context    = 3
	shownLines = 2000
)

type revisionsModel struct {
	place
	environments.Listed
	List        []environments.RevisionInfo
	First, Next string
	Versions    []store.RevisionTag
	Choices     []environments.RevisionInfo // that can be compared
	Form        versionForm
	Write       bool
}

// versionForm is the form for a version tag.
type versionForm struct{ Name, Number, Problem string }

func (p *pages) revisions(v *page.Visit) (view.Page, error) {
	return p.revisionsPage(v, versionForm{}, "")
}

func (p *pages) revisionsPage(v *page.Visit, f versionForm, problem string) (view.Page, error) {
	out, e, err := p.Page(v, Revisions, store.ReadEnvironment)
	if err != nil {
		return out, err
	}
	m := revisionsModel{place: at(v), Listed: e, Form: f, Write: e.Permission >= store.WriteEnvironment}
	var before int64
	if text := v.Query("before"); text != "" {
		if before, err = strconv.ParseInt(text, 10, 64); err != nil || before < 1 {
			return out, fault.Invalid("The parameter %q must be the number of a revision.", "before")
		}
		m.First = Path(e.Environment, "revisions")
	}
	if m.List, err = p.Environments.History(v.Context(), e.Environment, before, rows+1); err != nil {
		return out, err
	}
	if len(m.List) > rows {
		m.List = m.List[:rows]
		m.Next = Path(e.Environment, "revisions") + "?before=" + number(m.List[rows-1].Number)
	}
	if m.Versions, err = p.Environments.VersionTags(v.Context(), e.Environment, "", "", shownVersions); err != nil {
		return out, err
	}
	if m.Choices, err = p.choices(v, e); err != nil {
		return out, err
	}
	out.Body = revisionsBody(m, problem)
	return out, nil
}

// choices are the newest revisions that can be read.
func (p *pages) choices(v *page.Visit, e environments.Listed) ([]environments.RevisionInfo, error) {
	list, err := p.Environments.History(v.Context(), e.Environment, 0, offered)
	var out []environments.RevisionInfo
	for _, r := range list {
		if r.Replacement == 0 {
			out = append(out, r)
		}
	}
	return out, err
}

// options are the revisions of a form, and the chosen one.
func options(list []environments.RevisionInfo, chosen int64) []view.Option {
	var out []view.Option
	found := chosen == 0
	for _, r := range list {
		found = found || r.Number == chosen
		text := "revision " + number(r.Number)
		if len(r.Tags) > 0 {
			text += " (" + strings.Join(r.Tags, ", ") + ")"
		}
		out = append(out, view.Option{Value: number(r.Number), Text: termtext.OneLine(text+", "+r.CreatedAt.UTC().Format("2 Jan 15:04")+", "+r.CreatedBy, 80)})
	}
	if !found {
		out = append(out, view.Option{Value: number(chosen), Text: "revision " + number(chosen)})
	}
	return out
}

// comparePath is the path of the difference of two revisions.
func comparePath(e store.Environment, from, to int64) string {
	return Path(e, "revisions", "compare") + fmt.Sprintf("?from=%d&to=%d", from, to)
}

// previous is the revision with which the difference of a revision begins: the one before it in a list, or 0 for nothing.
func previous(list []environments.RevisionInfo, i int) int64 {
	for _, r := range list[i+1:] {
		if r.Replacement == 0 {
			return r.Number
		}
	}
	if n := list[i].Number; n > 1 && len(list) == rows { // on the next page
		return n - 1
	}
	return 0
}

// retracted says by whom and why a revision is retracted.
func retracted(r environments.RevisionInfo) string {
	text := "retracted by " + r.RetractedBy + "; revision " + number(r.Replacement) + " replaces it"
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}

type compareModel struct {
	place
	environments.Listed
	From, To int64
	Choices  []environments.RevisionInfo
	Notes    []string
	Parts    [][]difference.Line
	More     int // lines that are not shown
	Removed  int
	Added    int
}

// compare shows the difference of two revisions.
func (p *pages) compare(v *page.Visit) (view.Page, error) {
	out, e, err := p.Page(v, Revisions, store.ReadEnvironment)
	if err != nil {
		return out, err
	}
	m := compareModel{place: at(v), Listed: e}
	var from, to store.EnvironmentRevision
	if to, err = p.compared(v, &m, "to", e.LastNumber); err != nil {
		return out, err
	}
	if from, err = p.compared(v, &m, "from", to.Number-1); err != nil {
		return out, err
	}
	m.From, m.To = from.Number, to.Number
	if m.Choices, err = p.choices(v, e); err != nil {
		return out, err
	}
	// The lines, three times.
	lines := strings.Count(from.Definition, "\n") + strings.Count(to.Definition, "\n")
	if err := budget.Of(v.Context()).Take(v.Context(), int64(3*(len(from.Definition)+len(to.Definition))+200*lines)); err != nil {
		return out, err
	}
	list := difference.Lines(shown(from.Definition), shown(to.Definition))
	for _, l := range list {
		switch l.Op {
		case difference.Removed:
			m.Removed++
		case difference.Added:
			m.Added++
		}
	}
	left := shownLines
	for _, part := range difference.Around(list, context) {
		if n := len(part); n > left {
			part = part[:left]
			m.More += n - left
		}
		if left -= len(part); len(part) > 0 {
			m.Parts = append(m.Parts, part)
		}
	}
	out.Title = fmt.Sprintf("Revisions %d and %d of %s/%s", m.From, m.To, e.Project, e.Name)
	out.Body, out.Live = compareBody(m), nil
	return out, nil
}

// compared returns the revision that a parameter names; the zero value for 0.
func (p *pages) compared(v *page.Visit, m *compareModel, name string, otherwise int64) (store.EnvironmentRevision, error) {
	n := max(0, otherwise)
	if text := v.Query(name); text != "" {
		var err error
		if n, err = strconv.ParseInt(text, 10, 64); err != nil || n < 0 {
			return store.EnvironmentRevision{}, fault.Invalid("The parameter %q must be the number of a revision.", name)
		}
	}
	if n == 0 {
		return store.EnvironmentRevision{}, nil
	}
	found, err := p.Environments.Revision(v.Context(), v.Who, store.ReadEnvironment, v.Org.Name, environments.Reference{Project: m.Project, Name: m.Name, Version: number(n)})
	if err == nil && found.Revision.Number != n {
		m.Notes = append(m.Notes, fmt.Sprintf("Revision %d is retracted. Revision %d replaces it.", n, found.Revision.Number))
	}
	return found.Revision, err
}

// totals says how many lines differ.
func (m compareModel) totals() string {
	if m.Removed+m.Added == 0 {
		return "The definitions are equal."
	}
	return words.Count(m.Removed, "removed line") + ", " + words.Count(m.Added, "added line")
}

// problemOf returns an error of a definition as one that visitors can correct.
func problemOf(err error) error {
	if d, ok := errors.AsType[*environments.DiagnosticsError](err); ok {
		return fault.Invalid("%s", d.Error())
	}
	return err
}

// rollBack makes a new revision with the definition of an earlier one, unless the definition has changed since the page was
// shown.
func (p *pages) rollBack(v *page.Visit) (page.Answer, error) {
	e, err := p.Find(v, store.WriteEnvironment)
	if err != nil {
		return page.Answer{}, err
	}
	version := v.Form("version")
	found, err := p.Environments.Revision(v.Context(), v.Who, store.WriteEnvironment, v.Org.Name, environments.Reference{Project: e.Project, Name: e.Name, Version: version})
	var made environments.Updated
	if err == nil {
		condition := ""
		if newest, err := strconv.ParseInt(v.Form("newest"), 10, 64); err == nil {
			condition = environments.ETag(e.ID, newest)
		}
		made, err = p.Environments.Update(v.Context(), v.Who, e.Environment, found.Revision.Definition, condition)
	}
	answer, err := page.Changed(v, problemOf(err), Path(e.Environment), func(v *page.Visit, problem string) (view.Page, error) {
		return p.definitionPage(v, version, problem)
	})
	if made.Environment.LastNumber > e.LastNumber {
		answer = answer.Said(fmt.Sprintf("Revision %d has the definition of revision %d.", made.Environment.LastNumber, found.Revision.Number))
	}
	return answer, err
}

// retract retracts a revision.
func (p *pages) retract(v *page.Visit) (page.Answer, error) {
	e, err := p.Find(v, store.WriteEnvironment)
	if err != nil {
		return page.Answer{}, err
	}
	version, how := v.Form("version"), environments.Retraction{Reason: v.Form("reason")}
	if text := v.Form("replacement"); text != "" {
		if how.Replacement, err = strconv.ParseInt(text, 10, 64); err != nil {
			err = fault.Invalid("The replacement must be the number of a revision.")
		}
	}
	if err == nil {
		err = p.Environments.Retract(v.Context(), v.Who, e.Environment, version, how)
	}
	return page.Changed(v, err, Path(e.Environment, "revisions"), func(v *page.Visit, problem string) (view.Page, error) {
		return p.definitionPage(v, version, problem)
	})
}

// setVersion lets a version tag name a revision, or removes the tag.
func (p *pages) setVersion(v *page.Visit) (page.Answer, error) {
	e, err := p.Find(v, store.WriteEnvironment)
	if err != nil {
		return page.Answer{}, err
	}
	f := versionForm{Name: strings.TrimSpace(v.Form("tag")), Number: strings.TrimSpace(v.Form("number"))}
	path := Path(e.Environment, "revisions", "tags")
	n, err := strconv.ParseInt(f.Number, 10, 64)
	if err != nil || n < 0 {
		err = fault.Invalid("Choose the number of a revision.")
	}
	var before int64
	var text string
	switch {
	case err != nil:
	case v.Form("action") == "remove":
		var t store.RevisionTag
		if t, err = p.Environments.VersionTag(v.Context(), e.Environment, f.Name); err == nil {
			before, text = t.Number, "Removed the version tag "+f.Name+"."
			err = p.Environments.RemoveVersionTag(v.Context(), v.Who, e.Environment, f.Name)
		}
	default:
		before, err = p.Environments.PutVersionTag(v.Context(), v.Who, e.Environment, f.Name, n)
		text = "The version tag " + f.Name + " names revision " + number(n) + "."
	}
	answer, err := page.Changed(v, err, Path(e.Environment, "revisions")+"#versions", func(v *page.Visit, problem string) (view.Page, error) {
		f.Problem = problem
		return p.revisionsPage(v, f, "")
	})
	switch {
	case f.Problem != "" || err != nil:
		return answer, err
	case before == 0:
		return answer.Undo(text, path, "tag", f.Name, "number", "0", "action", "remove"), nil
	}
	return answer.Undo(text, path, "tag", f.Name, "number", number(before), "action", "set"), nil
}
