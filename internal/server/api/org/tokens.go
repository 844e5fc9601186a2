package org

import (
	"net/http"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

type tokenRoutes struct{ identity *identity.Service }

func (t *tokenRoutes) register(rt *web.Router) {
	users := []identity.Kind{identity.KindUser}
	rt.Authed(http.MethodGet, "/api/user/tokens", users, t.listPersonal)
	rt.Authed(http.MethodPost, "/api/user/tokens", users, web.OwnToken(t.createPersonal))
	rt.Authed(http.MethodDelete, "/api/user/tokens/{tokenID}", users, web.OwnToken(t.deletePersonal))
	for _, base := range []string{"/api/orgs/{org}", "/api/orgs/{org}/teams/{team}"} {
		rt.Org(http.MethodGet, base+"/tokens", web.NeedAdmin, t.listOrg)
		rt.Org(http.MethodPost, base+"/tokens", web.NeedGrant, t.createOrg)
		rt.Org(http.MethodDelete, base+"/tokens/{tokenID}", web.NeedGrant, t.deleteOrg)
	}
}

type tokenBody struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Created     string `json:"created"`
	CreatedBy   string `json:"createdBy"`
	LastUsed    int64  `json:"lastUsed"`
	Expires     int64  `json:"expires"`
	Admin       bool   `json:"admin"`
	Type        string `json:"type"`
}

func tokenBodies(tokens []store.Token) map[string]any {
	out := []tokenBody{}
	for _, t := range tokens {
		kind := map[store.TokenKind]string{
			store.PersonalToken: "personal", store.OrgToken: "organization", store.TeamToken: "team", store.PoolToken: "pool",
		}[t.Kind]
		out = append(out, tokenBody{
			ID: t.ID, Name: t.Name, Description: t.Description, Created: web.Stamp(t.CreatedAt), CreatedBy: t.CreatedBy,
			LastUsed: web.Unix(t.LastUsedAt), Expires: web.Unix(t.ExpiresAt), Admin: t.Admin, Type: kind,
		})
	}
	return map[string]any{"tokens": out}
}

type newTokenBody struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Expires     int64  `json:"expires"` // Unix seconds; 0 means never
	Admin       bool   `json:"admin"`
}

func (b newTokenBody) expires() (time.Time, error) {
	if b.Expires < 0 {
		return time.Time{}, fault.Invalid("Bad Request: member \"expires\" must be a time in Unix seconds, or 0 for never")
	}
	if b.Expires == 0 {
		return time.Time{}, nil
	}
	return time.Unix(b.Expires, 0).UTC(), nil
}

func (t *tokenRoutes) listPersonal(w http.ResponseWriter, r *http.Request) error {
	tokens, err := t.identity.PersonalTokens(r.Context(), web.Principal(r).User.ID)
	return web.Answer(w, r, tokenBodies(tokens), err)
}

func (t *tokenRoutes) createPersonal(w http.ResponseWriter, r *http.Request) error {
	var body newTokenBody
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	expires, err := body.expires()
	if err != nil {
		return err
	}
	p := web.Principal(r)
	return t.create(w, r, identity.NewTokenSpec{
		Kind: store.PersonalToken, Description: body.Description, UserID: p.User.ID, CreatedBy: p.User.ID, Expires: expires,
	})
}

func (t *tokenRoutes) create(w http.ResponseWriter, r *http.Request, spec identity.NewTokenSpec) error {
	text, id, err := t.identity.CreateToken(r.Context(), spec)
	return web.Answer(w, r, map[string]string{"id": id, "tokenValue": text}, err)
}

func (t *tokenRoutes) deletePersonal(w http.ResponseWriter, r *http.Request) error {
	me := web.Principal(r).User.ID
	err := t.identity.DeleteToken(r.Context(), web.Param(r, "tokenID"), func(tok store.Token) bool {
		return tok.Kind == store.PersonalToken && tok.UserID == me
	})
	return web.Done(w, err)
}

func (t *tokenRoutes) listOrg(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	tokens, err := t.identity.OrgTokens(r.Context(), o.ID, web.Param(r, "team"))
	return web.Answer(w, r, tokenBodies(tokens), err)
}

func (t *tokenRoutes) createOrg(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body newTokenBody
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	if body.Name == "" {
		return fault.Invalid("Bad Request: member \"name\" is required")
	}
	expires, err := body.expires()
	if err != nil {
		return err
	}
	spec := identity.NewTokenSpec{
		Kind: store.OrgToken, Name: body.Name, Description: body.Description, OrgID: o.ID,
		Admin: body.Admin, CreatedBy: web.Principal(r).User.ID, Expires: expires,
	}
	if team := web.Param(r, "team"); team != "" {
		spec.Kind, spec.Team, spec.Admin = store.TeamToken, team, false
	}
	return t.create(w, r, spec)
}

func (t *tokenRoutes) deleteOrg(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	team := web.Param(r, "team")
	err := t.identity.DeleteToken(r.Context(), web.Param(r, "tokenID"), func(tok store.Token) bool {
		if team != "" {
			return tok.Kind == store.TeamToken && tok.OrgID == o.ID && tok.Description == team
		}
		return tok.Kind == store.OrgToken && tok.OrgID == o.ID
	})
	return web.Done(w, err)
}
