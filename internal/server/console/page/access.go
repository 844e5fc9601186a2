package page

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
)

type rule int

const (
	anyone rule = iota
	signedIn
	belongs
	member
	admin
	siteAdmin
	onStack
)

// Access states who may use a route.
type Access struct {
	rule  rule
	need  identity.Ability
	fresh bool
}

// The access rules by organization require the parameter {org} in the pattern.
var (
	Anyone    = Access{rule: anyone}
	SignedIn  = Access{rule: signedIn}
	Belongs   = Access{rule: belongs}   // users with any role in the organization
	Member    = Access{rule: member}    // users who may see the organization's lists
	Admin     = Access{rule: admin}     // administrators of the organization
	SiteAdmin = Access{rule: siteAdmin} // administrators of the server
)

// Stack is the access of users with one of the needed abilities on the stack of a path with {org},
// {project} and {stack}.
func Stack(need identity.Ability) Access { return Access{rule: onStack, need: need} }

// Fresh is an access that also requires a recent sign-in.
func Fresh(a Access) Access {
	a.fresh = true
	return a
}

// errSignIn is the error of visitors who must sign in; pages redirect to the sign-in.
var errSignIn = fault.New(fault.KindUnauthenticated, "You are signed out. Sign in to continue.")

// errSignInAgain is the error of visitors whose sign-in is too old.
var errSignInAgain = fault.Forbidden("This needs a sign-in in the last 15 minutes. Sign in again, then repeat it.")

// admit checks a visitor's access, and finds the organization and stack of the path.
func (s *Site) admit(v *Visit, a Access) error {
	if a.rule == anyone {
		return nil
	}
	if !v.SignedIn() {
		return errSignIn
	}
	if err := s.admitTo(v, a); err != nil {
		return err
	}
	if to := v.renamed(); to != "" {
		return GoTo(to)
	}
	if a.fresh && !v.Session.Fresh(time.Now()) {
		return errSignInAgain
	}
	return nil
}

func (s *Site) admitTo(v *Visit, a Access) (err error) {
	ctx := v.Context()
	switch a.rule {
	case onStack:
		v.Who, v.Stack, err = s.opts.Stacks.Find(ctx, v.Who, a.need, v.Param("org"), v.Param("project"), v.Param("stack"))
		if err != nil {
			return err
		}
		v.Org = store.Organization{ID: v.Stack.OrgID, Name: v.Stack.OrgName}
		budget.Of(ctx).ForOrganization(v.Org.Name)
		return nil
	case siteAdmin:
		if !v.Who.User.SiteAdmin {
			return fault.Forbidden("Only administrators of the server may see this page.")
		}
		return nil
	case belongs:
		for _, o := range v.orgs {
			if o.Name == v.Param("org") {
				v.Org = o
				return nil
			}
		}
		var found store.Organization
		if found, err = s.opts.Identity.Named(ctx, v.Param("org")); err != nil {
			return err
		}
		for _, o := range v.orgs { // by a former name
			if o.ID == found.ID {
				v.Org = o
				return nil
			}
		}
		return identity.NoOrganization(v.Param("org"))
	case member, admin:
		v.Org, err = s.opts.Identity.Organization(ctx, v.Who, v.Param("org"))
		if err == nil && a.rule == admin && !v.Who.CanAdminOrg(v.Org.ID) {
			return fault.Forbidden("Only administrators of the organization %q may do this.", v.Org.Name)
		}
		return err
	default:
		return nil
	}
}

// renamed returns the path of a page under the current name of its organization, if the visitor follows a link with a
// former name. The other requests of open pages, and forms, work under both names.
func (v *Visit) renamed() string {
	former := v.Param("org")
	if v.R.Method != http.MethodGet || wantsStream(v.R) || wantsJSON(v.R) || v.Org.Name == "" || former == "" || former == v.Org.Name {
		return ""
	}
	_, rest, _ := strings.Cut(strings.TrimPrefix(v.R.URL.EscapedPath(), "/"), "/")
	path := links.Path(v.Org.Name)
	if rest != "" {
		path += "/" + rest
	}
	if v.R.URL.RawQuery != "" {
		path += "?" + v.R.URL.RawQuery
	}
	return path
}

// LoginPath returns the path of the sign-in page, which leads back to next.
func LoginPath(next string) string {
	if next == "" || next == "/" {
		return "/-/login"
	}
	return "/-/login?next=" + url.QueryEscape(next)
}

// Here returns the path to which a visitor returns after a sign-in: of the page, or after a form, of
// the page with the form, or other.
func Here(v *Visit, other string) string {
	if v.R.Method == http.MethodGet {
		return v.R.URL.RequestURI()
	}
	return Back(v, other)
}

// SafeNext returns a path on this site from an untrusted value, or "/".
func SafeNext(next string) string {
	// Browsers read backslashes as slashes, and redirects shorten paths such as "/./\\host".
	path, _, _ := strings.Cut(next, "?")
	u, err := url.Parse(next)
	if err != nil || strings.Contains(path, `\`) || u.Scheme != "" || u.Host != "" || u.Opaque != "" || len(next) == 0 || next[0] != '/' ||
		strings.HasPrefix(next, "//") {
		return "/"
	}
	return next
}

// fail responds with an error: for a page that requires a sign-in by a redirect, otherwise with a
// page.
func (s *Site) fail(w http.ResponseWriter, v *Visit, err error) {
	again := err == errSignIn || err == errSignInAgain //nolint:errorlint // both are only compared with themselves
	switch {
	case wantsStream(v.R) && again:
		s.bye(w, "signed-out")
		return
	case again && v.R.Method == http.MethodGet && !wantsJSON(v.R):
		http.Redirect(w, v.R, LoginPath(v.R.URL.RequestURI()), http.StatusSeeOther) //nolint:gosec // the path is constant, and its query is checked by SafeNext
		return
	}
	if other, ok := errors.AsType[instead](err); ok {
		if err = s.answer(w, v, other.answer); err == nil {
			return
		}
	}
	if wantsJSON(v.R) {
		web.WriteErrorText(w, v.R, err, Sentence(err))
		return
	}
	web.NoteError(v.R, err)
	status, _ := web.Classify(err)
	s.problem(w, v, status, Sentence(err), again)
}
