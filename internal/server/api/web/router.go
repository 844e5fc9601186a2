// Package web provides the functions that all routes share: routing with authentication, responses,
// errors, and the access log.
package web

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// Router registers routes together with the callers that each route permits.
type Router struct {
	mux      chi.Router
	identity *identity.Service
	stacks   *stacks.Service
	environs *environments.Service
}

// StackPath is the path of a stack.
const StackPath = "/api/stacks/{org}/{project}/{stack}"

// EnvironmentPath is the path of an environment.
const EnvironmentPath = "/api/esc/environments/{org}/{project}/{environment}"

// NewRouter returns a router that adds routes to mux.
func NewRouter(mux chi.Router, ids *identity.Service, st *stacks.Service, envs *environments.Service) *Router {
	return &Router{mux, ids, st, envs}
}

// handler writes a response, or returns the error for the response. Once the response has begun,
// handler must return nil.
type handler func(w http.ResponseWriter, r *http.Request) error

// Kinds of callers.
var (
	// People are users, organization tokens and the pulumi processes of jobs.
	People  = []identity.Kind{identity.KindUser, identity.KindOrg, identity.KindJob}
	members = []identity.Kind{identity.KindUser, identity.KindOrg}
	// Agents are the agents of a pool.
	Agents = []identity.Kind{identity.KindPool}
	// Runners are the agent and the runner of one claimed job.
	Runners = []identity.Kind{identity.KindRunner}
)

// Need is the permission that a route requires in an organization.
type Need int

// Permissions in an organization.
const (
	NeedMember   Need = iota // list its objects, create stacks
	NeedOwnToken             // change objects that the caller administers
	NeedAdmin                // administer the organization
	NeedGrant                // administer access to the organization
)

var errExchanged = fault.Forbidden("a token obtained in exchange for an identity token does not permit this; use a user or organization token")

// Public registers a route without authentication.
func (rt *Router) Public(method, pattern string, h handler) {
	rt.mux.MethodFunc(method, pattern, func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(audit.With(r.Context(), audit.Source{Address: Address(r), Way: audit.WayAPI}))
		if err := h(w, r); err != nil {
			WriteError(w, r, err)
		}
	})
}

// Authed registers a route for authenticated callers of the given kinds. The handler gets the
// caller from [Principal].
func (rt *Router) Authed(method, pattern string, kinds []identity.Kind, h handler) {
	authenticate := func(ctx context.Context, text string) (*identity.Principal, error) {
		p, err := rt.identity.Authenticate(ctx, text)
		return &p, err
	}
	rt.authed(method, pattern, kinds, authenticate, h)
}

// Poll registers a route for agents whose handler checks the caller's token again; see
// [identity.Service.AuthenticatePoll].
func (rt *Router) Poll(method, pattern string, h handler) {
	rt.authed(method, pattern, Agents, rt.identity.AuthenticatePoll, h)
}

func (rt *Router) authed(method, pattern string, kinds []identity.Kind, authenticate func(context.Context, string) (*identity.Principal, error), h handler) {
	rt.Public(method, pattern, func(w http.ResponseWriter, r *http.Request) error {
		r, err := rt.admitWhole(r, kinds, authenticate)
		if err != nil {
			return err
		}
		return h(w, r)
	})
}

// admitWhole is [Router.admit] for a request whose body has arrived, or whose body admits it again at its end.
func (rt *Router) admitWhole(r *http.Request, kinds []identity.Kind, authenticate func(context.Context, string) (*identity.Principal, error)) (*http.Request, error) {
	whole, err := ReadEarly(r)
	if err != nil {
		return nil, err
	}
	if !whole {
		r.Body = &lateBody{ReadCloser: r.Body}
	}
	admitted, err := rt.admit(r, kinds, authenticate)
	if err == nil && !whole {
		atEnd(r, func() error {
			again, err := rt.admit(r, kinds, authenticate)
			if err == nil && !Principal(again).Keeps(Principal(admitted)) {
				err = errRights
			}
			return err
		})
	}
	return admitted, err
}

