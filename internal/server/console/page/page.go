// Package page routes the requests of browsers to pages. It knows sessions, permissions, security
// headers, errors and the event stream of a page; the other packages of the console contain the
// pages themselves.
package page

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/console/assets"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// bodyLimit bounds the forms that browsers send, in bytes.
const bodyLimit = 1 << 20

// Options are the options of [New].
type Options struct {
	Log      *logrus.Entry
	Identity *identity.Service
	Stacks   *stacks.Service
	Sessions Sessions
	// Restored returns the time of the backup from which the server was restored while an organization waits for its
	// release, and the zero time otherwise.
	Restored func(ctx context.Context, orgID string) (backup time.Time, err error)
	// Starred returns the stacks of an organization that a user has marked.
	Starred func(ctx context.Context, who identity.Principal, org store.Organization) ([]view.StarLink, error)
	// Numbers returns the numbers of the navigation, of what a user sees in an organization.
	Numbers func(ctx context.Context, who identity.Principal, org store.Organization) (view.Numbers, error)
	// Notes delivers the notifications that render open pages again.
	Notes Notes
	// Memory is the budget of all requests; nil means no limit.
	Memory *budget.Budget
	// URL is the console's address for browsers, without a trailing slash.
	URL string
	// Plain is the address on which the server accepts connections of other machines without TLS, or "".
	Plain string
	// Draining is closed when the server begins to stop.
	Draining <-chan struct{}
}

// account is middleware that charges the memory of a request to the budget. A stream charges each
// rendering on its own.
func (s *Site) account(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !wantsStream(r) {
			begin := s.opts.Memory.Begin
			if r.Method == http.MethodGet {
				begin = s.opts.Memory.BeginRead
			}
			ctx, done := begin(r.Context())
			defer done()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// Sessions finds the user of a session's cookie.
type Sessions interface {
	Resume(ctx context.Context, cookie string, use bool) (identity.Principal, signin.Session, error)
}

// Notes are the notifications of the database. [store.DB] implements it.
type Notes interface {
	Subscribe(channel string, fn func(payload string)) (cancel func())
}

// Route is a registered route.
type Route struct {
	Method, Pattern string
	Access          Access
	// Raw reports whether the response is no page.
	Raw bool
}

// Site is the console's routes.
type Site struct {
	opts    Options
	mux     chi.Router
	routes  []Route
	streams streams
}

// Visit is one request, with what its route's access has found.
type Visit struct {
	R       *http.Request
	Who     identity.Principal
	Session signin.Session
	// Org is the organization of the path, for access by organization and by stack.
	Org store.Organization
	// Stack is the stack of the path, for access by stack.
	Stack store.Stack
	orgs  []store.Organization
}

// Context returns the request's context.
func (v *Visit) Context() context.Context { return v.R.Context() }

// Param returns a decoded parameter of the path.
func (v *Visit) Param(name string) string { return web.Param(v.R, name) }

// Query returns a parameter of the query, or "".
func (v *Visit) Query(name string) string { return v.R.URL.Query().Get(name) }

// Form returns a value of the posted form, or "".
func (v *Visit) Form(name string) string { return v.R.PostForm.Get(name) }

// Values returns the posted form.
func (v *Visit) Values() url.Values { return v.R.PostForm }

// StackPath returns the path of a page about a stack.
func StackPath(st store.Stack, more ...string) string {
	return links.Path(append([]string{st.OrgName, st.Project, st.Name}, more...)...)
}

// ResourcePath returns the path of what the console shows about a resource in the state of a stack.
func ResourcePath(st store.Stack, urn string) string {
	return StackPath(st, "resources") + "?urn=" + url.QueryEscape(urn) + "#res"
}

// Lines returns the lines of a posted value that contain more than spaces.
func (v *Visit) Lines(name string) []string {
	lines := []string{}
	for line := range strings.Lines(v.Form(name)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// Orgs returns the organizations of the user.
func (v *Visit) Orgs() []store.Organization { return v.orgs }

// preferred returns the organization in which a user begins: the default one, or else the first.
func (v *Visit) preferred() store.Organization {
	for _, o := range v.orgs {
		if o.Name == v.Who.User.DefaultOrg {
			return o
		}
	}
	return v.orgs[0]
}

// Home returns the path on which a user begins, or "" if the user belongs to no organization.
func (v *Visit) Home() string {
	if len(v.orgs) == 0 {
		return ""
	}
	return links.Path(v.preferred().Name)
}

// Address returns the address of the browser, without the port.
func (v *Visit) Address() string { return web.Address(v.R) }

// New returns a site without pages.
func New(o Options) *Site {
	s := &Site{opts: o, mux: chi.NewRouter()}
	limits := request.Limits{Memory: o.Memory}.WithDefaults()
	s.mux.Use(web.CutStalled(limits.Stall, limits.Rate), s.account, web.RecoverPanic, web.StripSlash, s.protect)
	s.mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		v, _ := s.visitor(r)
		s.fail(w, v, fault.NotFound("The page %s does not exist.", r.URL.Path))
	})
	s.mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		v, _ := s.visitor(r)
		s.fail(w, v, &web.Error{Status: http.StatusMethodNotAllowed, Message: "The page does not support the method " + r.Method + "."})
	})
	s.mux.Get(assets.Pattern, assets.Serve)
	return s
}

