package jobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"workflowagent/internal/dev/bench/figures"
)

const (
	manyLimit = 200 << 20 // workspace_max_size: a hundredth of the default
	// manyBytes is what a job downloads, if it does not find it: a workspace is smaller than a quarter of the limit,
	// and those of all stacks are four times as large as the limit.
	manyBytes = 8 << 20
	// manyPass is the number of jobs after which limits are applied. An agent does it every 5 minutes.
	manyPass = 10
)

// Many deploys many stacks in turn on one agent, with and without workspaces. The limit of all workspaces
// is so small that no stack finds its own again.
func Many(ctx context.Context, run *figures.Run) error {
	w, err := startWarm(ctx, run, setup{settings: map[string]string{"workspace_max_size": strconv.Itoa(manyLimit>>20) + "m"}}, nil)
	if err != nil {
		return err
	}
	defer w.close()
	p := warmProgram{
		files: map[string]string{"Pulumi.yaml": stashes(20)},
		preRun: fmt.Sprintf(`d="${npm_config_cache:-$HOME/.npm}"; [ -e "$d/done" ] || `+
			`{ mkdir -p "$d" && head -c %d /dev/urandom | split -b 100000 - "$d/file-" && touch "$d/done"; }`, manyBytes),
	}
	w.stack = "many"
	repo, err := w.publish(ctx, p)
	if err != nil {
		return err
	}
	n := figures.Pick(run, 100, 40)
	for i := range n {
		for _, off := range []bool{false, true} {
			w.stack, p.off = manyStack(i, off), off
			if err := w.newStack(ctx, p, repo); err != nil {
				return err
			}
		}
	}
	took := map[bool][]float64{} // by whether the stack has no workspace
	var peak, one, removed float64
	for i := range 2 * n {
		for _, off := range []bool{i%2 == 0, i%2 != 0} {
			w.stack = manyStack(i%n, off)
			passed := make(chan error, 1)
			go func() {
				var err error
				if !off && i%manyPass == manyPass-1 {
					_, err = w.agent.Run(ctx, "cache", "prune")
				}
				passed <- err
			}()
			d, err := w.deploy(ctx)
			if err := errors.Join(err, <-passed); err != nil {
				return err
			}
			took[off] = append(took[off], d.took)
		}
		used, count, err := w.workspaces()
		if err != nil {
			return err
		}
		if i == 0 {
			one = used
		}
		peak, removed = max(peak, used), float64(min(i+1, n)-count)
	}
	with, without := took[false], took[true]
	// The workspace of a job that runs during a pass does not count, and sizes differ a little.
	const above = manyPass + 2
	run.Say("  %d stacks in turn: %.2f s, without workspaces %.2f s; at most %.0f MB", n, figures.Median(with), figures.Median(without), peak)
	run.Compare(fmt.Sprintf("%d stacks in turn: deployment; without workspaces", n), "s", with, without, figures.RatioAtMost(1, false))
	run.Compare(fmt.Sprintf("largest disk use; workspace_max_size and %d workspaces", above), "MB",
		[]float64{peak}, []float64{figures.Megabytes(manyLimit) + above*one}, figures.RatioAtMost(1, true))
	run.Add("stacks whose workspace was removed at the end", "stacks", []float64{removed}, figures.AtLeast(1, true))
	return nil
}

func manyStack(i int, off bool) string {
	if off {
		return fmt.Sprintf("without%d", i)
	}
	return fmt.Sprintf("with%d", i)
}

// workspaces returns the number of the agent's workspaces and the megabytes that all of them occupy.
func (w *warm) workspaces() (used float64, count int, err error) {
	root := filepath.Join(filepath.Dir(w.agent.LogFile), "state", "workspaces")
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && filepath.Dir(path) == root && entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") {
			count++
		}
		var info fs.FileInfo
		if err == nil {
			info, err = entry.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has been removed
		}
		if err == nil {
			used += figures.Megabytes(info.Sys().(*syscall.Stat_t).Blocks * 512)
		}
		return err
	})
	return used, count, err
}
