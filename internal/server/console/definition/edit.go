package definition

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"workflowagent/internal/esc/wire"
	environmentpages "workflowagent/internal/server/console/environments"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/complete"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

const (
	// maxText is the size up to which the editor takes definitions, in bytes. A browser can send three bytes for each one.
	maxText = 256 << 10
	// checked is the number of values that the editor shows.
	checked = 200
	// maxUsers is the number of users of the environment that the editor names.
	maxUsers = 10
)

// editModel is the page with the editor.
type editModel struct {
	Env   environments.Listed
	Text  string
	Base  string // tag of the revision that the text replaces
	Large bool   // the definition is too large for the editor
	// Conflict is the revision that was saved meanwhile, or nil.
	Conflict *store.EnvironmentRevision
	Problem  string // of the form
	Checked  bool   // the text was evaluated
	Refused  bool   // the text was not saved, because it has errors
	Problems []problem
	Result   result
	Users    []store.Referrer
}

// problem is a diagnostic.
type problem struct {
	wire.Diagnostic
	Line, Column int    // 0 if the problem has no place in the text
	Where        string // the place, in words
}

func (p problem) bad() bool { return p.Severity != wire.Warning }

// problemsOf returns diagnostics by line.
func problemsOf(list wire.Diagnostics, own string) []problem {
	out := make([]problem, len(list))
	for i, d := range list {
		out[i].Diagnostic = d
		if d.Range == nil || d.Range.Begin.Line < 1 {
			continue
		}
		begin := d.Range.Begin
		out[i].Where = "line " + strconv.Itoa(begin.Line)
		if d.Range.Environment != "" && d.Range.Environment != own {
			out[i].Where += " of " + d.Range.Environment
			continue
		}
		out[i].Line, out[i].Column = begin.Line, begin.Column
	}
	return out
}

func nameOf(e store.Environment) string { return e.Project + "/" + e.Name }

func (m editModel) path(more ...string) string {
	return environmentpages.Path(m.Env.Environment, append([]string{environmentpages.Edit}, more...)...)
}

// edit shows the newest definition.
func (p *pages) edit(v *page.Visit) (view.Page, error) {
	e, err := p.Find(v, store.WriteEnvironment)
	if err != nil {
		return view.Page{}, err
	}
	m := editModel{Env: e, Base: environments.ETag(e.ID, e.LastNumber)}
	newest, err := p.newest(v, e.Environment)
	if err != nil {
		return view.Page{}, err
	}
	if m.Text = newest.Definition; len(m.Text) > maxText {
		m.Text, m.Large = "", true
	} else if err := p.evaluate(v, &m); err != nil {
		return view.Page{}, err
	}
	return p.editPage(v, m)
}

func (p *pages) newest(v *page.Visit, e store.Environment) (store.EnvironmentRevision, error) {
	found, err := p.Deps.Environments.Revision(v.Context(), v.Who, store.WriteEnvironment, v.Org.Name, environments.Reference{Project: e.Project, Name: e.Name})
	return found.Revision, err
}

func (p *pages) editPage(v *page.Visit, m editModel) (view.Page, error) {
	out, _, err := p.Page(v, environmentpages.Edit, store.WriteEnvironment)
	if err != nil {
		return view.Page{}, err
	}
	m.Users, err = p.users(v, m.Env.Environment)
	out.Layout, out.Body, out.LiveAt = view.Work, editBody(m), m.path()
	out.Skips = []view.Crumb{{Text: "Skip to the definition", Href: "#definition"}}
	return out, err
}

// users returns the first users of the newest revision that the visitor may see.
func (p *pages) users(v *page.Visit, e store.Environment) ([]store.Referrer, error) {
	list, _, err := p.Deps.Environments.Referrers(v.Context(), v.Who, e, environments.ReferrerFilter{Newest: true, AllRevisions: true, Limit: 10 * maxUsers})
	var out []store.Referrer
	seen := map[string]bool{}
	for _, r := range list {
		if !seen[r.ID] && len(out) < maxUsers {
			out = append(out, r)
		}
		seen[r.ID] = true
	}
	return out, err
}

// evaluate adds what the text evaluates to. Without an evaluator, the page says so.
func (p *pages) evaluate(v *page.Visit, m *editModel) error {
	s := source{p, v, m.Env.Environment}
	d, err := p.Opening.Draft(v.Context(), v.Who, s.root(m.Text))
	if kind := fault.KindOf(err); kind == fault.KindUnavailable || kind == fault.KindInvalid {
		d.Diagnostics = wire.Diagnostics{{Summary: page.Sentence(err)}}
	} else if err != nil {
		return err
	}
	m.Checked, m.Problems = true, problemsOf(d.Diagnostics, nameOf(m.Env.Environment))
	m.Result, err = resultOf(d.Values, nameOf(m.Env.Environment), checked, nil)
	return err
}

