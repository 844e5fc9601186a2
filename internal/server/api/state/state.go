package state

import (
	"net/http"
	"strconv"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

type stateRoutes struct{ stacks *stacks.Service }

func (s *stateRoutes) register(rt *web.Router) {
	rt.Stack(http.MethodGet, web.StackPath+"/export", identity.StateRead|identity.Outputs, s.export)
	rt.Stack(http.MethodGet, web.StackPath+"/export/{version}", identity.StateRead, s.exportVersion)
	rt.Stack(http.MethodPost, web.StackPath+"/import", identity.Write, s.importState)
}

func (s *stateRoutes) export(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	if !web.Principal(r).Can(st, identity.StateRead) {
		state, err := s.stacks.ExportOutputs(r.Context(), st.ID)
		if err != nil {
			return err
		}
		return web.WriteJSON(w, r, http.StatusOK, state)
	}
	stored, err := s.stacks.Open(r.Context(), st.ID)
	if err != nil {
		return err
	}
	return web.Stream(w, r, 0, stored.Export)
}

func (s *stateRoutes) exportVersion(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	version, err := strconv.ParseInt(web.Param(r, "version"), 10, 64)
	if err != nil || version < 1 {
		return fault.Invalid("Bad Request: invalid 'version' parameter")
	}
	stored, err := s.stacks.OpenVersion(r.Context(), st, version)
	if err != nil {
		return err
	}
	return web.Stream(w, r, 0, stored.Export)
}

func (s *stateRoutes) importState(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	state, err := readState(w, r)
	if err != nil {
		return err
	}
	u, err := s.stacks.Import(r.Context(), web.Principal(r), st, state)
	return web.Answer(w, r, map[string]string{"updateId": u.ID}, err)
}

// readState reads a body that carries a state and keeps its compressed form.
func readState(w http.ResponseWriter, r *http.Request) (*stacks.State, error) {
	plain, packed, err := request.ReadState(w, r)
	if err != nil {
		return nil, err
	}
	if packed == nil {
		// The state is compressed while it is stored.
		if err := budget.Of(r.Context()).Take(r.Context(), web.GzipMemory); err != nil {
			return nil, err
		}
	}
	return stacks.ParseState(plain, packed)
}
