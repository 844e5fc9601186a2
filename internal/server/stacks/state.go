package stacks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/klauspost/compress/gzip"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/blob"
)

// maxSchema is the newest accepted schema version of states.
const maxSchema = 4

// emptySchema is the schema version reported for stacks without a state.
const emptySchema = 3

// State is a validated state of a stack.
type State struct {
	Schema     int64  // schema version of the deployment
	Features   []byte // raw JSON array; nil if absent
	Deployment []byte // raw JSON object, or null
	Resources  int64  // number of resources in the deployment
	body       []byte // as received
	packed     []byte // gzip-compressed body; nil if not compressed yet
}

// ParseState validates a body of the form {version, features?, deployment}. packed is the
// gzip-compressed body if the client sent it compressed, otherwise nil. The state stores packed to
// avoid compressing a large body again. The state owns both slices.
func ParseState(body, packed []byte) (*State, error) {
	if !json.Valid(body) {
		return nil, fault.Invalid("Bad Request: the body is not valid JSON")
	}
	st := &State{Schema: emptySchema, Deployment: []byte("null"), body: body, packed: packed}
	for k, v := range rawjson.Members(body) {
		switch k {
		case "version":
			n, err := strconv.ParseInt(string(v), 10, 64)
			if err != nil {
				return nil, fault.Invalid("Bad Request: member \"version\" of a state must be a whole number")
			}
			st.Schema = n
		case "features":
			if string(v) != "null" {
				st.Features = v
			}
		case "deployment":
			st.Deployment = v
		}
	}
	if st.Schema < 1 || st.Schema > maxSchema {
		return nil, fault.Invalid("Bad Request: the state has the unsupported schema version %d; the server supports versions 1 to %d", st.Schema, maxSchema)
	}
	if !st.Empty() && st.Deployment[0] != '{' {
		return nil, fault.Invalid("Bad Request: member \"deployment\" of a state must be an object")
	}
	for range rawjson.Elements(rawjson.Member(st.Deployment, "resources")) {
		st.Resources++
	}
	return st, nil
}

// Empty reports whether the state contains no deployment.
func (s *State) Empty() bool { return string(s.Deployment) == "null" }

// MarshalJSON returns the state in the export format.
func (s *State) MarshalJSON() ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(len(s.Deployment) + 64)
	fmt.Fprintf(&buf, `{"version":%d,`, s.Schema)
	if s.Features != nil {
		buf.WriteString(`"features":`)
		buf.Write(s.Features)
		buf.WriteByte(',')
	}
	buf.WriteString(`"deployment":`)
	buf.Write(s.Deployment)
	buf.WriteByte('}')
	return buf.Bytes(), nil
}

func (s *State) store(ctx context.Context, blobs blob.Store, key string) error {
	if s.packed != nil {
		return blobs.Put(ctx, key, bytes.NewReader(s.packed))
	}
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(pack(w, s.body))
	}()
	err := blobs.Put(ctx, key, r)
	r.Close() //nolint:errcheck // it returns none
	<-done
	return err
}

func pack(w io.Writer, body []byte) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("compressing a state: %w", err)
	}
	if _, err := z.Write(body); err != nil {
		return fmt.Errorf("compressing a state: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("compressing a state: %w", err)
	}
	return nil
}

func stackBlobs(stackID string) string { return "stacks/" + stackID }

// putState stores a state under a new key. The stored contents are immutable.
func (s *Service) putState(ctx context.Context, stackID string, st *State) (string, error) {
	key := stackBlobs(stackID) + "/" + identity.NewID()
	if err := st.store(ctx, s.db.Blobs(), key); err != nil {
		return "", fmt.Errorf("storing a state: %w", err)
	}
	return key, nil
}

func (s *Service) dropState(ctx context.Context, key string) {
	if key == "" {
		return
	}
	if err := s.db.Blobs().Delete(context.WithoutCancel(ctx), key); err != nil {
		s.log.WithError(err).Warn("removing an unused state failed")
	}
}

// stateGrace is the age after which an unreferenced state is removed. Servers write the row that
// references a state within seconds.
const stateGrace = 6 * time.Hour

// SweepStates removes unreferenced states and returns their number. A server that crashes before it
// writes the row leaves such a state. Logs need no sweep, because jobs reference them and are never
// deleted.
func (s *Service) SweepStates(ctx context.Context) (int, error) {
	return s.sweepStates(ctx, stateGrace)
}

func (s *Service) sweepStates(ctx context.Context, age time.Duration) (int, error) {
	return s.db.Blobs().Sweep(ctx, "stacks", age, func(keys []string) ([]string, error) {
		return store.Read(ctx, s.db, func(tx *store.Tx) ([]string, error) { return tx.NamedStates(keys) })
	})
}

// exportTries is the maximum number of attempts to read a state that concurrent checkpoints
// replace.
const exportTries = 5

// Export returns a stack's current state in memory.
func (s *Service) Export(ctx context.Context, stackID string) (*State, error) {
	st, err := s.Open(ctx, stackID)
	if err != nil {
		return nil, err
	}
	return st.state(ctx)
}

