package stack

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/a-h/templ"

	console "workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/changes/diff"
	"workflowagent/internal/server/store"
)

func (p *pages) update(v *page.Visit) (view.Page, error) {
	e, err := p.updateOf(v)
	if err != nil {
		return view.Page{}, err
	}
	return p.updatePage(v, e)
}

// updateOf returns the update or preview of a path.
func (p *pages) updateOf(v *page.Visit) (stacks.Entry, error) {
	if id := v.Param("update"); id != "" {
		u, err := p.Stacks.FindUpdate(v.Context(), v.Stack, id)
		if err != nil {
			return stacks.Entry{}, err
		}
		list, err := p.Stacks.Entries(v.Context(), []store.Update{u})
		if err != nil {
			return stacks.Entry{}, err
		}
		return list[0], nil
	}
	version, err := strconv.ParseInt(v.Param("version"), 10, 64)
	if err != nil {
		return stacks.Entry{}, fault.NotFound("The stack has no update %q.", v.Param("version"))
	}
	return p.Stacks.Version(v.Context(), v.Stack, version)
}

// tree returns the tree of an update.
func (p *pages) tree(v *page.Visit, e stacks.Entry) (console.Model, error) {
	tree, err := p.Stacks.Changes(v.Context(), v.Who, v.Stack, e.Update)
	if err != nil {
		return console.Model{}, err
	}
	path := updatePath(v.Stack, e.Update)
	m := console.Model{
		Tree: tree, Base: path, RowsURL: path + "/changes", Detail: path,
		Over: stacks.Status(e.Status).Finished(), Preview: e.Preview, Now: time.Now(),
	}
	m.Resume(v.Query)
	return m, nil
}

// rows sends a part of the tree of an update or preview.
func (p *pages) rows(w http.ResponseWriter, v *page.Visit) error {
	e, err := p.updateOf(v)
	if err != nil {
		return err
	}
	m, err := p.tree(v, e)
	if err != nil {
		return err
	}
	return m.Window(w, v)
}

// updateMark returns the mark of an update in title and icon.
func updateMark(status string) string {
	switch stacks.Status(status) {
	case stacks.Running:
		return "run"
	case stacks.Succeeded:
		return "ok"
	case stacks.Failed, stacks.Cancelled:
		return "bad"
	default:
		return "queued"
	}
}

func (p *pages) updatePage(v *page.Visit, e stacks.Entry) (view.Page, error) {
	out, err := p.Heads.Page(v, Runs)
	if err != nil {
		return out, err
	}
	tree, err := p.tree(v, e)
	if err != nil {
		return out, err
	}
	described, err := p.Stacks.Describe(v.Context(), e.Update)
	if err != nil {
		return out, err
	}
	name := fmt.Sprintf("%s %d", e.Kind, e.Version)
	if e.Preview {
		name = "preview"
	}
	out.Title, out.Mark = name+" of "+v.Stack.Project+"/"+v.Stack.Name, updateMark(e.Status)
	if stacks.Status(e.Status).Finished() {
		out.Live = nil
	} else {
		out.Live = append(out.Live, view.Topic{Channel: stacks.UpdateTopic, About: e.ID}, view.Topic{Channel: stacks.ChangesTopic, About: e.ID})
	}
	var message string
	_ = json.Unmarshal(described.Message, &message) // CreateUpdate encoded it
	deployment := ""
	if e.DeploymentID != "" {
		d, err := p.Deployments.Get(v.Context(), v.Stack, e.DeploymentID)
		if err != nil && fault.KindOf(err) != fault.KindNotFound {
			return out, err
		}
		if err == nil {
			deployment = strconv.FormatInt(d.Version, 10)
		}
	}
	m := updateModel{
		St: v.Stack, Entry: e, Name: name, View: cmp.Or(v.Query("view"), "changes"), Message: message, Deployment: deployment,
		Environment: pairsOf(described.Environment), Config: configOf(described.Config), Path: updatePath(v.Stack, e.Update),
		Changes: tree,
	}
	content, err := p.updateView(v, &m)
	if err != nil {
		return out, err
	}
	out.Body = updateDetail(m, content)
	return out, nil
}

// updateView returns what a view of an update shows below the head.
func (p *pages) updateView(v *page.Visit, m *updateModel) (templ.Component, error) {
	switch m.View {
	case "diff":
		return p.diff(v, m)
	case "messages":
		return console.Diagnostics(m.Changes), nil
	case "timeline":
		return console.Timeline(m.Changes), nil
	case "config":
		return pairSection("The update used no configuration.", m.Config), nil
	case "environment":
		return pairSection("The client did not describe its environment.", m.Environment), nil
	default:
		m.View = "changes"
		return console.View(m.Changes), nil
	}
}

// shownDiffs bounds the resources whose diffs one page shows without a choice.
const shownDiffs = 20

// diff shows the diff of one resource, or of the first changed ones.
func (p *pages) diff(v *page.Visit, m *updateModel) (templ.Component, error) {
	urns, more := []string{v.Query("urn")}, 0
	if urns[0] == "" {
		urns = nil
		for _, r := range m.Changes.Rows {
			switch {
			case !r.Changed():
			case len(urns) < shownDiffs:
				urns = append(urns, r.URN)
			default:
				more++
			}
		}
	}
	steps, err := p.Stacks.StepsOf(v.Context(), v.Who, v.Stack, m.Update, urns...)
	if err != nil {
		return nil, err
	}
	list := make([]templ.Component, 0, len(urns))
	for _, urn := range urns {
		var diffs []diff.Diff
		for _, step := range steps[urn] {
			d, err := diff.Of(step)
			if err != nil {
				return nil, err
			}
			if d.Op != "replace" || len(steps[urn]) == 1 { // the other steps of a replacement describe it
				diffs = append(diffs, d)
			}
		}
		list = append(list, console.DiffView(urn, diffs, m.Path))
	}
	return diffList(list, more), nil
}

type updateModel struct {
	St store.Stack
	stacks.Entry
	Name        string
	Path        string
	View        string
	Changes     console.Model
	Message     string
	Deployment  string
	Environment []pair
	Config      []pair
}

// updateViews are the views of an update.
var updateViews = []view.Part{
	{Name: "changes", Text: "Changes"},
	{Name: "diff", Text: "Diff"},
	{Name: "messages", Text: "Messages"},
	{Name: "timeline", Text: "Timeline"},
	{Name: "config", Text: "Configuration"},
	{Name: "environment", Text: "Environment"},
}

func updatePath(st store.Stack, u store.Update) string {
	if u.Preview {
		return page.StackPath(st, "previews", u.ID)
	}
	return page.StackPath(st, "updates", strconv.FormatInt(u.Version, 10))
}

type pair struct{ Name, Value string }

func pairsOf(raw json.RawMessage) []pair {
	return sortedPairs(raw, func(v string) string { return v })
}

// configOf returns an update's configuration without secrets.
func configOf(raw json.RawMessage) []pair {
	return sortedPairs(raw, func(v stacks.ConfigValue) string {
		if v.Secret {
			return diff.Secret
		}
		return v.String
	})
}

// sortedPairs returns the members of a JSON object by name, or nil if raw is none.
func sortedPairs[V any](raw json.RawMessage, text func(V) string) []pair {
	var m map[string]V
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	out := make([]pair, 0, len(m))
	for k, v := range m {
		out = append(out, pair{k, text(v)})
	}
	slices.SortFunc(out, func(a, b pair) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
