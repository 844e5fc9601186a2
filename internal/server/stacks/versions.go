package stacks

import (
	"context"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/stacks/versions"
	"workflowagent/internal/server/store"
)

// maxCompared bounds the states that the server compares, in bytes. They are decompressed piece by piece.
const maxCompared = 256 << 20

// Comparison is two versions of a stack's state, in their compressed form.
type Comparison struct {
	before, after states.Stored
	limit         int64
}

// Compare returns two versions of a stack's state. The version 0 is the one before the first, without resources.
func (s *Service) Compare(ctx context.Context, p identity.Principal, st store.Stack, from, to int64) (Comparison, error) {
	c := Comparison{limit: maxCompared}
	if err := p.Check(st, identity.StateRead); err != nil {
		return c, err
	}
	for _, side := range []struct {
		version int64
		into    *states.Stored
	}{{from, &c.before}, {to, &c.after}} {
		if side.version == 0 {
			continue
		}
		var err error
		if *side.into, _, err = s.version(ctx, st, side.version); err != nil {
			return c, err
		}
	}
	return c, nil
}

// Tree returns all resources of both versions, with the operations that lead from one to the other.
func (c Comparison) Tree() (changes.Tree, error) {
	return versions.Compare(c.before.Resources(c.limit), c.after.Resources(c.limit))
}

// Resource returns a resource in both versions. It contains the ciphertexts of secrets; pass it to
// [workflowagent/internal/server/stacks/changes/diff.States] before you show it.
func (c Comparison) Resource(urn string) (versions.Pair, error) {
	return versions.Find(c.before.Resources(c.limit), c.after.Resources(c.limit), urn)
}

// keptVersions is the number of versions that [Service.Versions] returns.
const keptVersions = 100

// Versions returns the newest versions of a stack whose states are kept, newest first.
func (s *Service) Versions(ctx context.Context, p identity.Principal, st store.Stack) ([]Entry, error) {
	if err := p.Check(st, identity.StateRead); err != nil {
		return nil, err
	}
	var list []Entry
	err := s.History(ctx, st, store.UpdateFilter{Limit: keptVersions}, func(e Entry) error {
		if e.Version > 0 && Status(e.Status).Finished() && !e.StateExpired {
			list = append(list, e)
		}
		return nil
	})
	return list, err
}
