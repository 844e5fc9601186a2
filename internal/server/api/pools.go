package api

import (
	"net/http"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
)

// poolRoutes manage agent pools.
type poolRoutes struct {
	pools *pools.Service
	users *userRoutes
}

func (p *poolRoutes) register(rt *Router) {
	const base = "/api/orgs/{org}/agent-pools"
	rt.org(http.MethodGet, base, needMember, p.list)
	rt.org(http.MethodPost, base, needGrant, p.create)
	rt.org(http.MethodGet, base+"/{poolID}", needMember, p.get)
	rt.org(http.MethodPatch, base+"/{poolID}", needGrant, p.patch)
	rt.org(http.MethodDelete, base+"/{poolID}", needGrant, p.delete)
	rt.org(http.MethodGet, base+"/{poolID}/tokens", needAdmin, p.listTokens)
	rt.org(http.MethodPost, base+"/{poolID}/tokens", needGrant, p.addToken)
	rt.org(http.MethodDelete, base+"/{poolID}/tokens/{tokenID}", needGrant, p.revokeToken)
	rt.org(http.MethodPatch, "/api/orgs/{org}", needGrant, func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
		if err := p.patchOrg(w, r, o); err != nil {
			return err
		}
		return p.users.org(w, r, o)
	})
}

// patchOrg changes what this version knows of an organization's settings, the
// default pool, and ignores the rest.
func (p *poolRoutes) patchOrg(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var req struct {
		DefaultPool *string `json:"setDefaultAgentPoolID"`
	}
	if err := decode(w, r, &req); err != nil {
		return err
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
	if err := decode(w, r, &req); err != nil {
		return err
	}
	created, err := p.pools.Create(r.Context(), principal(r), o, req.Name, req.Description)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, map[string]string{"id": created.Pool.ID, "tokenValue": created.Token})
}

// poolBody is a pool in lists; times are Unix seconds.
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
			ID: pool.ID, Name: pool.Name, Description: pool.Description, Created: unix(pool.CreatedAt),
			LastSeen: unix(pool.LastSeenAt), LastDeployment: unix(pool.LastJobAt), Status: onlineWord(pool.Online), IsDefault: pool.Default,
		})
	}
	return writeJSON(w, r, http.StatusOK, body)
}

// agentBody is an agent of a pool. The id is ours.
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
	pool, err := p.pools.Get(r.Context(), o.ID, param(r, "poolID"))
	if err != nil {
		return err
	}
	body := struct {
		ID          string      `json:"id"`
		Name        string      `json:"name"`
		Description string      `json:"description"`
		Created     int64       `json:"created"`
		Agents      []agentBody `json:"agents"`
	}{pool.ID, pool.Name, pool.Description, unix(pool.CreatedAt), []agentBody{}}
	for _, a := range pool.Agents {
		body.Agents = append(body.Agents, agentBody{
			a.AgentID, a.Hostname, a.IP, a.PID, a.Platform, a.Version, onlineWord(a.Online), unix(a.LastSeenAt),
		})
	}
	return writeJSON(w, r, http.StatusOK, body)
}

func (p *poolRoutes) patch(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var req struct {
		Name        *string `json:"name"`
		Description *string `json:"description"`
	}
	if err := decode(w, r, &req); err != nil {
		return err
	}
	pool, err := p.pools.Rename(r.Context(), o.ID, param(r, "poolID"), req.Name, req.Description)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, map[string]string{"name": pool.Name, "description": pool.Description})
}

func (p *poolRoutes) delete(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	force, err := queryFlag(r, "force")
	if err != nil {
		return err
	}
	if err := p.pools.Delete(r.Context(), o.ID, param(r, "poolID"), force, deployments.ForgetPool); err != nil {
		return err
	}
	return noContent(w)
}

func (p *poolRoutes) listTokens(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	tokens, err := p.pools.Tokens(r.Context(), o.ID, param(r, "poolID"))
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, tokenBodies(tokens))
}

func (p *poolRoutes) addToken(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body newTokenBody
	if err := decodeOptional(w, r, &body); err != nil {
		return err
	}
	expires, err := body.expires()
	if err != nil {
		return err
	}
	text, id, err := p.pools.AddToken(r.Context(), principal(r), o.ID, param(r, "poolID"), body.Description, expires)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, map[string]string{"id": id, "tokenValue": text})
}

func (p *poolRoutes) revokeToken(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	if err := p.pools.RevokeToken(r.Context(), principal(r), o.ID, param(r, "poolID"), param(r, "tokenID")); err != nil {
		return err
	}
	return noContent(w)
}
