package org

import (
	"net/http"
	"strings"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
)

type poolRoutes struct {
	pools *pools.Service
	users *userRoutes
}

func (p *poolRoutes) register(rt *web.Router) {
	const base = "/api/orgs/{org}/agent-pools"
	rt.Org(http.MethodGet, base, web.NeedMember, p.list)
	rt.Org(http.MethodPost, base, web.NeedGrant, p.create)
	rt.Org(http.MethodGet, base+"/{poolID}", web.NeedMember, p.get)
	rt.Org(http.MethodPatch, base+"/{poolID}", web.NeedGrant, p.patch)
	rt.Org(http.MethodDelete, base+"/{poolID}", web.NeedGrant, p.delete)
	rt.Org(http.MethodGet, base+"/{poolID}/tokens", web.NeedAdmin, p.listTokens)
	rt.Org(http.MethodPost, base+"/{poolID}/tokens", web.NeedGrant, p.addToken)
	rt.Org(http.MethodDelete, base+"/{poolID}/tokens/{tokenID}", web.NeedGrant, p.revokeToken)
	rt.Org(http.MethodPatch, "/api/orgs/{org}", web.NeedGrant, func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
		if err := p.patchOrg(w, r, &o); err != nil {
			return err
		}
		return p.users.metadata(w, r, o)
	})
}

// patchOrg changes the default pool, the default permissions, the default version of pulumi and the rule for
// jobs of one project of an organization. It ignores the other settings in the request.
func (p *poolRoutes) patchOrg(w http.ResponseWriter, r *http.Request, o *store.Organization) error {
	var req struct {
		DefaultPool     *string           `json:"setDefaultAgentPoolID"`
		StackPermission *store.Permission `json:"setDefaultStackPermission"`
		Environment     *string           `json:"setDefaultEnvironmentPermission"`
		PulumiVersion   *string           `json:"setDefaultPulumiVersion"`
		ProjectReads    *bool             `json:"setProjectReads"`
	}
	if err := request.Decode(w, r, &req); err != nil {
		return err
	}
	if req.StackPermission != nil {
		if err := p.users.identity.SetStackPermission(r.Context(), o.ID, *req.StackPermission); err != nil {
			return err
		}
		o.StackPermission = *req.StackPermission
	}
	if req.Environment != nil {
		permission, ok := store.ParseEnvironmentPermission(*req.Environment)
		if !ok {
			return fault.Invalid("the permission %q is unknown; use none, read, open, write or admin", *req.Environment)
		}
		if err := p.users.identity.SetEnvironmentPermission(r.Context(), o.ID, permission); err != nil {
			return err
		}
		o.EnvironmentPermission = permission
	}
	if req.PulumiVersion != nil {
		version := strings.TrimSpace(*req.PulumiVersion)
		if err := p.users.identity.SetPulumiVersion(r.Context(), o.ID, version); err != nil {
			return err
		}
		o.PulumiVersion = version
	}
	if req.ProjectReads != nil {
		if err := p.users.identity.SetProjectReads(r.Context(), o.ID, *req.ProjectReads); err != nil {
			return err
		}
		o.ProjectReads = *req.ProjectReads
	}
	if req.DefaultPool == nil {
		return nil
	}
	return p.pools.SetDefault(r.Context(), o.ID, *req.DefaultPool)
}

func (p *poolRoutes) create(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var req struct {
		Name        string `json:"name"`
		Description string `json:"description"`
	}
	if err := request.Decode(w, r, &req); err != nil {
		return err
	}
	created, err := p.pools.Create(r.Context(), web.Principal(r), o, req.Name, req.Description)
	return web.Answer(w, r, map[string]string{"id": created.Pool.ID, "tokenValue": created.Token}, err)
}