// entered returns the form of a visitor who may change the environment.
func (p *pages) entered(v *page.Visit) (editModel, error) {
	e, err := p.Find(v, store.WriteEnvironment)
	m := editModel{Env: e, Text: lines(v.Form("definition")), Base: v.Form("base")}
	if err == nil && len(m.Text) > maxText {
		err = fault.New(fault.KindTooLarge, "the editor takes definitions of at most %s: use pulumi env edit %s", words.Bytes(maxText), e.Ref())
	}
	return m, err
}

// lines returns the text of a form, for which browsers end lines with two characters.
func lines(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// check evaluates what was entered, and stores nothing.
func (p *pages) check(v *page.Visit) (page.Answer, error) {
	m, err := p.entered(v)
	if err == nil {
		err = p.evaluate(v, &m)
	}
	if err != nil {
		return page.Answer{}, err
	}
	if v.ByScript() {
		return parts(v, problems(m), resultPart(m))
	}
	shown, err := p.editPage(v, m)
	return page.Once(shown), err
}

// parts answers with parts of the page, which a script puts in their places.
func parts(v *page.Visit, list ...templ.Component) (page.Answer, error) {
	html := make([]string, len(list))
	for i, c := range list {
		var err error
		if html[i], err = v.Part(c); err != nil {
			return page.Answer{}, err
		}
	}
	return page.Data(map[string]any{"parts": html}), nil
}

// save stores what was entered as a new revision. If the definition has changed meanwhile, the visitor gets both texts.
func (p *pages) save(v *page.Visit) (page.Answer, error) {
	m, err := p.entered(v)
	if err != nil {
		return page.Answer{}, err
	}
	// Without a tag, the form would replace whatever is stored.
	made, err := p.Deps.Environments.Update(v.Context(), v.Who, m.Env.Environment, m.Text, cmp.Or(m.Base, "none"))
	if err == nil {
		return saved(v, m, made.Environment.LastNumber), nil
	}
	if wrong, ok := errors.AsType[*environments.DiagnosticsError](err); ok {
		m.Checked, m.Problems = true, problemsOf(wrong.Diagnostics, nameOf(m.Env.Environment))
		m.Refused = true
	} else if text, ok := page.Correctable(err); !ok && fault.KindOf(err) != fault.KindUnavailable {
		return page.Answer{}, err
	} else if err := p.conflict(v, &m); err != nil {
		return page.Answer{}, err
	} else if m.Conflict == nil {
		m.Problem = cmp.Or(text, page.Sentence(err))
	}
	switch {
	case !v.ByScript():
	case m.Checked:
		return parts(v, notice(m), problems(m))
	default: // the problems are those of the last check
		return parts(v, notice(m))
	}
	shown, err := p.editPage(v, m)
	return page.Again(shown), err
}

func saved(v *page.Visit, m editModel, number int64) page.Answer {
	text := "Saved revision " + strconv.FormatInt(number, 10) + "."
	if number == m.Env.LastNumber {
		text = "The definition is as it was."
	}
	if v.ByScript() {
		return page.Data(map[string]string{"location": m.path()}).Said(text)
	}
	return page.See(m.path()).Said(text)
}

// conflict adds the newest revision if the text does not replace it. If it is saved again, it does.
func (p *pages) conflict(v *page.Visit, m *editModel) error {
	e, err := p.Find(v, store.WriteEnvironment)
	if err != nil {
		return err
	}
	tag := environments.ETag(e.ID, e.LastNumber)
	if tag == m.Base {
		return nil
	}
	newest, err := p.newest(v, e.Environment)
	m.Env, m.Base, m.Conflict = e, tag, &newest
	return err
}

// complete suggests what can be written at a place.
func (p *pages) complete(v *page.Visit) (page.Answer, error) {
	e, err := p.Find(v, store.WriteEnvironment)
	if err != nil {
		return page.Answer{}, err
	}
	if len(v.Form("before"))+len(v.Form("after")) > maxText {
		return page.Answer{}, fault.New(fault.KindTooLarge, "the editor takes definitions of at most %s", words.Bytes(maxText))
	}
	answer, err := complete.At(v.Context(), source{p, v, e.Environment}, lines(v.Form("before")), lines(v.Form("after")))
	return page.Data(answer), err
}
