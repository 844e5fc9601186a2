package source

import (
	"context"
	"errors"
	"fmt"

	"workflowagent/internal/workflow"
)

// keptError reports that a kept checkout cannot be used.
type keptError struct{ error }

func (e *keptError) Unwrap() error { return e.error }

// checkOut checks out a revision, in the kept checkout if there is one, and reports whether it was used. A
// kept checkout that fails costs the job only time.
func (g *Git) checkOut(ctx context.Context, f *fetch, want revision) (commit string, reused bool, err error) {
	if g.Keep != nil && g.Keep.Kept != nil {
		reason := g.Keep.reusable(f.repo, g.Source, want)
		if reason == "" {
			f.keep = g.Keep
			address := f.repo
			commit, err = f.run(ctx, want)
			if err == nil {
				if err = f.keep.restore(ctx, f.git); err != nil && ctx.Err() == nil {
					err = &keptError{err}
				}
			}
			if err == nil {
				_, err = f.git.run(ctx, "update-ref", "-d", keptRef)
			}
			kept, isKept := errors.AsType[*keptError](err)
			if !isKept {
				return commit, true, err
			}
			f.keep, f.repo = nil, address
			reason = lastLine(kept.Error())
		}
		fmt.Fprintf(f.log, "Workspace: the kept checkout was not used: %s\n", reason)
	}
	commit, err = f.run(ctx, want)
	return commit, false, err
}

// describe completes checkout with what a workspace needs to keep it. repo has the address of the settings.
func (g *Git) describe(ctx context.Context, git *commandLine, repo *workflow.Repository, checkout *Checkout) {
	if g.Keep == nil {
		return
	}
	if !keepable(g.Source) {
		fmt.Fprintln(g.Log, "Workspace: the checkout is not kept, because it has submodules or files of Git LFS")
		return
	}
	if !checkout.Reused {
		if _, err := list(ctx, git); err != nil {
			fmt.Fprintf(g.Log, "Workspace: the checkout is not kept: %s\n", lastLine(err.Error()))
			return
		}
	}
	kept, err := record(ctx, git, g.Keep.Git, origin(repo, g.Source), checkout.Commit)
	switch {
	case err != nil:
		fmt.Fprintf(g.Log, "Workspace: the checkout is not kept: %s\n", lastLine(err.Error()))
	case len(kept.Packs) > maxPacks:
		// Without a description, the next job clones the repository, which gives one pack.
	default:
		checkout.Kept = kept
	}
	if kept != nil {
		before := g.Keep.Kept
		if !checkout.Reused {
			before = nil
		}
		checkout.Received = received(before, kept.Packs)
	}
}
