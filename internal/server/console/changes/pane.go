package changes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/changes/diff"
	"workflowagent/internal/server/stacks/versions"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
)

// Pane is what a page shows about one resource.
type Pane struct {
	Model
	St store.Stack
	// Steps are the differences of the resource, one for each step of the engine.
	Steps []diff.Diff
	// CreatedFirst and DeletedFirst say in which order a replacement happens, if the steps show it.
	CreatedFirst, DeletedFirst bool
	// Old and New are the titles of the values.
	Old, New string
	// Refresh reports that the update is a refresh, which finds what happened to resources outside of Pulumi.
	Refresh bool
	// Dependents is the number of resources that depend on the resource; 0 if it is unknown.
	Dependents int
	History    stacks.Touches
	// Exists reports that the resource is in the current state of the stack, as far as the page knows.
	Exists bool
	// OneColumn shows the values below each other, and Whole also the properties that do not differ.
	OneColumn, Whole bool
}

// Resume reads how a pane shows a difference from the query of a page.
func (p *Pane) Resume(query func(string) string) {
	p.OneColumn, p.Whole = query("columns") == "1", query("same") != ""
}

// to returns the URL of the page with this resource and other parameters.
func (p Pane) to(pairs ...string) string {
	columns, same := "", ""
	if p.OneColumn {
		columns = "1"
	}
	if p.Whole {
		same = "1"
	}
	return with(p.Of(p.URN), append([]string{"columns", columns, "same", same}, pairs...)...)
}

// Update returns the pane of a resource that an update changes. The page is one of a stack.
func Update(v *page.Visit, s *stacks.Service, m Model, u store.Update) (Pane, error) {
	p := Pane{Model: m, St: v.Stack, Old: "before", New: "after"}
	if !m.Over || m.Preview {
		p.New = "planned"
	}
	if p.Refresh = stacks.Kind(u.Kind) == stacks.KindRefresh; p.Refresh {
		p.Old, p.New = "declared", "found"
	}
	p.Resume(v.Query)
	steps, err := s.StepsOf(v.Context(), v.Who, v.Stack, u, m.URN)
	if err != nil {
		return p, err
	}
	if p.Steps, err = diffsOf(u, steps[m.URN]); err != nil {
		return p, err
	}
	p.order(p.Steps)
	p.Steps = decisive(p.Steps)
	p.History, err = s.Touches(v.Context(), v.Who, v.Stack, m.URN, u.Version)
	return p, err
}

// Order finds out in which order an update replaced the resource.
func (p *Pane) Order(v *page.Visit, s *stacks.Service, u store.Update) error {
	if r, _ := p.Row(); r.Op != "replace" {
		return nil
	}
	steps, err := s.StepsOf(v.Context(), v.Who, v.Stack, u, p.URN)
	if err != nil {
		return err
	}
	list, err := diffsOf(u, steps[p.URN])
	p.order(list)
	return err
}

// diffsOf returns the differences of the steps of an update.
func diffsOf(u store.Update, steps [][]byte) (list []diff.Diff, err error) {
	of := diff.Of
	if stacks.Kind(u.Kind) == stacks.KindRefresh {
		of = diff.OfRefresh
	}
	for _, step := range steps {
		d, err := of(step)
		if err != nil {
			return list, err
		}
		list = append(list, d)
	}
	return list, nil
}

// order reads the order of a replacement from its steps. An absent step says nothing.
func (p *Pane) order(steps []diff.Diff) {
	at := func(op string) int { return slices.IndexFunc(steps, func(d diff.Diff) bool { return d.Op == op }) }
	created, deleted := at("create-replacement"), at("delete-replaced")
	p.CreatedFirst = created >= 0 && created < deleted
	p.DeletedFirst = deleted >= 0 && deleted < created
}

// decisive returns the steps that say what changes. The steps of a replacement describe the same difference.
func decisive(steps []diff.Diff) []diff.Diff {
	for _, op := range []string{"create-replacement", "import-replacement", "read-replacement", "replace"} {
		if at := slices.IndexFunc(steps, func(d diff.Diff) bool { return d.Op == op }); at >= 0 {
			return steps[at : at+1]
		}
	}
	if len(steps) > 1 {
		return slices.DeleteFunc(steps, func(d diff.Diff) bool { return d.Op == "same" || len(d.Changes) == 0 })
	}
	return steps
}

// operationWords say what an operation does to a resource: when it is done, before, and while it runs.
var operationWords = map[string]struct{ done, planned, running, failed string }{
	"create":             {"Created", "Will be created", "Being created", "Could not be created"},
	"update":             {"Updated", "Will be updated", "Being updated", "Could not be updated"},
	"replace":            {"Replaced", "Will be replaced", "Being replaced", "Could not be replaced"},
	"delete":             {"Deleted", "Will be deleted", "Being deleted", "Could not be deleted"},
	"import":             {"Imported", "Will be imported", "Being imported", "Could not be imported"},
	"read":               {"Read", "Will be read", "Being read", "Could not be read"},
	"refresh":            {"Refreshed", "Will be refreshed", "Being refreshed", "Could not be refreshed"},
	"discard":            {"Removed from the state", "Will be removed from the state", "Being removed from the state", "Could not be removed from the state"},
	versions.OnlySecrets: {"Only the ciphertexts of secrets differ", "", "", ""},
}

// outside says what a refresh has found, by the operation with which it follows.
var outside = map[string]string{"update": "Changed outside Pulumi", "delete": "Deleted outside Pulumi"}

