package environments

import (
	"strconv"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
)

type usersModel struct {
	place
	environments.Listed
	List        []store.Referrer
	First, Next string
}

// users shows what refers to an environment.
func (p *pages) users(v *page.Visit) (view.Page, error) {
	out, e, err := p.Page(v, Users, store.ReadEnvironment)
	if err != nil {
		return out, err
	}
	m := usersModel{place: at(v), Listed: e}
	path := Path(e.Environment, "users")
	f := environments.ReferrerFilter{AllRevisions: true, Newest: true, Limit: rows}
	if text := v.Query("offset"); text != "" {
		offset, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return out, fault.Invalid("The parameter %q must be a number.", "offset")
		}
		f.Offset, m.First = int(offset), path
	}
	var next int
	if m.List, next, err = p.Environments.Referrers(v.Context(), v.Who, e.Environment, f); err != nil {
		return out, err
	}
	if next > 0 {
		m.Next = path + "?offset=" + strconv.Itoa(next)
	}
	out.Body = usersBody(m)
	return out, nil
}

// href is the page of what refers to the environment.
func (m usersModel) href(r store.Referrer) string {
	if r.Stack {
		return links.Path(m.Org, r.Project, r.Name)
	}
	return Path(store.Environment{OrgName: m.Org, Project: r.Project, Name: r.Name})
}

// lastIn says which version of the referrer refers to the environment.
func lastIn(r store.Referrer) string {
	if r.Stack {
		return "update " + number(r.Number)
	}
	return "revision " + number(r.Number)
}
