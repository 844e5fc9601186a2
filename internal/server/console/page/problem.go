package page

import (
	"net/http"
	"slices"
	"strings"

	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
)

// trouble is what a page says about a request that failed.
type trouble struct {
	Icon, Title, Message string
	// Who says who can help, or is "".
	Who string
	// SignIn is the path of a sign-in that helps, or "".
	SignIn string
	// Relatives are the nearest pages that the visitor may open.
	Relatives []view.Crumb
	Request   string
	// Form are the names and values of the form that was sent to Target, so that the visitor can send it again.
	Target string
	Form   []view.Option
}

// icons are those of problems by their status.
var icons = map[int]string{http.StatusForbidden: "lock", http.StatusNotFound: "search"}

// problem writes the page of an error.
func (s *Site) problem(w http.ResponseWriter, v *Visit, status int, message string, signIn bool) {
	m := trouble{
		Icon: icons[status], Title: http.StatusText(status), Message: message, Request: w.Header().Get("X-Pulumi-Request-ID"), SignIn: signInLink(v, signIn), Relatives: relatives(v),
	}
	if m.Icon == "" {
		m.Icon = "help"
	}
	if signIn && v.R.Method == http.MethodPost {
		m.Target, m.Form = SafeNext(v.R.URL.RequestURI()), kept(v.R.PostForm)
	}
	if status == http.StatusForbidden && !signIn {
		m.Who = s.whoHelps(v)
	}
	p := view.Page{Title: m.Title, Bar: &view.Bar{Title: m.Title}, Body: problem(m)}
	if !v.SignedIn() {
		p.Layout, p.Bar, p.Body = view.Gate, nil, problemAtGate(m)
	}
	if err := s.render(w, v, status, p); err != nil {
		http.Error(w, message, status)
	}
}

// named is the number of administrators whom a page names.
const named = 3

// whoHelps says who can give the visitor the right that is missing.
func (s *Site) whoHelps(v *Visit) string {
	org := v.Org
	switch {
	case strings.HasPrefix(v.R.URL.Path, "/-/server"):
		return "To get the right, ask an administrator of the server."
	case org.ID == "" || !v.Who.CanReadOrg(org.ID):
		return ""
	}
	text := "To get the right, ask an administrator of " + org.Name
	found, err := s.opts.Identity.ListMembers(v.Context(), store.MemberFilter{OrgID: org.ID, Role: identity.RoleAdmin, Limit: named})
	if err != nil || len(found.List) == 0 {
		return text + "." // the page says what failed, and this only helps
	}
	var logins []string
	for _, m := range found.List {
		logins = append(logins, m.Login)
	}
	return text + ": " + strings.Join(logins, ", ") + "."
}

// relatives returns the pages that are nearest to the one that failed.
func relatives(v *Visit) []view.Crumb {
	var list []view.Crumb
	add := func(text string, path ...string) {
		list = append(list, view.Crumb{Text: text, Href: links.Path(path...)})
	}
	org, project := v.Param("org"), v.Param("project")
	if v.Stack.ID != "" {
		add("Open "+v.Stack.Project+"/"+v.Stack.Name, v.Stack.OrgName, v.Stack.Project, v.Stack.Name)
	}
	if slices.ContainsFunc(v.orgs, func(o store.Organization) bool { return o.Name == org }) {
		switch {
		case v.Param("environment") != "":
			add("Environments of "+org, org, "-", "environments")
		case project != "":
			add("Stacks of "+project, org, project)
		}
		add("All stacks of "+org, org, "-", "stacks")
		add("Home", org)
		return list
	}
	return append(list, view.Crumb{Text: "Start page", Href: "/"})
}
