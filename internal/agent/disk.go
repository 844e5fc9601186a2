package agent

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/words"
)

// checkDisk returns an error if the disk of the state directory has too little space for jobs. It first
// removes workspaces. A disk that cannot be examined counts as one with space.
func (a *Agent) checkDisk(ctx context.Context) error {
	dir := a.opts.Identity.Dir
	free, err := a.opts.FreeSpace(dir)
	if err == nil && free < executor.LeastSpace && a.opts.Keeper != nil {
		if _, err := a.opts.Keeper.Prune(ctx, false); err != nil {
			a.log.WithError(err).Warn("removing workspaces to free space failed")
		}
		free, err = a.opts.FreeSpace(dir)
	}
	if err == nil && free < executor.LeastSpace {
		return fmt.Errorf("the disk of state_directory, %s, has only %s free, and jobs need %s: free up space", dir, words.Bytes(free), words.Bytes(executor.LeastSpace))
	}
	return nil
}

// onFullDisk returns advice to add to the message of a job that failed with err, or "".
func (a *Agent) onFullDisk(err error) string {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, executor.ErrNoSpace) {
		return fmt.Sprintf(" A disk of the agent's host is full: free up space, first on that of state_directory, %s.", a.opts.Identity.Dir)
	}
	return ""
}