// did says what happens to the resource.
func (p Pane) did(r changes.Row) string {
	w, known := operationWords[r.Op]
	status := p.status(r)
	switch {
	case !known && status == "unchanged":
		return "Unchanged"
	case !known:
		return cmp.Or(r.Op, status)
	case p.Refresh && (status == "planned" || status == "succeeded") && outside[r.Op] != "":
		return outside[r.Op]
	case status == "failed" && r.State != changes.Failed:
		return "The engine reported an error"
	case status == "failed":
		return w.failed
	case status == "running":
		return w.running
	case status == "interrupted":
		return w.running + " when the update ended"
	case status == "not tried":
		return "Not tried: the update ended before"
	case status == "planned", p.Preview:
		return w.planned
	default:
		return w.done
	}
}

// keys are the properties that force a replacement, if they are known.
func (p Pane) keys(r changes.Row) []string {
	if r.Op != "replace" {
		return nil
	}
	if len(r.ReplaceKeys) > 0 {
		return r.ReplaceKeys
	}
	var keys []string
	for _, d := range p.Steps {
		for _, c := range d.Changes {
			if c.Replace && !slices.Contains(keys, c.Path) {
				keys = append(keys, c.Path)
			}
		}
	}
	return keys
}

// maxKeys is the number of properties that a sentence names.
const maxKeys = 3

// because ends the sentence about a replacement, after the names of the properties.
func (p Pane) because(keys []string) string {
	text := " cannot change in place"
	if len(keys) > maxKeys {
		text = " and " + words.Number(len(keys)-maxKeys) + " more cannot change in place"
	}
	return text + p.turn() + "."
}

func (p Pane) turn() string {
	r, _ := p.Row()
	switch {
	case p.Versions && r.Op == "replace" && !p.CreatedFirst && !p.DeletedFirst && len(p.keys(r)) == 0:
		return ": its id differs"
	case p.CreatedFirst:
		return "; the new one is created first"
	case p.DeletedFirst:
		return "; the old one is deleted first"
	default:
		return ""
	}
}

// line is a line of a difference: the name of a property, or nothing for further lines, and its two values.
type line struct {
	Path     string
	Replace  bool
	Old, New string
	// Del and Ins mark values that differ.
	Del, Ins bool
	// Part marks a line of a longer value, which exists before and after the change.
	Part bool
}

// linesOf returns the lines of a difference. Values of several lines have one for each.
func linesOf(d diff.Diff) []line {
	var out []line
	for _, c := range d.Changes {
		if len(c.Lines) == 0 {
			out = append(out, line{Path: c.Path, Replace: c.Replace, Old: c.Old, New: c.New, Del: c.Kind != diff.Add, Ins: c.Kind != diff.Delete})
			continue
		}
		for i, l := range c.Lines {
			one := line{Old: l.Text, New: l.Text, Del: l.Kind == diff.Delete, Ins: l.Kind == diff.Add}
			if i == 0 {
				one.Path, one.Replace = c.Path, c.Replace
			}
			if one.Del {
				one.New = ""
			}
			if one.Ins {
				one.Old = ""
			}
			out = append(out, one)
		}
	}
	return out
}

// touched says what an update did to the resource.
func touched(t stacks.Touch) string {
	name := fmt.Sprintf("v%d", t.Version)
	w, known := pastWords[t.Row.Op]
	switch {
	case t.Row.State == changes.Failed || t.Row.Errors > 0:
		return name + " failed on it"
	case t.Row.State != changes.Done:
		return name + " did not finish it"
	case t.Row.Op == "update" && len(t.Row.Diff) > 0:
		return name + " changed " + properties(t.Row)
	case known:
		return name + " " + w + " it"
	default:
		return name + ": " + t.Row.Op
	}
}

var pastWords = map[string]string{
	"create": "created", "update": "updated", "replace": "replaced", "delete": "deleted", "import": "imported", "read": "read", "discard": "removed",
}

// properties returns the names of the changed properties of a row as a text.
func properties(r changes.Row) string {
	names := make([]string, 0, maxKeys)
	for _, p := range r.Diff[:min(maxKeys, len(r.Diff))] {
		names = append(names, termtext.OneLine(p.Path, 80))
	}
	text := strings.Join(names, ", ")
	if more := len(r.Diff) - len(names) + r.More; more > 0 {
		text += " and " + words.Number(more) + " more"
	}
	return text
}

// touchIcon returns the mark or else the icon of what an update did to a resource.
func touchIcon(t stacks.Touch) (name string, state bool) {
	if t.Row.State == changes.Failed || t.Row.Errors > 0 {
		return view.MarkFailed, true
	}
	return OpIcon(t.Row.Op), false
}

// after is what follows the time of an update in the history of a resource.
func after(t stacks.Touch) string {
	text := ", " + Who(t.Entry)
	if t.Message != "" {
		text += ", " + oneLine(t.Message)
	}
	return text
}

// Who names who started an update.
func Who(e stacks.Entry) string {
	switch {
	case e.By.Login != "":
		return cmp.Or(e.By.Name, e.By.Login)
	case e.DeploymentID != "":
		return "a deployment"
	default:
		return "a token"
	}
}

// UpdatePath returns the path of the page of an update or preview.
func UpdatePath(st store.Stack, u store.Update) string {
	if u.Preview {
		return page.StackPath(st, "previews", u.ID)
	}
	return page.StackPath(st, "updates", fmt.Sprint(u.Version))
}

// ResourceOf returns the path of the page with what an update or preview did to a resource.
func ResourceOf(st store.Stack, u store.Update, urn string) string {
	return with(UpdatePath(st, u), "urn", urn) + "#diff"
}

func nameOf(urn string) string {
	_, name := changes.Parts(urn)
	return name
}

func unchangedCount(n int) string {
	if n == 1 {
		return "1 unchanged property."
	}
	return words.Number(n) + " unchanged properties."
}
