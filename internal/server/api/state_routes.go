package api

import (
	"net/http"
	"strconv"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// stateRoutes export and import the states of stacks.
type stateRoutes struct{ stacks *stacks.Service }

func (s *stateRoutes) register(rt *Router) {
	rt.stack(http.MethodGet, stackPath+"/export", identity.StateRead|identity.Outputs, s.export)
	rt.stack(http.MethodGet, stackPath+"/export/{version}", identity.StateRead, s.exportVersion)
	rt.stack(http.MethodPost, stackPath+"/import", identity.Write, s.importState)
}

func (s *stateRoutes) export(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	if !principal(r).Can(st, identity.StateRead) {
		state, err := s.stacks.ExportOutputs(r.Context(), st.ID)
		if err != nil {
			return err
		}
		return writeJSON(w, r, http.StatusOK, state)
	}
	stored, err := s.stacks.Open(r.Context(), st.ID)
	if err != nil {
		return err
	}
	return stream(w, r, 0, func(out *streamed) error { return stored.Export(out) })
}

func (s *stateRoutes) exportVersion(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	version, err := strconv.ParseInt(param(r, "version"), 10, 64)
	if err != nil || version < 1 {
		return fault.Invalid("Bad Request: invalid 'version' parameter")
	}
	stored, err := s.stacks.OpenVersion(r.Context(), st, version)
	if err != nil {
		return err
	}
	return stream(w, r, 0, func(out *streamed) error { return stored.Export(out) })
}

func (s *stateRoutes) importState(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	state, err := readState(w, r)
	if err != nil {
		return err
	}
	u, err := s.stacks.Import(r.Context(), principal(r), st, state)
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, map[string]string{"updateId": u.ID})
}

// readState reads a body that carries a state. Its compressed form is kept.
func readState(w http.ResponseWriter, r *http.Request) (*stacks.State, error) {
	plain, packed, err := readBig(w, r)
	if err != nil {
		return nil, err
	}
	if packed == nil {
		// It is compressed while it is stored.
		if err := budget.Of(r.Context()).Take(r.Context(), gzipMemory); err != nil {
			return nil, err
		}
	}
	return stacks.ParseState(plain, packed)
}
