package api

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"strconv"

	"github.com/klauspost/compress/gzip"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// stateRoutes export and import the states of stacks.
type stateRoutes struct{ stacks *stacks.Service }

func (s *stateRoutes) register(rt *Router) {
	rt.stack(http.MethodGet, stackPath+"/export", needRead, s.export)
	rt.stack(http.MethodGet, stackPath+"/export/{version}", needRead, s.exportVersion)
	rt.stack(http.MethodPost, stackPath+"/import", needWrite, s.importState)
}

func (s *stateRoutes) export(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	state, err := s.stacks.Export(r.Context(), st.ID)
	if err != nil {
		return err
	}
	return writeState(w, r, state)
}

func (s *stateRoutes) exportVersion(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	version, err := strconv.ParseInt(param(r, "version"), 10, 64)
	if err != nil || version < 1 {
		return fault.Invalid("Bad Request: invalid 'version' parameter")
	}
	state, err := s.stacks.ExportVersion(r.Context(), st, version)
	if err != nil {
		return err
	}
	return writeState(w, r, state)
}

func writeState(w http.ResponseWriter, r *http.Request, state *stacks.State) error {
	body, err := state.MarshalJSON()
	if err != nil {
		return err
	}
	return writeRaw(w, r, http.StatusOK, body)
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
	l := limitsOf(r)
	if r.Header.Get("Content-Encoding") != "gzip" {
		plain, err := readBody(w, r, l.BigBody, l.BigInflated)
		if err != nil {
			return nil, err
		}
		return parseState(plain, nil)
	}
	if r.ContentLength > l.BigBody {
		return nil, &http.MaxBytesError{Limit: l.BigBody}
	}
	var packed bytes.Buffer
	if _, err := packed.ReadFrom(http.MaxBytesReader(w, r.Body, l.BigBody)); err != nil {
		return nil, bodyError(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed.Bytes()))
	if err != nil {
		return nil, bodyError(err)
	}
	var plain bytes.Buffer
	claim := int64(inflatedSize(packed.Bytes(), l.BigInflated))
	if err := l.hold(claim, claim); err != nil {
		return nil, err
	}
	beyond := func(n, total int64) error {
		if total <= claim {
			return nil
		}
		return l.hold(n, total)
	}
	plain.Grow(int(claim) + bytes.MinRead)
	if _, err := plain.ReadFrom(&boundedReader{r: z, left: l.BigInflated, limit: l.BigInflated, close: z.Close, hold: beyond}); err != nil {
		return nil, bodyError(err)
	}
	return parseState(plain.Bytes(), packed.Bytes())
}

// inflatedSize returns the size that a gzip file claims for its contents, so
// that a large state is inflated into one piece of memory. A claim that no
// compression could reach is not believed.
func inflatedSize(packed []byte, limit int64) int {
	const best = 1032 // the ratio of deflate at its best
	if len(packed) < 4 {
		return 0
	}
	claim := int64(binary.LittleEndian.Uint32(packed[len(packed)-4:]))
	return int(min(claim, limit, best*int64(len(packed))))
}

func parseState(plain, packed []byte) (*stacks.State, error) {
	if len(bytes.TrimSpace(plain)) == 0 {
		return nil, errEmptyBody
	}
	return stacks.ParseState(plain, packed)
}