type poolBody struct {
	ID             string `json:"id"`
	Name           string `json:"name"`
	Description    string `json:"description"`
	Created        int64  `json:"created"`
	LastSeen       int64  `json:"lastSeen"`
	LastDeployment int64  `json:"lastDeployment,omitempty"`
	Status         string `json:"status"`
	IsDefault      bool   `json:"isDefault"`
}

func onlineWord(online bool) string {
	if online {
		return "online"
	}
	return "offline"
}

func (p *poolRoutes) list(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	list, defaultPool, err := p.pools.List(r.Context(), o.ID)
	if err != nil {
		return err
	}
	body := struct {
		AgentPools  []poolBody `json:"agentPools"`
		DefaultPool string     `json:"defaultAgentPoolID,omitempty"`
	}{AgentPools: []poolBody{}, DefaultPool: defaultPool}
	for _, pool := range list {
		body.AgentPools = append(body.AgentPools, poolBody{
			ID: pool.ID, Name: pool.Name, Description: pool.Description, Created: web.Unix(pool.CreatedAt),
			LastSeen: web.Unix(pool.LastSeenAt), LastDeployment: web.Unix(pool.LastJobAt), Status: onlineWord(pool.Online), IsDefault: pool.Default,
		})
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}

// agentBody describes an agent of a pool. The id is not in the public API.
type agentBody struct {
	ID       string `json:"id"`
	Hostname string `json:"hostname"`
	IP       string `json:"ip"`
	PID      string `json:"pid"`
	Platform string `json:"platform"`
	Version  string `json:"version"`
	Status   string `json:"status"`
	LastSeen int64  `json:"lastSeen"` // Unix seconds
}

func (p *poolRoutes) get(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	pool, err := p.pools.Get(r.Context(), o.ID, web.Param(r, "poolID"))
	if err != nil {
		return err
	}
	body := struct {
		ID          string      `json:"id"`
		Name        string      `json:"name"`
		Description string      `json:"description"`
		Created     int64       `json:"created"`
		Agents      []agentBody `json:"agents"`
	}{pool.ID, pool.Name, pool.Description, web.Unix(pool.CreatedAt), []agentBody{}}
	for _, a := range pool.Agents {
		body.Agents = append(body.Agents, agentBody{
			a.AgentID, a.Hostname, a.IP, a.PID, a.Platform, a.Version, onlineWord(a.Online), web.Unix(a.LastSeenAt),
		})
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}

func (p *poolRoutes) patch(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var req struct {
		Name        *string `json:"name"`
		Description *string `json:"description"`
	}
	if err := request.Decode(w, r, &req); err != nil {
		return err
	}
	pool, err := p.pools.Rename(r.Context(), o.ID, web.Param(r, "poolID"), req.Name, req.Description)
	return web.Answer(w, r, map[string]string{"name": pool.Name, "description": pool.Description}, err)
}

func (p *poolRoutes) delete(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	force, err := request.QueryFlag(r, "force")
	if err != nil {
		return err
	}
	return web.Done(w, p.pools.Delete(r.Context(), o.ID, web.Param(r, "poolID"), force, deployments.ForgetPool))
}

func (p *poolRoutes) listTokens(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	tokens, err := p.pools.Tokens(r.Context(), o.ID, web.Param(r, "poolID"))
	return web.Answer(w, r, tokenBodies(tokens), err)
}

func (p *poolRoutes) addToken(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body newTokenBody
	if err := request.DecodeOptional(w, r, &body); err != nil {
		return err
	}
	expires, err := body.expires()
	if err != nil {
		return err
	}
	text, id, err := p.pools.AddToken(r.Context(), web.Principal(r), o.ID, web.Param(r, "poolID"), body.Description, expires)
	return web.Answer(w, r, map[string]string{"id": id, "tokenValue": text}, err)
}

func (p *poolRoutes) revokeToken(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return web.Done(w, p.pools.RevokeToken(r.Context(), web.Principal(r), o.ID, web.Param(r, "poolID"), web.Param(r, "tokenID")))
}
