package stacks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/journal"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// stateGrace is the minimum age at which an unreferenced state is removed. Servers write the row
// that references a state within seconds.
const stateGrace = 6 * time.Hour

// SweepStates removes unreferenced states and returns their number. A server that crashes before it
// writes the row leaves such a state. Logs need no sweep, because jobs reference them and are never
// deleted.
func (s *Service) SweepStates(ctx context.Context) (int, error) {
	return s.states.Sweep(ctx, stateGrace)
}

// FoldJournals stores the journals of finished updates in a shorter form until ctx is canceled.
func (s *Service) FoldJournals(ctx context.Context) error { return s.states.Run(ctx) }

// Import replaces a stack's state and returns the update that records the import.
func (s *Service) Import(ctx context.Context, p identity.Principal, st store.Stack, state *states.State) (store.Update, error) {
	if err := s.checkForeignSecrets(ctx, st, state); err != nil {
		return store.Update{}, err
	}
	r, err := s.prepareImport(ctx, p, st, state)
	if err != nil {
		return store.Update{}, err
	}
	return r.run(ctx)
}

// prepareImport stores the blob of a state to import.
func (s *Service) prepareImport(ctx context.Context, p identity.Principal, st store.Stack, state *states.State) (*replacement, error) {
	return s.prepare(ctx, p, st.ID, st.Scope(), KindImport, state, func(tx *store.Tx, st *store.Stack) error {
		detail := map[string]any{"version": st.Version}
		if err := audit.Record(ctx, tx, audit.Entry{OrgID: st.OrgID, Action: audit.StateImported, Subject: audit.Stack(*st), Detail: detail}); err != nil {
			return err
		}
		if p.Kind == identity.KindJob {
			return nil // the replacement checked the deployment
		}
		// The caller can lose its rights during a long upload.
		permitted, err := identity.TokenMay(tx, p.TokenID, st.ID, identity.Write)
		if err == nil && !permitted {
			err = fault.Forbidden("%s may no longer import states into stack %s: the rights were removed during the import", p.Name(), st.Ref())
		}
		return err
	})
}

// replaceState stores a state as a stack's newest version, and records the change as an update that
// finishes immediately. change can modify the stack in the same transaction, which holds owners.
func (s *Service) replaceState(ctx context.Context, p identity.Principal, stackID string, owners scope.Set, kind Kind, state *states.State,
	change func(tx *store.Tx, st *store.Stack) error,
) (store.Update, error) {
	r, err := s.prepare(ctx, p, stackID, owners, kind, state, change)
	if err != nil {
		return store.Update{}, err
	}
	return r.run(ctx)
}

// replacement is a change of a stack's state whose blob is stored, but not named yet.
type replacement struct {
	service *Service
	by      identity.Principal
	stackID string
	owners  scope.Set
	kind    Kind
	state   *states.State // nil if the state remains
	put     states.Put
	change  func(tx *store.Tx, st *store.Stack) error

	update store.Update // that records the change
}

func (s *Service) prepare(ctx context.Context, p identity.Principal, stackID string, owners scope.Set, kind Kind, state *states.State,
	change func(tx *store.Tx, st *store.Stack) error,
) (*replacement, error) {
	r := &replacement{service: s, by: p, stackID: stackID, owners: owners, kind: kind, state: state, change: change}
	if state == nil {
		return r, nil
	}
	var err error
	r.put, err = s.states.Put(ctx, stackID, state)
	return r, err
}

func (r *replacement) run(ctx context.Context) (store.Update, error) {
	err := r.service.db.Write(ctx, r.owners, func(tx *store.Tx) error { return r.in(tx) })
	r.finish(ctx, err)
	if err != nil {
		return store.Update{}, err
	}
	return r.update, nil
}

// finish must be called after the transaction of in, with its error.
func (r *replacement) finish(ctx context.Context, err error) {
	if err != nil {
		r.service.states.Discard(ctx, r.put.Blob, err)
	}
}

// in makes the change in a transaction.
func (r *replacement) in(tx *store.Tx) error {
	s, p, state := r.service, r.by, r.state
	now, err := tx.LeaseTime()
	if err != nil {
		return err
	}
	st, err := tx.Stack(r.stackID)
	if err != nil {
		return err
	}
	if err := s.mayWrite(tx, p.DeploymentID); err != nil {
		return err
	}
	if err := s.free(tx, &st, now); err != nil {
		return err
	}
	st.Version++
	st.LastUpdateAt = now
	if state != nil {
		// Without changes such as pulumi state delete, some stacks could not be destroyed.
		admit := s.quota.AdmitImport
		if state.Resources <= st.ResourceCount || p.DeploymentID != "" {
			admit = s.quota.AdmitRepair
		}
		if err := admit(tx, st.OrgID, r.put.Size); err != nil {
			return err
		}
		if err := r.put.Insert(tx); err != nil {
			return err
		}
		st.StateBlob, st.StateSchema, st.ResourceCount = r.put.Key, state.Schema, state.Resources
	}
	if r.change != nil {
		if err := r.change(tx, &st); err != nil {
			return err
		}
	}
	u := store.Update{
		ID: identity.NewID(), StackID: st.ID, Kind: string(r.kind), Status: string(Succeeded), Version: st.Version,
		RequestedBy: p.User.ID, DeploymentID: p.DeploymentID, Program: "{}",
		CreatedAt: now, StartedAt: now, FinishedAt: now,
		StateBlob: st.StateBlob, StateSchema: st.StateSchema, ResourceCount: st.ResourceCount, ResourceChanges: "{}",
	}
	r.update = u
	if err := tx.InsertUpdate(u); err != nil {
		return err
	}
	tx.Notify(UpdateTopic, u.ID)
	changed(tx, st)
	if err := errors.Join(tx.UpdateStack(st), s.stateChanged(tx, st)); err != nil {
		return err
	}
	return s.recordEnd(tx, st, u)
}

