package opening

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
)

const (
	// namesEnvironments is the entry in the metadata of an update with which the stock CLI names the environments of the
	// stack's configuration.
	namesEnvironments = "stack.environments"
	// maxReferences is the number of environments of an update that are recorded.
	maxReferences = 100
)

// UpdateStarted publishes the draft with which an update of a stack was evaluated, and records which environments the update
// uses, as its client says. It must run in the transaction that starts the update.
func (s *Service) UpdateStarted(ctx context.Context, tx *store.Tx, st store.Stack, u store.Update) error {
	if u.Preview {
		return nil
	}
	program := u.Program
	if program == "" { // a long one, without which updates are read
		var err error
		if program, err = tx.Program(u.ID); err != nil {
			return store.IgnoreMissing(err)
		}
	}
	if used := stacks.EnvironmentOf(program); used != nil {
		pub := environments.Publication{Base: used.BaseRevision, Draft: used.ChangeRequestID}
		if err := s.opts.Environments.Publish(ctx, tx, st, u, pub); err != nil {
			return err
		}
	}
	entry := rawjson.Member(rawjson.Member(rawjson.Member([]byte(program), "metadata"), "environment"), namesEnvironments)
	for _, id := range idsIn(entry) {
		ref, err := environments.ParseReference(id)
		if err != nil {
			continue
		}
		e, err := tx.EnvironmentFor(st.OrgName, ref.Project, ref.Name, "", "")
		if errors.Is(err, store.ErrNotFound) || err == nil && e.OrgID != st.OrgID {
			continue
		}
		if err == nil {
			err = tx.SaveStackEnvironment(store.StackEnvironment{
				EnvironmentID: e.ID, StackID: st.ID, StackVersion: u.Version, Version: cmp.Or(ref.Version, store.LatestVersion),
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// idsIn returns the ids in an entry of metadata: a list in JSON, as a string. Another form names none.
func idsIn(entry []byte) (ids []string) {
	var text string
	var list []struct{ ID string }
	if json.Unmarshal(entry, &text) == nil && json.Unmarshal([]byte(text), &list) == nil {
		for _, e := range list[:min(len(list), maxReferences)] {
			ids = append(ids, e.ID)
		}
	}
	return ids
}