// errRights is the error of a request whose caller had other rights when it began than when its body had arrived.
var errRights = fault.Conflict("your rights changed while the request arrived; repeat it")

// Guard checks a credential of a request; see [identity.Service.Guard].
func (rt *Router) Guard(r *http.Request, credential string, check func() error) error {
	return rt.identity.Guard(r.Context(), Address(r), credential, check)
}

// Issued makes known that a credential is valid; see [identity.Service.Issued].
func (rt *Router) Issued(credential string) { rt.identity.Issued(credential) }

// admit authenticates a request and returns it with its principal. The handler runs after admit has
// returned, because admit has a large frame, which would otherwise remain on the stack of a held poll.
func (rt *Router) admit(r *http.Request, kinds []identity.Kind, authenticate func(context.Context, string) (*identity.Principal, error)) (*http.Request, error) {
	var p *identity.Principal
	text := Bearer(r, "token")
	err := rt.Guard(r, text, func() (err error) {
		p, err = authenticate(r.Context(), text)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !slices.Contains(kinds, p.Kind) {
		return nil, fault.Forbidden("a token of kind %q may not do this", p.Kind)
	}
	recordOf(r).caller = p.Name()
	if share := budget.Of(r.Context()); p.Org.Name == "" {
		share.ForUser(p.User.ID)
	} else {
		share.ForOrganization(p.Org.Name)
	}
	return withPrincipal(r.WithContext(audit.As(r.Context(), p.AuditActor())), p), nil
}

// Address returns the address of a client, without the port.
func Address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// Org registers a route below an organization. pattern contains {org}.
func (rt *Router) Org(method, pattern string, n Need, h func(w http.ResponseWriter, r *http.Request, o store.Organization) error) {
	rt.Authed(method, pattern, members, func(w http.ResponseWriter, r *http.Request) error {
		p := Principal(r)
		o, err := rt.identity.Organization(r.Context(), p, Param(r, "org"))
		if err != nil {
			return err
		}
		if n >= NeedAdmin && !p.CanAdminOrg(o.ID) {
			return fault.Forbidden("only administrators of %s may do this", o.Name)
		}
		if (n == NeedGrant || n == NeedOwnToken) && !p.CanGrant() {
			return errExchanged
		}
		budget.Of(r.Context()).ForOrganization(o.Name)
		return h(w, r, o)
	})
}

// Stack registers a route below a stack, for callers with one of the needed abilities. pattern
// contains {org}, {project} and {stack}.
func (rt *Router) Stack(method, pattern string, need identity.Ability, h func(w http.ResponseWriter, r *http.Request, st store.Stack) error) {
	rt.Authed(method, pattern, People, func(w http.ResponseWriter, r *http.Request) error {
		p, st, err := rt.stacks.Find(r.Context(), Principal(r), need, Param(r, "org"), Param(r, "project"), Param(r, "stack"))
		if err != nil {
			return err
		}
		atEnd(r, func() error {
			_, now, err := rt.stacks.Find(r.Context(), p, need, Param(r, "org"), Param(r, "project"), Param(r, "stack"))
			if err == nil && now.ID != st.ID {
				err = errRights
			}
			return err
		})
		budget.Of(r.Context()).ForOrganization(st.OrgName)
		return h(w, withPrincipal(r, &p), st)
	})
}

// Environment registers a route below an environment, for callers with a permission on it. pattern contains {org},
// {project} and {environment}.
func (rt *Router) Environment(method, pattern string, need store.EnvironmentPermission, h func(w http.ResponseWriter, r *http.Request, e store.Environment) error) {
	rt.Authed(method, pattern, People, rt.withEnvironment(need, h))
}

// EnvironmentLasting is [Router.Environment] for a route whose effect keeps acting after the caller's token has ended. It
// rejects callers with an exchanged token.
func (rt *Router) EnvironmentLasting(method, pattern string, need store.EnvironmentPermission, h func(w http.ResponseWriter, r *http.Request, e store.Environment) error) {
	rt.Authed(method, pattern, People, OwnToken(rt.withEnvironment(need, h)))
}

func (rt *Router) withEnvironment(need store.EnvironmentPermission, h func(w http.ResponseWriter, r *http.Request, e store.Environment) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		find := func() (store.Environment, error) {
			return rt.environs.Find(r.Context(), Principal(r), need, Param(r, "org"), Param(r, "project"), Param(r, "environment"))
		}
		e, err := find()
		if err != nil {
			return err
		}
		atEnd(r, func() error {
			now, err := find()
			if err == nil && now.ID != e.ID {
				err = errRights
			}
			return err
		})
		budget.Of(r.Context()).ForOrganization(e.OrgName)
		return h(w, r, e)
	}
}

// EnvironmentAccess registers a route below an environment, for callers who may change the permissions on it. It rejects
// callers with an exchanged token.
func (rt *Router) EnvironmentAccess(method, pattern string, h func(w http.ResponseWriter, r *http.Request, e store.Environment) error) {
	rt.Environment(method, pattern, store.AdminEnvironment, func(w http.ResponseWriter, r *http.Request, e store.Environment) error {
		if !Principal(r).CanGrant() {
			return errExchanged
		}
		return h(w, r, e)
	})
}

// OwnToken returns a handler that rejects callers with an exchanged token, and calls h for others.
func OwnToken(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !Principal(r).CanGrant() {
			return errExchanged
		}
		return h(w, r)
	}
}

