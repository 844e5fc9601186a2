package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"workflowagent/internal/agent/executor"
)

// workspace makes the workspace of a job and returns its path, or "" if the job has none.
//
// The job's directory names the scope before the workspace is made, and until the job is removed. So no
// removal of workspaces comes between this call and the runner's lock.
func (e *Executor) workspace(ctx context.Context, d dir) (string, error) {
	if e.workspaces == nil {
		return "", nil
	}
	m, err := d.meta()
	if err != nil {
		return "", fmt.Errorf("reading the scope of the workspace: %w", err)
	}
	if m.Workspace == "" {
		return "", nil
	}
	return e.workspaces.Make(ctx, m.Workspace)
}

// UsedWorkspaces returns the scopes of the existing jobs, whose directories are in base.
func UsedWorkspaces(base string) (map[string]bool, error) {
	entries, err := os.ReadDir(base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the jobs that use workspaces: %w", err)
	}
	used := map[string]bool{}
	for _, entry := range entries {
		if !executor.IsObjectName(strings.TrimPrefix(entry.Name(), removedPrefix)) {
			continue
		}
		m, err := dir(filepath.Join(base, entry.Name())).meta()
		if errors.Is(err, fs.ErrPermission) {
			continue // a job of another user's agent, which has its own workspaces
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("listing the jobs that use workspaces: %w", err)
		}
		used[m.Workspace] = true
	}
	return used, nil
}

// Workspaces returns all workspaces. The agents that share a state directory share them.
func (e *Executor) Workspaces(ctx context.Context, owner string) ([]executor.Workspace, error) {
	if e.workspaces == nil {
		return nil, nil
	}
	return e.workspaces.Workspaces(ctx, owner)
}

// RemoveWorkspace removes a workspace that no job uses.
func (e *Executor) RemoveWorkspace(ctx context.Context, owner, scope string) error {
	if e.workspaces == nil {
		return nil
	}
	return e.workspaces.RemoveWorkspace(ctx, owner, scope)
}

// CleanWorkspaces completes removals that were interrupted.
func (e *Executor) CleanWorkspaces(ctx context.Context) error {
	if e.workspaces == nil {
		return nil
	}
	return e.workspaces.CleanWorkspaces(ctx)
}

// WorkspaceSpace returns the number of free bytes on the disk of the workspaces.
func (e *Executor) WorkspaceSpace(ctx context.Context) int64 {
	if e.workspaces == nil {
		return -1
	}
	return e.workspaces.WorkspaceSpace(ctx)
}

var _ executor.WorkspaceKeeper = (*Executor)(nil)
