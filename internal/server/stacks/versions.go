package stacks

import (
	"context"
	"sync"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/stacks/versions"
	"workflowagent/internal/server/store"
)

// maxCompared bounds the states that the server compares, in bytes. They are decompressed piece by piece.
const maxCompared = 256 << 20

// Bounds of the differences that are kept in memory. Browsers read the rows of a large one piece by piece.
const (
	keptComparisons     = 16
	keptComparisonBytes = 64 << 20
	perComparedRow      = 700
)

// compared is the difference of two states, whose contents never change.
type compared struct {
	mu   sync.Mutex
	tree changes.Tree
	made bool
}

// Comparison is two versions of a stack.
type Comparison struct {
	service *Service
	st      store.Stack
	// from and to are the versions, and key names their states.
	from, to int64
	key      string
	// before and after are the states in their compressed form, once they are opened.
	before, after states.Stored
	opened        bool
}

// Compare returns two versions of a stack. The version 0 is the one before the first, without resources.
func (s *Service) Compare(ctx context.Context, p identity.Principal, st store.Stack, from, to int64) (*Comparison, error) {
	c := &Comparison{service: s, st: st, from: from, to: to}
	if err := p.Check(st, identity.StateRead); err != nil {
		return nil, err
	}
	for _, version := range []int64{from, to} {
		c.key += "\n"
		if version == 0 {
			continue
		}
		found, err := store.Read(ctx, s.db, ended(st, version))
		if err != nil {
			return nil, err
		}
		c.key += found.StateBlob
	}
	return c, nil
}

// ended is [atVersion] for a version that no update changes any more.
func ended(st store.Stack, version int64) func(tx *store.Tx) (store.Stack, error) {
	return func(tx *store.Tx) (store.Stack, error) {
		u, err := tx.UpdateByVersion(st.ID, version)
		if err == nil && !Status(u.Status).Finished() {
			return st, fault.Conflict("version %d of stack '%s' cannot be compared while its update runs", version, st.Ref())
		}
		if err = store.IgnoreMissing(err); err != nil {
			return st, err
		}
		return atVersion(st, version)(tx)
	}
}

// open reads the states.
func (c *Comparison) open(ctx context.Context) error {
	if c.opened {
		return nil
	}
	var err error
	if c.from > 0 {
		if c.before, _, err = c.service.version(ctx, c.st, c.from); err != nil {
			return err
		}
	}
	if c.to > 0 {
		if c.after, _, err = c.service.version(ctx, c.st, c.to); err != nil {
			return err
		}
	}
	c.opened = true
	return nil
}

// Tree returns all resources of both versions, with the operations that lead from one to the other. The rows of the result
// are shared and must not be changed.
func (c *Comparison) Tree(ctx context.Context) (changes.Tree, error) {
	e := c.service.compared.Get(c.key)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.made {
		return e.tree, nil
	}
	if err := c.open(ctx); err != nil {
		return changes.Tree{}, err
	}
	tree, err := versions.Compare(c.before.Resources(maxCompared), c.after.Resources(maxCompared))
	if err != nil {
		return changes.Tree{}, err
	}
	e.tree, e.made = tree, true
	c.service.compared.Resize(c.key, e, perComparedRow*len(tree.Rows)+1000)
	return tree, nil
}

// Resource returns a resource in both versions. It contains the ciphertexts of secrets; pass it to
// [workflowagent/internal/server/stacks/changes/diff.States] before you show it.
func (c *Comparison) Resource(ctx context.Context, urn string) (versions.Pair, error) {
	if err := c.open(ctx); err != nil {
		return versions.Pair{}, err
	}
	pair, err := versions.Find(c.before.Resources(maxCompared), c.after.Resources(maxCompared), urn)
	if err == nil {
		err = budget.Of(ctx).Take(ctx, decodedSize*int64(len(pair.Old)+len(pair.New)))
	}
	return pair, err
}

// decodedSize is the memory that a decoded resource needs for each byte of its JSON.
const decodedSize = 8

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
