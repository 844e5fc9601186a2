package state

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// resourceRoutes list the resources in states. The region in their responses is "", because this
// server has no regions.
type resourceRoutes struct{ stacks *stacks.Service }

func (s *resourceRoutes) register(rt *web.Router) {
	resources := web.StackPath + "/resources"
	rt.Stack(http.MethodGet, resources+"/count", identity.StateRead, s.count)
	rt.Stack(http.MethodGet, resources+"/latest", identity.StateRead, s.list)
	rt.Stack(http.MethodGet, resources+"/latest/{urn}", identity.StateRead, s.one)
	rt.Stack(http.MethodGet, resources+"/{version}", identity.StateRead, s.list)
	rt.Stack(http.MethodGet, resources+"/{version}/{urn}", identity.StateRead, s.one)
}

func (s *resourceRoutes) count(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	return web.WriteJSON(w, r, http.StatusOK, map[string]int64{"resourceCount": st.ResourceCount, "version": st.Version})
}

// versionOf returns the version in the path, or 0 if the path names none.
func versionOf(r *http.Request) (int64, error) {
	text := web.Param(r, "version")
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 1 {
		return 0, fault.Invalid("invalid 'version' parameter")
	}
	return v, nil
}

func (s *resourceRoutes) resources(r *http.Request, st store.Stack) (stacks.Resources, error) {
	version, err := versionOf(r)
	if err != nil {
		return stacks.Resources{}, err
	}
	return s.stacks.Resources(r.Context(), st, version)
}

type resourceInfo struct {
	Resource json.RawMessage `json:"resource"`
}

func (s *resourceRoutes) list(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	found, err := s.resources(r, st)
	if err != nil {
		return err
	}
	head := fmt.Sprintf(`{"region":"","version":%d,"resources":[`, found.Version)
	return web.StreamList(w, r, stacks.PublicMemory(found.All()), head, func(add web.Add) error {
		for res := range found.All() {
			body, err := stacks.PublicResource(res)
			if err := add(resourceInfo{body}, err); err != nil {
				return err
			}
		}
		return nil
	}, func(int) string { return "]}" })
}

// one responds with a resource. Clients escape the slashes in its URN.
func (s *resourceRoutes) one(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	found, err := s.resources(r, st)
	if err != nil {
		return err
	}
	res, err := found.Find(web.Param(r, "urn"))
	if err != nil {
		return err
	}
	if err := budget.Of(r.Context()).Take(r.Context(), stacks.PublicMemory(slices.Values([][]byte{res}))); err != nil {
		return err
	}
	body, err := stacks.PublicResource(res)
	return web.Answer(w, r, map[string]any{"region": "", "version": found.Version, "resource": resourceInfo{body}}, err)
}
