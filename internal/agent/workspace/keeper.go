// Package workspace bounds what an agent keeps for later jobs. It decides which workspaces to remove, and
// an [executor.WorkspaceKeeper] removes them.
package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/retry"
)

const (
	// LeastFree is the free space on the disk of the workspaces, in bytes, below which the least recently
	// used ones are removed. An agent reports a full disk at half of it.
	LeastFree = 1 << 30
	// share divides the limit of all workspaces: what exceeds the quotient is removed first.
	share = 4
	// passTime bounds one pass, which measures the workspaces and removes some.
	passTime = 10 * time.Minute
	// restTime is the pause between two passes, because an engine measures all its volumes.
	restTime = 5 * time.Minute
	// idleTime is the time after which a pass begins without a job, to remove what has become too old.
	idleTime = time.Hour
)

// Limits bound the workspaces of an agent.
type Limits struct {
	Bytes int64
	Age   time.Duration // since the last use
	None  bool          // workspaces are off, so that none is kept
}

// Options configure a [Keeper].
type Options struct {
	Place  executor.WorkspaceKeeper
	Owner  string // the agent's stable ID
	Dir    string // of the records; see [Keeper.Touch]
	Limits Limits
	Log    *logrus.Entry
}

// Keeper bounds the workspaces of one agent. It is safe for concurrent use.
type Keeper struct {
	opts    Options
	kick    chan struct{}
	passing chan struct{} // held during a pass

	mu    sync.Mutex
	known *Usage
}

// Usage is the result of a pass.
type Usage struct {
	Count   int   // workspaces that are kept
	Bytes   int64 // that these occupy, without those whose size is unknown
	InUse   int
	Removed []executor.Workspace
}

// New returns a keeper.
func New(o Options) *Keeper {
	return &Keeper{opts: o, kick: make(chan struct{}, 1), passing: make(chan struct{}, 1)}
}

// Usage returns the result of the last pass, or false if there was none.
func (k *Keeper) Usage() (Usage, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		return Usage{}, false
	}
	return *k.known, true
}

// Changed makes Run begin a pass, because a job has ended.
func (k *Keeper) Changed() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// Run removes what exceeds the limits, at the start, after jobs and every hour, until ctx is canceled.
func (k *Keeper) Run(ctx context.Context) {
	for ctx.Err() == nil {
		k.pass(ctx)
		if retry.Sleep(ctx, retry.Spread(restTime)) != nil {
			return
		}
		idle := time.NewTimer(retry.Spread(idleTime))
		select {
		case <-k.kick:
		case <-idle.C:
		case <-ctx.Done():
		}
		idle.Stop()
	}
}

func (k *Keeper) pass(ctx context.Context) {
	whole, cancel := context.WithTimeout(ctx, passTime)
	defer cancel()
	if _, err := k.Prune(whole, false); err != nil && ctx.Err() == nil {
		k.opts.Log.WithError(err).Warn("removing workspaces that exceed the limits failed; retrying after the next job")
	}
}

// List returns the workspaces, the most recently used one first.
func (k *Keeper) List(ctx context.Context) ([]executor.Workspace, error) {
	all, err := k.opts.Place.Workspaces(ctx, k.opts.Owner)
	if err != nil {
		return nil, fmt.Errorf("listing the workspaces: %w", err)
	}
	k.readRecords(all)
	slices.SortFunc(all, func(a, b executor.Workspace) int {
		return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(a.Scope, b.Scope))
	})
	return all, nil
}

// Prune removes the workspaces that exceed the limits, or all of them: those larger than their share first,
// then the least recently used ones. Those in use do not count, so that a job cannot displace all others.
// It removes none that a job uses. It continues after a failed removal, and stops when ctx is done.
func (k *Keeper) Prune(ctx context.Context, all bool) (Usage, error) {
	select {
	case k.passing <- struct{}{}:
		defer func() { <-k.passing }()
	case <-ctx.Done():
		return Usage{}, ctx.Err()
	}
	errs := []error{limited(ctx, k.opts.Place.CleanWorkspaces)}
	var list []executor.Workspace
	err := limited(ctx, func(ctx context.Context) (err error) {
		list, err = k.List(ctx)
		return err
	})
	if err != nil {
		return Usage{}, errors.Join(append(errs, err)...)
	}
	u := Usage{Count: len(list)}
	var idle []executor.Workspace
	var idleBytes int64
	for _, w := range list {
		u.Bytes += max(w.Bytes, 0)
		if w.InUse {
			u.InUse++
			continue
		}
		idle = append(idle, w)
		idleBytes += max(w.Bytes, 0)
	}
	slices.Reverse(idle)
	slices.SortStableFunc(idle, func(a, b executor.Workspace) int { return cmp.Compare(k.rank(a), k.rank(b)) })
	for _, w := range idle {
		why := "the operator removes all"
		if !all {
			why = k.excess(ctx, w, idleBytes)
		}
		if ctx.Err() != nil {
			break
		}
		if why == "" {
			continue
		}
		switch err := k.opts.Place.RemoveWorkspace(ctx, k.opts.Owner, w.Scope); {
		case errors.Is(err, executor.ErrInUse):
			u.InUse++
			idleBytes -= max(w.Bytes, 0)
		case err != nil:
			errs = append(errs, err)
		default:
			u.Count--
			u.Bytes -= max(w.Bytes, 0)
			idleBytes -= max(w.Bytes, 0)
			u.Removed = append(u.Removed, w)
			k.opts.Log.WithFields(logrus.Fields{"stack": w.Stack, "workspace": Short(w.Scope), "bytes": w.Bytes}).Info("removed a workspace: " + why)
		}
	}
	k.removeRecords()
	k.mu.Lock()
	k.known = &u
	k.mu.Unlock()
	return u, errors.Join(append(errs, ctx.Err())...)
}

// limited calls what precedes the removals, and leaves them a part of the time.
func limited(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, passTime/3)
	defer cancel()
	return call(ctx)
}

// rank is 0 for a workspace to remove before those of rank 1, because it is larger than its share.
func (k *Keeper) rank(w executor.Workspace) int {
	if w.Excessive || w.Bytes > k.opts.Limits.Bytes/share {
		return 0
	}
	return 1
}

// excess returns why a workspace must be removed, or "". bytes is the size of all idle workspaces.
func (k *Keeper) excess(ctx context.Context, w executor.Workspace, bytes int64) string {
	limits := k.opts.Limits
	switch free := k.opts.Place.WorkspaceSpace(ctx); {
	case limits.None:
		return "workspaces are off"
	case time.Since(w.Used) > limits.Age:
		return "no job has used it within workspace_max_age"
	case w.Excessive:
		return "it is too large or too deep to measure"
	case bytes > limits.Bytes:
		return "the workspaces occupy more than workspace_max_size"
	case free >= 0 && free < LeastFree:
		return "its disk is nearly full"
	}
	return ""
}

// Short returns the part of a scope that names a workspace for people.
func Short(scope string) string { return scope[:min(len(scope), 12)] }
