package definition

import (
	"errors"
	"strconv"
	"time"

	environmentpages "workflowagent/internal/server/console/environments"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/opening"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

const (
	// shown is the number of values on the page.
	shown = 1000
	// openFor is the time for which an opened environment shows secrets.
	openFor = 15 * time.Minute
	// Bounds of the secrets that a page keeps, in bytes: of one, and of all.
	maxSecret  = 64 << 10
	maxSecrets = 1 << 20
)

// valuesModel is the page with the values of an environment.
type valuesModel struct {
	Env      environments.Listed
	Version  string // that the visitor asked for
	Revision int64  // that is opened
	Opened   time.Time
	Result   result
	Problem  string
	Problems []problem
}

func (m valuesModel) path(more ...string) string {
	return environmentpages.Path(m.Env.Environment, append([]string{environmentpages.Values}, more...)...)
}

// until is when the page no longer shows secrets.
func (m valuesModel) until() time.Time { return m.Opened.Add(openFor) }

// values asks whether to open the environment: it calls providers, and is recorded.
func (p *pages) values(v *page.Visit) (view.Page, error) {
	e, err := p.Find(v, store.OpenEnvironment)
	if err != nil {
		return view.Page{}, err
	}
	return p.valuesPage(v, valuesModel{Env: e, Version: v.Query("version")})
}

func (p *pages) valuesPage(v *page.Visit, m valuesModel) (view.Page, error) {
	out, _, err := p.Page(v, environmentpages.Values, store.OpenEnvironment)
	if err != nil {
		return view.Page{}, err
	}
	out.Body, out.LiveAt = valuesBody(m), m.path()
	return out, nil
}

// open shows the values. The secrets among them are sealed for the visitor's session.
func (p *pages) open(v *page.Visit) (page.Answer, error) {
	e, err := p.Find(v, store.OpenEnvironment)
	if err != nil {
		return page.Answer{}, err
	}
	m := valuesModel{Env: e, Version: v.Form("version")}
	found, err := p.Deps.Environments.Revision(v.Context(), v.Who, store.OpenEnvironment, v.Org.Name, environments.Reference{Project: e.Project, Name: e.Name, Version: m.Version})
	if err == nil && found.ID != e.ID {
		err = v.Who.NoEnvironment(v.Org.Name, e.Project, e.Name)
	}
	if err != nil {
		return page.Answer{}, err
	}
	values, diagnostics, err := p.Opening.Values(v.Context(), v.Who, opening.RootOf(v.Org, found))
	if wrong, ok := errors.AsType[*environments.DiagnosticsError](err); ok {
		m.Problem, m.Problems = "The environment cannot be opened.", problemsOf(wrong.Diagnostics, nameOf(e.Environment))
	} else if text, ok := page.Correctable(err); ok || fault.KindOf(err) == fault.KindUnavailable {
		if !ok {
			text = page.Sentence(err)
		}
		m.Problem = text
	} else if err != nil {
		return page.Answer{}, err
	}
	if m.Problem != "" {
		again, err := p.valuesPage(v, m)
		return page.Again(again), err
	}
	m.Revision, m.Opened, m.Problems = found.Revision.Number, time.Now(), problemsOf(diagnostics, nameOf(e.Environment))
	left := maxSecrets
	m.Result, err = resultOf(values, nameOf(e.Environment), shown, func(r *row, plain string) (err error) {
		if left -= len(plain); len(plain) > maxSecret || left < 0 {
			r.Long = true
			return nil
		}
		r.Sealed, err = p.Opening.Seal(v.Context(), e.Environment, v.Session.ID, opening.Secret{Path: r.Path, Text: plain, Revision: m.Revision, Until: m.until()})
		return err
	})
	if err != nil {
		return page.Answer{}, err
	}
	opened, err := p.valuesPage(v, m)
	return page.Once(opened), err
}

// secretModel is the page with one secret, for browsers without scripts.
type secretModel struct {
	valuesModel
	opening.Secret
}

// reveal shows one secret of an environment that the visitor has opened.
func (p *pages) reveal(v *page.Visit) (page.Answer, error) {
	e, err := p.Find(v, store.OpenEnvironment)
	if err != nil {
		return page.Answer{}, err
	}
	secret, err := p.Opening.Reveal(v.Context(), v.Who, e.Environment, v.Session.ID, v.Form("sealed"))
	if err != nil {
		return page.Answer{}, err
	}
	if v.ByScript() {
		return page.Data(map[string]string{"text": secret.Text}), nil
	}
	m := secretModel{valuesModel{Env: e}, secret}
	out, err := p.valuesPage(v, m.valuesModel)
	out.Body = secretBody(m)
	return page.Once(out), err
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