// StackAccess registers a route below a stack, for callers who may change the permissions on it.
func (rt *Router) StackAccess(method, pattern string, h func(w http.ResponseWriter, r *http.Request, st store.Stack) error) {
	rt.StackLasting(method, pattern, identity.Manage, h)
}

// StackLasting registers a route below a stack whose effect keeps acting after the caller's token has
// ended, such as a schedule. It rejects callers with an exchanged token.
func (rt *Router) StackLasting(method, pattern string, need identity.Ability, h func(w http.ResponseWriter, r *http.Request, st store.Stack) error) {
	rt.Stack(method, pattern, need, func(w http.ResponseWriter, r *http.Request, st store.Stack) error {
		if !Principal(r).CanGrant() {
			return errExchanged
		}
		return h(w, r, st)
	})
}

type principalKey struct{}

// Principal returns the caller of an authenticated route.
func Principal(r *http.Request) identity.Principal {
	if p, ok := r.Context().Value(principalKey{}).(*identity.Principal); ok {
		return *p
	}
	return identity.Principal{}
}

func withPrincipal(r *http.Request, p *identity.Principal) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), principalKey{}, p))
}

// Param returns a decoded path parameter.
func Param(r *http.Request, name string) string {
	v := chi.URLParam(r, name)
	if r.URL.RawPath == "" {
		return v
	}
	// For a request with an escaped path, chi matches that path and does not decode the parameters.
	if dec, err := url.PathUnescape(v); err == nil {
		return dec
	}
	return v
}

// Bearer returns the credential in the Authorization header if the header has the given scheme,
// such as "token" or "update-token". Otherwise, it returns "".
func Bearer(r *http.Request, scheme string) string {
	s, cred, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(s, scheme) {
		return ""
	}
	return strings.TrimSpace(cred)
}

// StripSlash is middleware that removes trailing slashes from paths.
func StripSlash(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.Path; len(p) > 1 && strings.HasSuffix(p, "/") {
			r.URL.Path = strings.TrimRight(p, "/")
			r.URL.RawPath = strings.TrimRight(r.URL.RawPath, "/")
		}
		next.ServeHTTP(w, r)
	})
}
