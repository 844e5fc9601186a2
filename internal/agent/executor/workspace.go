package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"
)

// Workspace describes a workspace: the directory or volume that jobs of one scope use in turn.
type Workspace struct {
	Scope string
	Stack string    // "" if unknown
	Bytes int64     // -1 if unknown
	Used  time.Time // the last known use; zero if no job can use it, so that it can be removed
	InUse bool
	// Excessive means that the size is more than Bytes, because the content is too large or too deep to
	// measure.
	Excessive bool
}

// WorkspaceKeeper lists and removes workspaces. An [Executor] that can do so implements it.
type WorkspaceKeeper interface {
	// Workspaces returns the workspaces of owner's jobs, in any order. If ctx ends while they are
	// measured, it returns the sizes that are known by then.
	Workspaces(ctx context.Context, owner string) ([]Workspace, error)
	// RemoveWorkspace removes a workspace of owner. It succeeds if the workspace is missing, and
	// returns [ErrInUse] if a job uses it.
	RemoveWorkspace(ctx context.Context, owner, scope string) error
	// CleanWorkspaces completes removals that were interrupted.
	CleanWorkspaces(ctx context.Context) error
	// WorkspaceSpace returns the number of free bytes on the disk of the workspaces, or -1 if it is
	// unknown.
	WorkspaceSpace(ctx context.Context) int64
}

// ErrInUse is returned by RemoveWorkspace for a workspace that a job uses.
var ErrInUse = errors.New("a job uses the workspace")

// LocalScope returns the name that a server's scope has on this agent. Agents of different servers can
// share a state directory or a volume, and two servers can have an organization of the same name.
func LocalScope(serviceURL, scope string) string {
	sum := sha256.Sum256([]byte(serviceURL + "\n" + scope))
	return hex.EncodeToString(sum[:])
}
