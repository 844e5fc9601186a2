// Package policy serves the routes of policy packs and policy groups.
package policy

import (
	"net/http"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/store"
)

type routes struct{ policies *policies.Service }

// Register adds the routes of policy packs and groups. A published pack has no effect until a group enables it, so a
// caller with an exchanged token may publish, but not change groups.
func Register(rt *web.Router, s *policies.Service) {
	p := &routes{s}
	const (
		packs   = "/api/orgs/{org}/policypacks"
		pack    = packs + "/{pack}"
		version = pack + "/versions/{version}"
		groups  = "/api/orgs/{org}/policygroups"
		group   = groups + "/{group}"
	)
	for _, route := range []struct {
		method, path string
		need         web.Need
		handler      func(w http.ResponseWriter, r *http.Request, o store.Organization) error
	}{
		{http.MethodGet, packs, web.NeedMember, p.listPacks},
		{http.MethodPost, packs, web.NeedAdmin, p.publish},
		{http.MethodDelete, pack, web.NeedGrant, p.removePack},
		{http.MethodGet, pack + "/latest", web.NeedMember, p.getVersion},
		{http.MethodGet, version, web.NeedMember, p.getVersion},
		{http.MethodDelete, version, web.NeedGrant, p.removePack},
		{http.MethodGet, version + "/schema", web.NeedMember, p.schema},
		{http.MethodPost, version + "/complete", web.NeedAdmin, p.complete},
		{http.MethodGet, groups, web.NeedMember, p.listGroups},
		{http.MethodPost, groups, web.NeedGrant, p.createGroup},
		{http.MethodGet, groups + "/metadata", web.NeedMember, p.coverage},
		{http.MethodGet, group, web.NeedMember, p.getGroup},
		{http.MethodPatch, group, web.NeedGrant, p.changeGroup},
		{http.MethodDelete, group, web.NeedGrant, p.deleteGroup},
		{http.MethodPatch, group + "/batch", web.NeedGrant, p.changeGroupInBatch},
		{http.MethodGet, group + "/stacks", web.NeedMember, p.listMembers},
		{http.MethodGet, group + "/accounts", web.NeedMember, p.listAccounts},
	} {
		rt.Org(route.method, route.path, route.need, route.handler)
	}
	rt.Stack(http.MethodGet, web.StackPath+"/policypacks", identity.StateRead, p.packsOfStack)
	rt.Stack(http.MethodGet, web.StackPath+"/policygroups", identity.StateRead, p.groupsOfStack)
	rt.Public(http.MethodPut, policies.ArchivePath+"{id}", p.upload)
	rt.Public(http.MethodGet, policies.ArchivePath+"{id}", p.download)
}

// warn adds a warning to a response, which clients print.
func warn(w http.ResponseWriter, text string) { w.Header().Add("X-Pulumi-Warning", text) }