// Import replaces a stack's state and returns the update that records the import.
func (s *Service) Import(ctx context.Context, p identity.Principal, st store.Stack, state *State) (store.Update, error) {
	if err := s.checkForeignSecrets(ctx, st, state); err != nil {
		return store.Update{}, err
	}
	return s.replaceState(ctx, p, st.ID, KindImport, state, nil)
}

// replaceState stores a state as a stack's newest version, and records it as an update that
// finishes immediately. change may modify the stack in the same transaction.
func (s *Service) replaceState(ctx context.Context, p identity.Principal, stackID string, kind Kind, state *State,
	change func(tx *store.Tx, st *store.Stack) error,
) (store.Update, error) {
	key := ""
	if state != nil {
		var err error
		if key, err = s.putState(ctx, stackID, state); err != nil {
			return store.Update{}, err
		}
	}
	var u store.Update
	var ended []store.Update
	err := s.db.Write(ctx, func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		st, err := tx.Stack(stackID)
		if err != nil {
			return err
		}
		if err := s.mayWrite(tx, p.DeploymentID); err != nil {
			return err
		}
		if ended, err = s.free(tx, &st, now); err != nil {
			return err
		}
		st.Version++
		st.LastUpdateAt = now
		if state != nil {
			st.StateBlob, st.StateSchema, st.ResourceCount = key, state.Schema, state.Resources
		}
		if change != nil {
			if err := change(tx, &st); err != nil {
				return err
			}
		}
		u = store.Update{
			ID: identity.NewID(), StackID: st.ID, Kind: string(kind), Status: string(Succeeded), Version: st.Version,
			RequestedBy: p.User.ID, DeploymentID: p.DeploymentID, Program: "{}",
			CreatedAt: now, StartedAt: now, FinishedAt: now,
			StateBlob: st.StateBlob, StateSchema: st.StateSchema, ResourceCount: st.ResourceCount, ResourceChanges: "{}",
		}
		if err := tx.InsertUpdate(u); err != nil {
			return err
		}
		return tx.UpdateStack(st)
	})
	if err != nil {
		s.dropState(ctx, key)
		return store.Update{}, err
	}
	s.reportEnded(ended)
	return u, nil
}

// Checkpoint stores a running update's current state and replaces the previous checkpoint.
func (s *Service) Checkpoint(ctx context.Context, u store.Update, state *State) error {
	if u.Preview {
		return fault.Forbidden("Forbidden: Updating the checkpoint is not permitted for preview operations.")
	}
	if state.Empty() {
		return fault.Invalid("Bad Request: the request must contain a checkpoint")
	}
	key, err := s.putState(ctx, u.StackID, state)
	if err != nil {
		return err
	}
	var old string
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		cur, err := tx.Update(u.ID)
		if err != nil {
			return err
		}
		if err := held(cur, now); err != nil {
			return err
		}
		if err := s.mayWrite(tx, cur.DeploymentID); err != nil {
			return err
		}
		st, err := tx.Stack(cur.StackID)
		if err != nil {
			return err
		}
		old = cur.StateBlob
		cur.StateBlob, cur.StateSchema, cur.ResourceCount = key, state.Schema, state.Resources
		st.StateBlob, st.StateSchema, st.ResourceCount = key, state.Schema, state.Resources
		if err := tx.SaveUpdate(cur); err != nil {
			return err
		}
		return tx.UpdateStack(st)
	})
	if err != nil {
		s.dropState(ctx, key)
		return err
	}
	s.dropState(ctx, old)
	return nil
}

// checkForeignSecrets rejects states that contain another stack's secrets, which this stack cannot
// decrypt.
func (s *Service) checkForeignSecrets(ctx context.Context, st store.Stack, state *State) error {
	provider := rawjson.Member(state.Deployment, "secrets_providers")
	if string(rawjson.Member(provider, "type")) != `"service"` {
		return nil
	}
	ct := firstCiphertext(state.Deployment)
	if ct == nil {
		return nil
	}
	if _, err := s.secrets.Decrypt(ctx, st.ID, ct); err != nil {
		return fault.Wrap(fault.KindInvalid, err, "Bad Request: cannot import deployment with encrypted secrets from a different stack")
	}
	return nil
}

func firstCiphertext(deployment []byte) []byte {
	const mark = `"ciphertext"`
	for rest := deployment; ; {
		i := bytes.Index(rest, []byte(mark))
		if i < 0 {
			return nil
		}
		rest = rest[i+len(mark):]
		j := rawjson.SkipSpace(rest, 0)
		if j >= len(rest) || rest[j] != ':' {
			continue
		}
		j = rawjson.SkipSpace(rest, j+1)
		if j >= len(rest) || rest[j] != '"' {
			continue
		}
		var ct []byte
		if json.Unmarshal(rest[j:rawjson.SkipString(rest, j)], &ct) == nil && len(ct) > 0 {
			return ct
		}
	}
}
