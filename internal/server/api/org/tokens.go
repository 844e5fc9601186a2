package org

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
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
	rt.Authed(http.MethodGet, "/api/user/tokens", users, web.OwnToken(t.listPersonal))
	rt.Authed(http.MethodPost, "/api/user/tokens", users, web.OwnToken(t.createPersonal))
	rt.Authed(http.MethodDelete, "/api/user/tokens/{tokenID}", users, web.OwnToken(t.deletePersonal))
	const org, team = "/api/orgs/{org}/tokens", "/api/orgs/{org}/teams/{team}/tokens"
	rt.Org(http.MethodGet, org, web.NeedAdmin, t.listOrg)
	rt.Org(http.MethodPost, org, web.NeedGrant, t.createOrg)
	rt.Org(http.MethodDelete, org+"/{tokenID}", web.NeedGrant, t.deleteOrg)
	rt.Org(http.MethodGet, team, web.NeedAdmin, t.listTeam)
	rt.Org(http.MethodPost, team, web.NeedGrant, t.createTeam)
	rt.Org(http.MethodDelete, team+"/{tokenID}", web.NeedGrant, t.deleteTeam)
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

// list responds with a page of the selected tokens.
func (t *tokenRoutes) list(w http.ResponseWriter, r *http.Request, f store.TokenFilter) error {
	f.Limit, f.Contains = defaultPage, r.URL.Query().Get("filter")
	if err := request.QueryInt(r, "maxResults", &f.Limit); err != nil {
		return err
	}
	if f.Limit < 1 {
		return fault.Invalid("Invalid query parameter: maxResults must be above 0")
	}
	f.Limit = min(f.Limit, maxPage)
	after, err := continuation(r)
	if err != nil {
		return err
	}
	if at, id, ok := strings.Cut(after, " "); ok {
		micros, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return errContinuation
		}
		f.After = store.Token{ID: id, CreatedAt: time.UnixMicro(micros)}
	}
	tokens, more, err := t.identity.Tokens(r.Context(), f)
	if err != nil {
		return err
	}
	body := tokenBodies(tokens)
	if more {
		last := tokens[len(tokens)-1]
		body["continuationToken"] = continueAfter(fmt.Sprintf("%d %s", last.CreatedAt.UnixMicro(), last.ID))
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}

type newTokenBody struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Expires     int64  `json:"expires"` // Unix seconds; 0 means never
	Admin       bool   `json:"admin"`
	RoleID      string `json:"roleID"`
}

func (b newTokenBody) expires() (time.Time, error) {
	if b.Expires < 0 {
		return time.Time{}, fault.Invalid("member \"expires\" must be a time in Unix seconds, or 0 for never")
	}
	if b.Expires == 0 {
		return time.Time{}, nil
	}
	const latest = 1 << 40 // far beyond the limit, but a [time.Time] can hold it
	return time.Unix(min(b.Expires, latest), 0).UTC(), nil
}

func (t *tokenRoutes) listPersonal(w http.ResponseWriter, r *http.Request) error {
	return t.list(w, r, store.TokenFilter{Kind: store.PersonalToken, UserID: web.Principal(r).User.ID})
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
	return t.list(w, r, store.TokenFilter{Kind: store.OrgToken, OrgID: o.ID})
}

func (t *tokenRoutes) createOrg(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return t.createNamed(w, r, identity.NewTokenSpec{Kind: store.OrgToken, OrgID: o.ID})
}

// createNamed creates a token of an organization or a team.
func (t *tokenRoutes) createNamed(w http.ResponseWriter, r *http.Request, spec identity.NewTokenSpec) error {
	var body newTokenBody
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	if body.Name == "" {
		return fault.Invalid("member \"name\" is required")
	}
	if body.RoleID != "" {
		return fault.Invalid("member \"roleID\" is not supported: this server has no custom roles; use \"admin\", or a team's token")
	}
	expires, err := body.expires()
	if err != nil {
		return err
	}
	spec.Name, spec.Description, spec.Expires, spec.CreatedBy = body.Name, body.Description, expires, web.Principal(r).User.ID
	spec.Admin = body.Admin && spec.Kind == store.OrgToken
	return t.create(w, r, spec)
}

func (t *tokenRoutes) deleteOrg(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	err := t.identity.DeleteToken(r.Context(), web.Param(r, "tokenID"), func(tok store.Token) bool {
		return tok.Kind == store.OrgToken && tok.OrgID == o.ID
	})
	return web.Done(w, err)
}

func (t *tokenRoutes) listTeam(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	team, err := t.identity.Team(r.Context(), o.ID, web.Param(r, "team"))
	if err != nil {
		return err
	}
	return t.list(w, r, store.TokenFilter{Kind: store.TeamToken, TeamID: team.ID})
}

func (t *tokenRoutes) createTeam(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	team, err := t.identity.Team(r.Context(), o.ID, web.Param(r, "team"))
	if err != nil {
		return err
	}
	return t.createNamed(w, r, identity.NewTokenSpec{Kind: store.TeamToken, OrgID: o.ID, TeamID: team.ID})
}

func (t *tokenRoutes) deleteTeam(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	team, err := t.identity.Team(r.Context(), o.ID, web.Param(r, "team"))
	if err != nil {
		return err
	}
	err = t.identity.DeleteToken(r.Context(), web.Param(r, "tokenID"), func(tok store.Token) bool {
		return tok.Kind == store.TeamToken && tok.TeamID == team.ID
	})
	return web.Done(w, err)
}
