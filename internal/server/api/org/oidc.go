package org

import (
	"encoding/json"
	"net/http"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/oidc"
	"workflowagent/internal/server/store"
)

type oidcRoutes struct{ oidc *oidc.Service }

func (o *oidcRoutes) register(rt *web.Router) {
	const issuers = "/api/orgs/{org}/oidc/issuers"
	rt.Org(http.MethodGet, issuers, web.NeedAdmin, o.list)
	rt.Org(http.MethodPost, issuers, web.NeedGrant, o.create)
	rt.Org(http.MethodGet, issuers+"/{issuerID}", web.NeedAdmin, o.get)
	rt.Org(http.MethodPatch, issuers+"/{issuerID}", web.NeedGrant, o.patch)
	rt.Org(http.MethodDelete, issuers+"/{issuerID}", web.NeedGrant, o.delete)
	rt.Org(http.MethodPost, issuers+"/{issuerID}/regenerate-thumbprints", web.NeedGrant, o.regenerate)
	rt.Org(http.MethodGet, "/api/orgs/{org}/auth/policies/oidcissuers/{issuerID}", web.NeedAdmin, o.policies)
	rt.Org(http.MethodPatch, "/api/orgs/{org}/auth/policies/{policyID}", web.NeedGrant, o.setPolicies)
	rt.Public(http.MethodPost, "/api/oauth/token", o.token)
}

type issuerBody struct {
	ID            string          `json:"id"`
	Name          string          `json:"name"`
	URL           string          `json:"url"`
	Issuer        string          `json:"issuer"`
	Thumbprints   []string        `json:"thumbprints"`             // never null: the pulumiservice provider requires it
	MaxExpiration int64           `json:"maxExpiration,omitempty"` // seconds
	JWKS          json.RawMessage `json:"jwks,omitempty"`
	Created       string          `json:"created"`
	Modified      string          `json:"modified"`
	LastUsed      string          `json:"lastUsed,omitempty"`
}

func issuerBodyOf(i store.OIDCIssuer) issuerBody {
	body := issuerBody{
		ID: i.ID, Name: i.Name, URL: i.URL, Issuer: i.Issuer, Thumbprints: append([]string{}, i.Thumbprints...),
		MaxExpiration: int64(i.MaxExpiration / time.Second), JWKS: json.RawMessage(i.JWKS),
		Created: web.Stamp(i.CreatedAt), Modified: web.Stamp(i.ModifiedAt),
	}
	if !i.LastUsedAt.IsZero() {
		body.LastUsed = web.Stamp(i.LastUsedAt)
	}
	return body
}

func (o *oidcRoutes) list(w http.ResponseWriter, r *http.Request, org store.Organization) error {
	list, err := o.oidc.Issuers(r.Context(), org.ID)
	return web.Answer(w, r, map[string]any{"oidcIssuers": web.Each(list, issuerBodyOf)}, err)
}

type issuerRequest struct {
	Name          *string         `json:"name"`
	URL           *string         `json:"url"`
	Thumbprints   []string        `json:"thumbprints"`
	MaxExpiration *int64          `json:"maxExpiration"`
	JWKS          json.RawMessage `json:"jwks"`
}

// read decodes a request. It returns the requested lifetime after checking it.
func (q *issuerRequest) read(w http.ResponseWriter, r *http.Request) (maxExpiration *time.Duration, err error) {
	if err := request.Decode(w, r, q); err != nil {
		return nil, err
	}
	if string(q.JWKS) == "null" {
		q.JWKS = nil
	}
	if q.MaxExpiration == nil {
		return nil, nil
	}
	seconds := *q.MaxExpiration
	// Zero means none.
	if limit := int64(oidc.MaxLifetime / time.Second); seconds < 0 || seconds > limit {
		return nil, fault.Invalid("maxExpiration: must be between 1 and %d seconds", limit)
	}
	d := time.Duration(seconds) * time.Second
	return &d, nil
}

func (o *oidcRoutes) create(w http.ResponseWriter, r *http.Request, org store.Organization) error {
	var req issuerRequest
	expiration, err := req.read(w, r)
	if err != nil {
		return err
	}
	reg := oidc.Registration{Thumbprints: req.Thumbprints, JWKS: req.JWKS}
	if req.Name != nil {
		reg.Name = *req.Name
	}
	if req.URL != nil {
		reg.URL = *req.URL
	}
	if expiration != nil {
		reg.MaxExpiration = *expiration
	}
	issuer, err := o.oidc.Register(r.Context(), web.Principal(r), org, reg)
	return web.Answer(w, r, issuerBodyOf(issuer), err)
}

func (o *oidcRoutes) get(w http.ResponseWriter, r *http.Request, org store.Organization) error {
	issuer, err := o.oidc.Issuer(r.Context(), org.ID, web.Param(r, "issuerID"))
	return web.Answer(w, r, issuerBodyOf(issuer), err)
}

func (o *oidcRoutes) patch(w http.ResponseWriter, r *http.Request, org store.Organization) error {
	var req issuerRequest
	expiration, err := req.read(w, r)
	if err != nil {
		return err
	}
	issuer, err := o.oidc.Update(r.Context(), web.Principal(r), org.ID, web.Param(r, "issuerID"), oidc.Change{
		Name: req.Name, Thumbprints: req.Thumbprints, MaxExpiration: expiration, JWKS: req.JWKS,
	})
	return web.Answer(w, r, issuerBodyOf(issuer), err)
}

func (o *oidcRoutes) delete(w http.ResponseWriter, r *http.Request, org store.Organization) error {
	return web.Done(w, o.oidc.Delete(r.Context(), web.Principal(r), org.ID, web.Param(r, "issuerID")))
}

func (o *oidcRoutes) regenerate(w http.ResponseWriter, r *http.Request, org store.Organization) error {
	issuer, err := o.oidc.RegenerateThumbprints(r.Context(), web.Principal(r), org.ID, web.Param(r, "issuerID"))
	return web.Answer(w, r, issuerBodyOf(issuer), err)
}

type policiesBody struct {
	ID       string        `json:"id"`
	Version  int64         `json:"version"`
	Created  string        `json:"created"`
	Modified string        `json:"modified"`
	Policies []oidc.Policy `json:"policies"`
}

func policiesBodyOf(s oidc.PolicySet) policiesBody {
	return policiesBody{s.ID, s.Version, web.Stamp(s.CreatedAt), web.Stamp(s.ModifiedAt), s.Policies}
}

func (o *oidcRoutes) policies(w http.ResponseWriter, r *http.Request, org store.Organization) error {
	set, err := o.oidc.Policies(r.Context(), org.ID, web.Param(r, "issuerID"))
	return web.Answer(w, r, policiesBodyOf(set), err)
}

func (o *oidcRoutes) setPolicies(w http.ResponseWriter, r *http.Request, org store.Organization) error {
	var req struct {
		Policies []oidc.Policy `json:"policies"`
	}
	if err := request.Decode(w, r, &req); err != nil {
		return err
	}
	set, err := o.oidc.SetPolicies(r.Context(), web.Principal(r), org.ID, web.Param(r, "policyID"), req.Policies)
	return web.Answer(w, r, policiesBodyOf(set), err)
}
