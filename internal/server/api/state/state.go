package state

import (
	"encoding/json"
	"net/http"
	"strconv"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
)

type stateRoutes struct{ stacks *stacks.Service }

func (s *stateRoutes) register(rt *web.Router) {
	rt.Stack(http.MethodGet, web.StackPath+"/export", identity.StateRead|identity.Outputs, s.export)
	rt.Stack(http.MethodGet, web.StackPath+"/outputs", identity.StateRead|identity.Outputs, s.outputs)
	rt.Stack(http.MethodGet, web.StackPath+"/export/{version}", identity.StateRead, s.exportVersion)
	rt.Stack(http.MethodPost, web.StackPath+"/import", identity.Write, s.importState)
}

func (s *stateRoutes) export(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	p := web.Principal(r)
	if !p.Can(st, identity.StateRead) {
		state, err := s.stacks.OpenOutputs(r.Context(), p, st)
		if err != nil {
			return err
		}
		return web.WriteJSON(w, r, http.StatusOK, state)
	}
	stored, err := s.stacks.Open(r.Context(), p, st)
	if err != nil {
		return err
	}
	return web.Stream(w, r, 0, stored.Export)
}

// outputs responds with the stack's outputs, whose secrets are encrypted, and with what decrypts them.
func (s *stateRoutes) outputs(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	state, err := s.stacks.OpenOutputs(r.Context(), web.Principal(r), st)
	if err != nil {
		return err
	}
	answer := map[string]json.RawMessage{}
	set := func(name string, value []byte) {
		if value != nil {
			answer[name] = value
		}
	}
	set("secretsProviders", rawjson.Member(state.Deployment, "secrets_providers"))
	for root := range rawjson.Elements(rawjson.Member(state.Deployment, "resources")) { // at most one
		set("outputs", rawjson.Member(root, "outputs"))
	}
	return web.WriteJSON(w, r, http.StatusOK, answer)
}

func (s *stateRoutes) exportVersion(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	version, err := strconv.ParseInt(web.Param(r, "version"), 10, 64)
	if err != nil || version < 1 {
		return fault.Invalid("invalid 'version' parameter")
	}
	stored, err := s.stacks.OpenVersion(r.Context(), web.Principal(r), st, version)
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

// readState reads a body that contains a state, and keeps its compressed form.
func readState(w http.ResponseWriter, r *http.Request) (*states.State, error) {
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
	return states.Parse(plain, packed)
}

// readVerbatim reads a body that contains a numbered state.
func readVerbatim(w http.ResponseWriter, r *http.Request) (*states.State, int64, error) {
	body, err := request.Read(w, r, request.State(r))
	if err != nil {
		return nil, 0, err
	}
	if !json.Valid(body) {
		return nil, 0, fault.Invalid("the body is not valid JSON")
	}
	sequence, err := strconv.ParseInt(string(rawjson.Member(body, "sequenceNumber")), 10, 64)
	if err != nil || sequence < 1 {
		return nil, 0, fault.Invalid("member \"sequenceNumber\" must be an integer above 0")
	}
	state := rawjson.Member(body, "untypedDeployment")
	if state == nil {
		return nil, 0, fault.Invalid("member \"untypedDeployment\" is required")
	}
	if err := budget.Of(r.Context()).Take(r.Context(), web.GzipMemory); err != nil {
		return nil, 0, err
	}
	out, err := states.Parse(state, nil)
	return out, sequence, err
}

// Bounds of a batch of journal entries. Stock clients send up to 100 entries. One entry can contain
// a state.
const (
	maxEntries = 1000
	entryCost  = 1 << 10 // memory of an entry in addition to its bytes
)

// readJournal reads a body that contains journal entries.
func readJournal(w http.ResponseWriter, r *http.Request) ([]journal.Entry, error) {
	body, err := request.Read(w, r, request.State(r))
	if err != nil {
		return nil, err
	}
	if !json.Valid(body) {
		return nil, fault.Invalid("the body is not valid JSON")
	}
	raw := rawjson.Member(body, "entries")
	count := int64(0)
	for range rawjson.Elements(raw) {
		count++
	}
	switch limit := request.Batch(r).Inflated; {
	case count == 0:
		return nil, fault.Invalid("the request must contain journal entries")
	case count > maxEntries:
		return nil, fault.New(fault.KindTooLarge, "%d journal entries at a time are too many; send at most %d", count, maxEntries)
	case count > 1 && int64(len(body)) > limit:
		return nil, fault.New(fault.KindTooLarge, "the journal entries have more than %d bytes; send fewer at a time", limit)
	}
	// The entries are compressed while they are stored.
	if err := budget.Of(r.Context()).Take(r.Context(), count*entryCost+web.GzipMemory); err != nil {
		return nil, err
	}
	return journal.ReadEntries(raw)
}
