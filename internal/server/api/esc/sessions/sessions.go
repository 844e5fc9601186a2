// Package sessions serves the routes that evaluate environments: checks, sessions, and the encryption of single secrets.
package sessions

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/opening"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

type routes struct {
	identity     *identity.Service
	environments *environments.Service
	opening      *opening.Service
}

// Register adds the routes. Who may call them is decided by the permissions on all environments that an evaluation needs.
func Register(rt *web.Router, ids *identity.Service, envs *environments.Service, o *opening.Service) {
	s := &routes{ids, envs, o}
	const (
		org         = "/api/esc/environments/{org}"
		environment = org + "/{project}/{environment}"
		version     = environment + "/versions/{version}"
	)
	for _, route := range []struct {
		method, path string
		handler      func(w http.ResponseWriter, r *http.Request) error
	}{
		{http.MethodPost, org + "/yaml/check", s.checkDefinition},
		{http.MethodPost, org + "/yaml/open", s.openDefinition},
		{http.MethodGet, org + "/yaml/open/{session}", s.session},
		{http.MethodPost, environment + "/check", s.check},
		{http.MethodPost, version + "/check", s.check},
		{http.MethodPost, environment + "/open", s.open},
		{http.MethodPost, version + "/open", s.open},
		{http.MethodGet, environment + "/open/{session}", s.session},
		{http.MethodPost, environment + "/drafts", s.createDraft},
		{http.MethodGet, environment + "/drafts/{draft}", s.draft},
		{http.MethodPost, environment + "/drafts/{draft}/open", s.openDraft},
		{http.MethodPost, environment + "/encrypt-secrets", s.encryptSecrets},
		{http.MethodPost, environment + "/decrypt-secrets", s.decryptSecrets},
	} {
		rt.Authed(route.method, route.path, web.People, func(w http.ResponseWriter, r *http.Request) error {
			return web.WriteDiagnostics(w, r, route.handler(w, r))
		})
	}
}

// organization returns the organization of a request, to which the caller must belong.
func (s *routes) organization(r *http.Request) (store.Organization, error) {
	p, name := web.Principal(r), web.Param(r, "org")
	o, err := s.identity.Named(r.Context(), name)
	if err == nil && p.Role(o.ID) == "" && (p.Kind != identity.KindJob || p.Org.ID != o.ID) {
		err = identity.NoOrganization(name)
	}
	return o, err
}

// definition returns the definition in the body of a request.
func (s *routes) definition(w http.ResponseWriter, r *http.Request) (opening.Root, error) {
	o, err := s.organization(r)
	if err != nil {
		return opening.Root{}, err
	}
	body, err := request.Read(w, r, request.Bounds{Sent: environments.MaxDefinition, Inflated: environments.MaxDefinition})
	if err != nil {
		return opening.Root{}, err
	}
	overrides, err := overridesOf(r)
	return opening.Root{Org: o, Definition: string(body), Overrides: overrides}, err
}

// maxOverrides is the number of imports that a request may replace.
const maxOverrides = 100

// overridesOf returns the imports that a request replaces: a JSON object in base64.
func overridesOf(r *http.Request) (map[environments.Reference]environments.Reference, error) {
	text := r.URL.Query().Get("environmentOverrides")
	if text == "" {
		return nil, nil
	}
	const invalid = "Invalid query parameter: environmentOverrides must be a JSON object of names of environments, encoded as base64url without padding"
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, fault.Invalid(invalid)
	}
	var names map[string]string
	if json.Unmarshal(raw, &names) != nil || len(names) > maxOverrides {
		return nil, fault.Invalid(invalid+", with at most %d members", maxOverrides)
	}
	out := map[environments.Reference]environments.Reference{}
	for from, to := range names {
		of, err := environments.ParseReference(from)
		if err != nil {
			return nil, err
		}
		if out[of], err = environments.ParseReference(to); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// root returns the revision of an environment that the path of a request names.
func (s *routes) root(r *http.Request, need store.EnvironmentPermission) (opening.Root, error) {
	ref := environments.Reference{Project: web.Param(r, "project"), Name: web.Param(r, "environment"), Version: web.Param(r, "version")}
	found, err := s.environments.Revision(r.Context(), web.Principal(r), need, web.Param(r, "org"), ref)
	if err != nil {
		return opening.Root{}, err
	}
	o, err := s.identity.Named(r.Context(), found.OrgName)
	if err == nil && o.ID != found.OrgID {
		err = fault.Conflict("the organization was renamed; try again")
	}
	return opening.RootOf(o, found), err
}

func (s *routes) checkDefinition(w http.ResponseWriter, r *http.Request) error {
	return s.checkRoot(w, r, func(store.EnvironmentPermission) (opening.Root, error) { return s.definition(w, r) })
}

func (s *routes) check(w http.ResponseWriter, r *http.Request) error {
	return s.checkRoot(w, r, func(need store.EnvironmentPermission) (opening.Root, error) { return s.root(r, need) })
}

func (s *routes) checkRoot(w http.ResponseWriter, r *http.Request, find func(store.EnvironmentPermission) (opening.Root, error)) error {
	show, err := request.QueryFlag(r, "showSecrets")
	if err != nil {
		return err
	}
	need := store.ReadEnvironment
	if show {
		need = store.OpenEnvironment
	}
	root, err := find(need)
	if err != nil {
		return err
	}
	out, err := s.opening.Check(r.Context(), web.Principal(r), root, show)
	return web.Answer(w, r, out, err)
}

func (s *routes) openDefinition(w http.ResponseWriter, r *http.Request) error {
	root, err := s.definition(w, r)
	if err != nil {
		return err
	}
	return s.openRoot(w, r, root)
}

func (s *routes) open(w http.ResponseWriter, r *http.Request) error {
	root, err := s.root(r, store.OpenEnvironment)
	if err != nil {
		return err
	}
	return s.openRoot(w, r, root)
}

func (s *routes) openRoot(w http.ResponseWriter, r *http.Request, root opening.Root) error {
	lifetime := opening.DefaultLifetime
	if text := r.URL.Query().Get("duration"); text != "" {
		var err error
		if lifetime, err = time.ParseDuration(text); err != nil {
			return fault.Invalid("Invalid query parameter: duration must be a duration such as 2h or 30m")
		}
	}
	out, err := s.opening.Open(r.Context(), web.Principal(r), root, lifetime)
	return web.Answer(w, r, out, err)
}

// session responds with the values of a session, or with the value at a path. Proxies must not keep them.
func (s *routes) session(w http.ResponseWriter, r *http.Request) error {
	o, err := s.organization(r)
	if err != nil {
		return err
	}
	environment := web.Param(r, "environment")
	if environment != "" {
		if _, err := s.root(r, store.OpenEnvironment); err != nil { // the caller may have lost the permission meanwhile
			return err
		}
		environment = web.Param(r, "project") + "/" + environment
	}
	values, err := s.opening.Session(r.Context(), web.Principal(r), o.ID, environment, web.Param(r, "session"))
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	path := r.URL.Query().Get("property")
	if path == "" {
		return web.WriteJSON(w, r, http.StatusOK, values)
	}
	value, err := opening.Property(wire.Value{Value: map[string]wire.Value(values.Properties)}, path)
	return web.Answer(w, r, value, err)
}