// Checkpoint stores a running update's current state and replaces the previous checkpoint.
func (s *Service) Checkpoint(ctx context.Context, u store.Update, state *states.State) error {
	return s.NumberedCheckpoint(ctx, u, state, 0)
}

// NumberedCheckpoint is [Service.Checkpoint] for a client that numbers its checkpoints from 1. It
// ignores a checkpoint that is not newer than the last one, because a request can arrive twice or
// late. The number 0 stands for a checkpoint without a number.
func (s *Service) NumberedCheckpoint(ctx context.Context, u store.Update, state *states.State, sequence int64) error {
	if u.Preview {
		return fault.Forbidden("Updating the checkpoint is not permitted for preview operations.")
	}
	if state.Empty() {
		return fault.Invalid("the request must contain a checkpoint")
	}
	put, err := s.states.Put(ctx, u.StackID, state)
	if err != nil {
		return err
	}
	var old store.State
	var late bool
	err = s.db.Write(ctx, scope.Stack(u.OrgID, u.StackID), func(tx *store.Tx) error {
		cur, err := s.permit(tx, u.ID)
		if err != nil {
			return err
		}
		if late = sequence > 0 && sequence <= cur.CheckpointSequence; late {
			return nil
		}
		cur.CheckpointSequence = max(sequence, cur.CheckpointSequence)
		st, err := tx.Stack(cur.StackID)
		if err != nil {
			return err
		}
		if old = (store.State{}); cur.StateBlob != "" {
			if old, err = tx.State(cur.StateBlob); err != nil {
				return err
			}
		}
		if old.Form == store.Journal {
			return fault.Conflict("the update has sent a journal; it cannot send a checkpoint, too")
		}
		if err := put.Insert(tx); err != nil {
			return err
		}
		cur.StateBlob, cur.StateSchema, cur.ResourceCount = put.Key, state.Schema, state.Resources
		st.StateBlob, st.StateSchema, st.ResourceCount = put.Key, state.Schema, state.Resources
		if err := tx.StoreUpdateState(cur); err != nil {
			return err
		}
		if err := tx.UpdateStack(st); err != nil {
			return err
		}
		return tx.DeleteState(old.Key)
	})
	if err != nil || late {
		s.states.Discard(ctx, put.Blob, err)
		return err
	}
	s.states.Drop(ctx, old.Blob)
	return nil
}

// permit returns an update that may store a state.
func (s *Service) permit(tx *store.Tx, updateID string) (u store.Update, err error) {
	u, now, err := readUpdate(tx, updateID)
	if err != nil {
		return u, err
	}
	if err := held(u, now); err != nil {
		return u, err
	}
	return u, s.mayWrite(tx, u.DeploymentID)
}

// Record adds all journal entries to a running update's state, or none. Entries can be repeated.
func (s *Service) Record(ctx context.Context, u store.Update, entries []journal.Entry) error {
	switch {
	case u.Preview:
		return fault.Forbidden("a preview stores no state and has no journal")
	case u.JournalVersion == 0:
		return fault.Conflict("the update was started without a journal; it can send checkpoints")
	}
	// The journal of a finished update might be folded, so its entries cannot be checked.
	if err := held(u, time.Time{}); err != nil {
		return err
	}
	return s.states.Append(ctx, u, entries, func(tx *store.Tx) (store.Update, error) { return s.permit(tx, u.ID) })
}

// checkForeignSecrets returns an error if a state to import contains another stack's secrets, which
// this stack cannot decrypt. Users can confuse two files. Checkpoints and journals need no check,
// because clients encrypt the secrets in them for the stack of the update.
func (s *Service) checkForeignSecrets(ctx context.Context, st store.Stack, state *states.State) error {
	provider := rawjson.Member(state.Deployment, "secrets_providers")
	if string(rawjson.Member(provider, "type")) != `"service"` {
		return nil
	}
	ct := firstCiphertext(state.Deployment)
	if ct == nil {
		return nil
	}
	if _, err := s.secrets.Decrypt(ctx, st.ID, ct); err != nil {
		return fault.Wrap(fault.KindInvalid, err, "cannot import deployment with encrypted secrets from a different stack")
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
