package stacks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
)

// referenceType is the type of the resource by which a program reads another stack's outputs.
const referenceType = "pulumi:pulumi:StackReference"

const (
	referenceSweep = time.Minute
	referencePiece = 100
)

// FollowReferences keeps the index of references between stacks up to date until ctx is canceled.
// The index follows the current state of each stack after the stack's update has finished.
func (s *Service) FollowReferences(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	defer s.db.Subscribe(UpdateTopic, func(string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	for {
		if err := s.ReadReferences(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		sweep := time.NewTimer(retry.Spread(referenceSweep))
		select {
		case <-ctx.Done():
			sweep.Stop()
			return nil
		case <-changed:
			sweep.Stop()
		case <-sweep.C:
		}
	}
}

// ReadReferences reads the references of all stacks whose states have changed. It uses at most a
// twentieth of a core.
func (s *Service) ReadReferences(ctx context.Context) error {
	for after := ""; ; {
		var found []store.Stack
		err := retry.Paced(ctx, func() (err error) {
			found, err = store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Stack, error) {
				return tx.StacksWithoutReferences(after, referencePiece)
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("searching stacks whose references have changed: %w", err)
		}
		for _, st := range found {
			after = st.ID
			if err := retry.Paced(ctx, func() error { return s.readReferencesLater(ctx, st) }); err != nil {
				return err
			}
		}
		if len(found) < referencePiece {
			return nil
		}
	}
}

// readReferencesLater reads a stack's references in the background. It keeps the earlier references
// of a stack whose state cannot be read. If only the memory is missing, the next sweep tries again.
func (s *Service) readReferencesLater(ctx context.Context, st store.Stack) error {
	ctx, done := s.memory.Begin(ctx)
	defer done()
	err := s.readReferences(ctx, st)
	switch {
	case err == nil, ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, store.ErrNotFound), fault.KindOf(err) == fault.KindUnavailable, errors.Is(err, store.ErrBusy),
		fault.KindOf(err) == fault.KindOutcomeUnknown:
		return nil
	case store.IsFull(err), fault.KindOf(err) == "":
		return fmt.Errorf("reading the references of %s: %w", st.Ref(), err)
	}
	s.log.WithError(err).WithField("stack", st.Ref()).Warn("reading the stack's references failed; the earlier ones remain until its next update")
	return s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error { return tx.KeepReferences(st.ID, st.StateBlob) })
}

// readReferences reads a stack's references, and the names of its resources, from its state.
func (s *Service) readReferences(ctx context.Context, st store.Stack) error {
	stored, err := s.states.Open(ctx, st.StateBlob)
	if err != nil {
		if _, damaged := errors.AsType[*states.DamagedError](err); damaged {
			err = fault.Wrap(fault.KindDamaged, err, "the state of %s is damaged", st.Ref())
		}
		return err
	}
	var found []store.Reference
	// Few states contain references. The searches do not hold the state in memory.
	search := seeker{text: []byte(`"` + referenceType + `"`)}
	var names nameReader
	if err := stored.Export(io.MultiWriter(&search, &names)); err != nil {
		return fault.Wrap(fault.KindDamaged, err, "the state of %s is damaged", st.Ref())
	}
	if search.found {
		state, err := stored.State(ctx)
		if err != nil {
			return err
		}
		found = referencesIn(state, st)
	}
	return s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error { return tx.SetReferences(st.ID, st.StateBlob, found, names.found) })
}

// seeker is a writer that searches for a text.
type seeker struct {
	text, tail []byte
	found      bool
}

// Write implements [io.Writer].
func (s *seeker) Write(p []byte) (int, error) {
	overlap := append(s.tail, p[:min(len(p), len(s.text))]...)
	s.found = s.found || bytes.Contains(overlap, s.text) || bytes.Contains(p, s.text)
	if len(p) >= len(s.text) {
		overlap = p
	}
	s.tail = append([]byte(nil), overlap[max(0, len(overlap)-len(s.text)+1):]...)
	return len(p), nil
}

// maxReferences bounds the references of a stack, and so the transaction that stores them.
const maxReferences = 1000

// referencesIn returns the stacks that the StackReferences in a stack's state name.
func referencesIn(state *states.State, st store.Stack) []store.Reference {
	var found []store.Reference
	for res := range rawjson.Elements(rawjson.Member(state.Deployment, "resources")) {
		if string(rawjson.Member(res, "type")) != `"`+referenceType+`"` || string(rawjson.Member(res, "delete")) == "true" {
			continue
		}
		var name string
		if json.Unmarshal(rawjson.Member(rawjson.Member(res, "inputs"), "name"), &name) != nil {
			continue
		}
		if r, ok := parseReference(name, st); ok && len(found) < maxReferences {
			found = append(found, r)
		}
	}
	return found
}

// parseReference parses a stack's name as the stock CLI does: STACK, ORG/STACK or
// ORG/PROJECT/STACK. The missing parts are those of the referencing stack.
func parseReference(name string, st store.Stack) (store.Reference, bool) {
	r := store.Reference{Org: st.OrgName, Project: st.Project}
	switch parts := strings.Split(name, "/"); len(parts) {
	case 1:
		r.Name = parts[0]
	case 2:
		r.Org, r.Name = parts[0], parts[1]
	case 3:
		r.Org, r.Project, r.Name = parts[0], parts[1], parts[2]
	default:
		return r, false
	}
	return r, checkName("stack", r.Name) == nil && checkName("project", r.Project) == nil && checkName("organization", r.Org) == nil
}

// Upstream returns the stacks that a stack references and that the caller may see.
func (s *Service) Upstream(ctx context.Context, p identity.Principal, st store.Stack) ([]store.Stack, error) {
	lacks := false
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if lacks, err = tx.LacksReferences(st.ID); err == nil && lacks {
			st, err = tx.Stack(st.ID)
		}
		return err
	})
	if err == nil && lacks {
		err = s.readReferences(ctx, st)
	}
	if err != nil {
		return nil, err
	}
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Stack, error) { return tx.UpstreamStacks(st, visibleTo(p)) })
}

// Downstream returns the stacks that reference a stack and that the caller may see.
func (s *Service) Downstream(ctx context.Context, p identity.Principal, st store.Stack) ([]store.Stack, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Stack, error) { return tx.DownstreamStacks(st, visibleTo(p)) })
}

func visibleTo(p identity.Principal) store.StackFilter {
	return store.StackFilter{Reach: p.Reach()}
}
