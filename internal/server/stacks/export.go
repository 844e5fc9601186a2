package stacks

import (
	"bytes"
	"context"
	"errors"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
)

// exportTries is the maximum number of attempts to read a state that concurrent checkpoints
// replace.
const exportTries = 5

// current returns the current state of a stack, and the stack to which it belongs.
func (s *Service) current(ctx context.Context, stackID string) (states.Stored, store.Stack, error) {
	return s.open(ctx, func(tx *store.Tx) (store.Stack, error) { return tx.Stack(stackID) })
}

// version returns the state of a version of a stack, and the stack at that version.
func (s *Service) version(ctx context.Context, st store.Stack, version int64) (states.Stored, store.Stack, error) {
	return s.open(ctx, atVersion(st, version))
}

// atVersion returns a function that returns a stack at one of its versions.
func atVersion(st store.Stack, version int64) func(tx *store.Tx) (store.Stack, error) {
	return func(tx *store.Tx) (store.Stack, error) {
		u, err := tx.UpdateByVersion(st.ID, version)
		if errors.Is(err, store.ErrNotFound) {
			return st, fault.NotFound("stack '%s' has no version %d", st.Ref(), version)
		}
		if u.StateExpired {
			return st, fault.New(fault.KindGone, "the state of version %d of stack '%s' has expired: "+
				"the server keeps as many states as its settings keep_states and keep_states_for say", version, st.Ref())
		}
		st.StateBlob, st.Version = u.StateBlob, version
		return st, err
	}
}

// open returns the stack that find returns, and its state.
func (s *Service) open(ctx context.Context, find func(tx *store.Tx) (store.Stack, error)) (states.Stored, store.Stack, error) {
	for try := 1; ; try++ {
		st, err := store.Read(ctx, s.db, find)
		if err != nil {
			return states.Stored{}, st, err
		}
		out, err := s.states.Open(ctx, st.StateBlob)
		missing := errors.Is(err, store.ErrNotFound)
		if missing && try < exportTries {
			continue
		}
		if _, damaged := errors.AsType[*states.DamagedError](err); damaged || missing {
			err = fault.Wrap(fault.KindDamaged, err, "the stored state of stack '%s', version %d, is damaged; "+
				"the details are in the server's log; export another version and import it", st.Ref(), st.Version)
		}
		return out, st, err
	}
}

// Export returns a stack's current state in memory, for the server itself. Callers that send it to a
// client must hide its secrets, or use [Service.Open].
func (s *Service) Export(ctx context.Context, stackID string) (*states.State, error) {
	st, _, err := s.current(ctx, stackID)
	if err != nil {
		return nil, err
	}
	return st.State(ctx)
}

// ExportOutputs returns a stack's current outputs as a reduced state, which a StackReference can
// read.
func (s *Service) ExportOutputs(ctx context.Context, stackID string) (*states.State, error) {
	state, err := s.Export(ctx, stackID)
	if err != nil || state.Empty() {
		return state, err
	}
	var doc bytes.Buffer
	doc.WriteByte('{')
	// The manifest contains pulumi's version. StackReferences use secrets_providers to decrypt
	// secrets.
	writeMembers(&doc, state.Deployment, "manifest", "secrets_providers")
	if doc.Len() > 1 {
		doc.WriteByte(',')
	}
	doc.WriteString(`"resources":[`)
	if root := rootStack(state); root != nil {
		doc.WriteByte('{')
		writeMembers(&doc, root, "urn", "custom", "type", "outputs")
		doc.WriteByte('}')
	}
	doc.WriteString("]}")
	return &states.State{Schema: state.Schema, Features: state.Features, Deployment: doc.Bytes()}, nil
}

func writeMembers(doc *bytes.Buffer, object []byte, names ...string) {
	sep := ""
	for _, name := range names {
		if value := rawjson.Member(object, name); value != nil {
			doc.WriteString(sep + `"` + name + `":`)
			doc.Write(value)
			sep = ","
		}
	}
}

// rootStack returns the resource that represents the stack itself, or nil if none exists.
func rootStack(state *states.State) []byte {
	for r := range rawjson.Elements(rawjson.Member(state.Deployment, "resources")) {
		parent := string(rawjson.Member(r, "parent"))
		if string(rawjson.Member(r, "type")) == `"pulumi:pulumi:Stack"` && (parent == "" || parent == `""`) {
			return r
		}
	}
	return nil
}

// CheckOutputSecrets returns an error unless all base64 ciphertexts occur in the stack's outputs.
func (s *Service) CheckOutputSecrets(ctx context.Context, st store.Stack, ciphertexts []string) error {
	state, err := s.Export(ctx, st.ID)
	if err != nil {
		return err
	}
	missing := make(map[string]struct{}, len(ciphertexts))
	for _, text := range ciphertexts {
		missing[text] = struct{}{}
	}
	for text := range rawjson.Texts(rawjson.Member(rootStack(state), "outputs")) {
		delete(missing, string(text))
	}
	if len(missing) > 0 {
		return fault.NotFound("the current outputs of stack '%s' do not contain the secret; if the stack was just updated, try again", st.Ref())
	}
	return nil
}
