package state

import (
	"context"
	"net/http"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// referenceRoutes list the stacks that a stack references, and the stacks that reference it.
type referenceRoutes struct{ stacks *stacks.Service }

func (s *referenceRoutes) register(rt *web.Router) {
	rt.Stack(http.MethodGet, web.StackPath+"/upstreamreferences", identity.StateRead, s.list(s.stacks.Upstream))
	rt.Stack(http.MethodGet, web.StackPath+"/downstreamreferences", identity.StateRead, s.list(s.stacks.Downstream))
}

type referencedStack struct {
	Organization   string `json:"organization"`
	RoutingProject string `json:"routingProject"`
	Name           string `json:"name"`
	Version        int64  `json:"version"`
}

func (s *referenceRoutes) list(find func(context.Context, identity.Principal, store.Stack) ([]store.Stack, error)) func(http.ResponseWriter, *http.Request, store.Stack) error {
	return func(w http.ResponseWriter, r *http.Request, st store.Stack) error {
		found, err := find(r.Context(), web.Principal(r), st)
		out := web.Each(found, func(st store.Stack) referencedStack {
			return referencedStack{st.OrgName, st.Project, st.Name, st.Version}
		})
		return web.Answer(w, r, map[string]any{"referencedStacks": out}, err)
	}
}