// Handler returns the handler of all pages.
func (s *Site) Handler() http.Handler { return s.mux }

// Routes returns the registered routes.
func (s *Site) Routes() []Route { return s.routes }

// URL returns the console's address for browsers, without a trailing slash.
func (s *Site) URL() string { return s.opts.URL }

// View registers a page. An open page whose Live or Feed is set receives its changes from the same
// URL as an event stream.
func (s *Site) View(pattern string, a Access, show func(v *Visit) (view.Page, error)) {
	s.handle(http.MethodGet, pattern, a, func(w http.ResponseWriter, v *Visit) error {
		if wantsStream(v.R) {
			return s.stream(w, v, a, show)
		}
		p, err := show(v)
		if err != nil {
			return err
		}
		return s.render(w, v, http.StatusOK, p)
	})
}

// Action registers the target of a form.
func (s *Site) Action(pattern string, a Access, do func(v *Visit) (Answer, error)) {
	s.handle(http.MethodPost, pattern, a, func(w http.ResponseWriter, v *Visit) error {
		answer, err := do(v)
		if err != nil {
			return err
		}
		return s.answer(w, v, answer)
	})
}

// Raw registers a GET route whose response is not a page.
func (s *Site) Raw(pattern string, a Access, serve func(w http.ResponseWriter, v *Visit) error) {
	s.handle(http.MethodGet, pattern, a, serve)
	s.routes[len(s.routes)-1].Raw = true
}

func (s *Site) handle(method, pattern string, a Access, h func(w http.ResponseWriter, v *Visit) error) {
	s.routes = append(s.routes, Route{Method: method, Pattern: pattern, Access: a})
	s.mux.MethodFunc(method, pattern, func(w http.ResponseWriter, r *http.Request) {
		if prefetch(r) && effects.MatchString(pattern) {
			w.WriteHeader(http.StatusServiceUnavailable) // the browser requests it again when it is wanted
			return
		}
		v, err := s.visit(w, r, a)
		if err == nil {
			err = h(w, v)
		}
		if err != nil {
			s.fail(w, v, err)
		}
	})
}

// visit returns the visit of a request, whose visitor may use the route. The visitor is admitted when the form has
// arrived: the session can end, and rights can change, while a browser sends it. A stranger may not send a large form.
func (s *Site) visit(w http.ResponseWriter, r *http.Request, a Access) (*Visit, error) {
	v := &Visit{R: r}
	whole, err := web.ReadEarly(r)
	if err == nil && !whole {
		if v, err = s.visitor(r); err == nil {
			err = s.admit(v, a)
		}
	}
	if err == nil && r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(w, r.Body, bodyLimit)
		if err = r.ParseForm(); err != nil {
			err = fault.Wrap(fault.KindInvalid, err, "The form cannot be read: it is too large or damaged.")
		}
	}
	if err != nil {
		return v, err
	}
	if v, err = s.visitor(r); err == nil {
		err = s.admit(v, a)
	}
	return v, err
}

// visitor returns the visit of a request. An invalid session is no error: its visitor is not signed
// in.
func (s *Site) visitor(r *http.Request) (*Visit, error) {
	r = r.WithContext(audit.With(r.Context(), audit.Source{Address: web.Address(r), Way: audit.WayConsole}))
	v := &Visit{R: r}
	cookie := s.SecretOf(v, sessionCookie)
	if cookie == "" {
		return v, nil
	}
	var who identity.Principal
	var session signin.Session
	err := s.opts.Identity.Guard(r.Context(), web.Address(r), cookie, func() (err error) {
		who, session, err = s.opts.Sessions.Resume(r.Context(), cookie, byUser(r))
		return err
	})
	if fault.KindOf(err) == fault.KindUnauthenticated {
		return v, nil
	}
	if err != nil {
		return v, err
	}
	v.Who, v.Session = who, session
	v.R = r.WithContext(audit.As(r.Context(), who.AuditActor()))
	v.orgs, err = s.opts.Identity.OrganizationsOf(r.Context(), who)
	return v, err
}

// byUser reports whether a user makes a request, and not the script of an open page: an
// open page alone must not keep its session alive.
func byUser(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return !wantsStream(r) && (mode == "" || mode == "navigate")
}

// SignedIn reports whether the visitor has a session.
func (v *Visit) SignedIn() bool { return v.Session.ID != "" }

// streamEnd bounds the duration of an event stream. It is below the limit of all responses.
const streamEnd = 25 * time.Minute
