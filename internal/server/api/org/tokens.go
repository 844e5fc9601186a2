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

// tokenHandler serves a route of tokens that have the same owner and kind; of has only these.
type tokenHandler func(w http.ResponseWriter, r *http.Request, of identity.NewTokenSpec) error

func (t *tokenRoutes) register(rt *web.Router) {
	for _, route := range []struct {
		method, path string
		need         web.Need
		handler      tokenHandler
	}{
		{http.MethodGet, "/tokens", web.NeedAdmin, t.list},
		{http.MethodPost, "/tokens", web.NeedGrant, t.create},
		{http.MethodDelete, "/tokens/{tokenID}", web.NeedGrant, t.delete},
	} {
		rt.Authed(route.method, "/api/user"+route.path, []identity.Kind{identity.KindUser}, web.OwnToken(func(w http.ResponseWriter, r *http.Request) error {
			return route.handler(w, r, identity.NewTokenSpec{Kind: store.PersonalToken, UserID: web.Principal(r).User.ID})
		}))
		rt.Org(route.method, "/api/orgs/{org}"+route.path, route.need, func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
			return route.handler(w, r, identity.NewTokenSpec{Kind: store.OrgToken, OrgID: o.ID})
		})
		rt.Org(route.method, "/api/orgs/{org}/teams/{team}"+route.path, route.need, func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
			team, err := t.identity.Team(r.Context(), o.ID, web.Param(r, "team"))
			if err != nil {
				return err
			}
			return route.handler(w, r, identity.NewTokenSpec{Kind: store.TeamToken, OrgID: o.ID, TeamID: team.ID})
		})
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
	return map[string]any{"tokens": web.Each(tokens, func(t store.Token) tokenBody {
		kind := map[store.TokenKind]string{
			store.PersonalToken: "personal", store.OrgToken: "organization", store.TeamToken: "team", store.PoolToken: "pool",
		}[t.Kind]
		return tokenBody{
			ID: t.ID, Name: t.Name, Description: t.Description, Created: web.Stamp(t.CreatedAt), CreatedBy: t.CreatedBy,
			LastUsed: web.Unix(t.LastUsedAt), Expires: web.Unix(t.ExpiresAt), Admin: t.Admin, Type: kind,
		}
	})}
}

// list responds with a page of the tokens.
func (t *tokenRoutes) list(w http.ResponseWriter, r *http.Request, of identity.NewTokenSpec) error {
	f := store.TokenFilter{Kind: of.Kind, UserID: of.UserID, OrgID: of.OrgID, TeamID: of.TeamID, Contains: r.URL.Query().Get("filter")}
	var err error
	if f.Limit, err = request.MaxResults(r); err != nil {
		return err
	}
	after, err := request.After(r)
	if err != nil {
		return err
	}
	if at, id, ok := strings.Cut(after, " "); ok {
		micros, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return request.ErrContinuation
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
		body["continuationToken"] = request.Continuation(fmt.Sprintf("%d %s", last.CreatedAt.UnixMicro(), last.ID))
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

func (t *tokenRoutes) create(w http.ResponseWriter, r *http.Request, of identity.NewTokenSpec) error {
	var body newTokenBody
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	if of.Kind != store.PersonalToken {
		if body.Name == "" {
			return fault.Invalid("member \"name\" is required")
		}
		if body.RoleID != "" {
			return fault.Invalid("member \"roleID\" is not supported: this server has no custom roles; use \"admin\", or a team's token")
		}
		of.Name, of.Admin = body.Name, body.Admin && of.Kind == store.OrgToken
	}
	expires, err := body.expires()
	if err != nil {
		return err
	}
	of.Description, of.Expires, of.CreatedBy = body.Description, expires, web.Principal(r).User.ID
	text, id, err := t.identity.CreateToken(r.Context(), of)
	return web.Answer(w, r, map[string]string{"id": id, "tokenValue": text}, err)
}

func (t *tokenRoutes) delete(w http.ResponseWriter, r *http.Request, of identity.NewTokenSpec) error {
	return web.Done(w, t.identity.DeleteToken(r.Context(), web.Param(r, "tokenID"), func(tok store.Token) bool {
		switch of.Kind {
		case store.PersonalToken:
			return tok.Kind == of.Kind && tok.UserID == of.UserID
		case store.TeamToken:
			return tok.Kind == of.Kind && tok.TeamID == of.TeamID
		default:
			return tok.Kind == of.Kind && tok.OrgID == of.OrgID
		}
	}))
}
