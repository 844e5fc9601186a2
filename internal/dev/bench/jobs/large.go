package jobs

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/dev/lab"
)

// Large creates many resources in jobs, and with the engine without checkpoints. Then it kills the CLI of such
// jobs, and compares the stored state with what the server acknowledged.
func Large(ctx context.Context, run *figures.Run) error {
	sizes := figures.Pick(run, []int{1000, 5000}, []int{100, 500})
	w, err := startWarm(ctx, run, setup{}, nil)
	if err != nil {
		return err
	}
	defer w.close()
	var ours [][]float64
	for _, n := range sizes {
		p := warmProgram{files: map[string]string{"Pulumi.yaml": stashes(n)}}
		w.stack = fmt.Sprintf("large%d", n)
		repo, err := w.publish(ctx, p)
		if err != nil {
			return err
		}
		var jobs, engine []float64
		for round := range run.Rounds {
			w.stack = fmt.Sprintf("large%d-%d", n, round)
			if err := w.newStack(ctx, p, repo); err != nil {
				return err
			}
			d, err := w.deploy(ctx)
			if err != nil {
				return err
			}
			e, err := w.engineAlone(ctx, p, repo)
			if err != nil {
				return err
			}
			jobs, engine = append(jobs, d.took), append(engine, e)
			run.Say("  round %d: up of %d in a job %.1f s; engine %.1f s", round+1, n, d.took, e)
		}
		run.Compare(fmt.Sprintf("up of %d in a job, CLI %s; engine without checkpoints", n, lab.PulumiVersion), "s", jobs, engine, figures.RatioAtMost(1.5, false))
		ours = append(ours, jobs)
	}
	run.Compare(fmt.Sprintf("up of %d in a job; of %d", sizes[1], sizes[0]), "s", ours[1], ours[0], figures.RatioAtMost(6, false))
	return killed(ctx, run, sizes[1])
}

func stashes(n int) string {
	text := strings.Builder{}
	text.WriteString("name: " + site.Project + "\nruntime: yaml\nresources:\n")
	for i := range n {
		fmt.Fprintf(&text, "  r%d:\n    type: %s\n    properties:\n      input: %d\n", i, site.StashType, i)
	}
	return text.String()
}

// engineAlone returns the seconds that the engine takes for a new stack that it writes once, to a file.
func (w *warm) engineAlone(ctx context.Context, p warmProgram, repo *lab.Repo) (float64, error) {
	u, err := w.newUser(p)
	if err != nil {
		return 0, err
	}
	u.variables = append(u.variables, "PULUMI_BACKEND_URL=file://"+u.dir, "PULUMI_CONFIG_PASSPHRASE=bench", "PULUMI_EXPERIMENTAL=true", "PULUMI_SKIP_CHECKPOINTS=true")
	stack := "organization/" + site.Project + "/" + w.stack
	if err := errors.Join(u.run(ctx, "git", "clone", "--quiet", "--depth=1", repo.URL, "."), u.pulumi(ctx, "stack", "init", stack)); err != nil {
		return 0, err
	}
	return seconds(func() error { return u.pulumi(ctx, "up", "--yes", "--skip-preview", "--stack="+stack) })
}

// killed kills the CLI of jobs in the middle, and counts the resources that the server acknowledged and does not
// have.
func killed(ctx context.Context, run *figures.Run, n int) error {
	a := &acknowledged{}
	w, err := startWarm(ctx, run, setup{site: site.Options{Accepted: a.see}}, nil)
	if err != nil {
		return err
	}
	defer w.close()
	p := warmProgram{files: map[string]string{"Pulumi.yaml": stashes(n)}}
	w.stack = "killed"
	repo, err := w.publish(ctx, p)
	if err != nil {
		return err
	}
	var lost, acked []float64
	for round := range run.Rounds {
		w.stack = fmt.Sprintf("killed%d", round)
		a.reset()
		if err := w.newStack(ctx, p, repo); err != nil {
			return err
		}
		if err := w.kill(ctx, func() bool { return a.count() >= n/2 }); err != nil {
			return err
		}
		have, err := w.stored(ctx)
		if err != nil {
			return err
		}
		missing := a.missing(have)
		run.Say("  round %d: killed after %d of %d resources; stored %d, lost %d", round+1, a.count(), n, len(have), missing)
		lost, acked = append(lost, float64(missing)), append(acked, float64(a.count()))
	}
	run.Add(fmt.Sprintf("resources of %d acknowledged before kill -9", n), "resources", acked, figures.Goal{})
	run.Add("acknowledged resources lost", "resources", lost, figures.AtMost(0, true))
	return nil
}

// kill starts a deployment, kills its CLI when ready returns true, and waits for the end of the deployment.
func (w *warm) kill(ctx context.Context, ready func() bool) error {
	id, err := w.queue(ctx)
	if err != nil {
		return err
	}
	cli, err := filepath.EvalSymlinks(w.tools.Pulumi())
	if err != nil {
		return fmt.Errorf("finding the CLI: %w", err)
	}
	killed := false
	err = until(ctx, 10*time.Millisecond, warmPatience, "a CLI to kill", func() (bool, error) {
		if !ready() {
			return w.finished(ctx, id)
		}
		for _, pid := range figures.Tree(w.agentPID()) {
			if figures.Program(pid) == cli {
				killed = syscall.Kill(pid, syscall.SIGKILL) == nil || killed
			}
		}
		return true, nil
	})
	if err == nil && !killed {
		err = errors.New("the CLI ended before it was killed")
	}
	if err != nil {
		return err
	}
	return until(ctx, 10*time.Millisecond, warmPatience, "the end of a killed deployment", func() (bool, error) {
		var d struct{ Status string }
		err := w.Call(ctx, http.MethodGet, w.StackPath(w.stack)+"/deployments/"+id, nil, &d)
		if d.Status == "succeeded" {
			return false, fmt.Errorf("deployment %s succeeded, although its CLI was killed", id)
		}
		return d.Status == "failed", err
	})
}

// stored returns the URNs of the stack's resources.
func (w *warm) stored(ctx context.Context) (map[string]bool, error) {
	resp, err := w.Send(ctx, http.MethodGet, w.StackPath(w.stack)+"/export", nil, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var state struct {
		Deployment struct{ Resources []struct{ URN string } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&state); err != nil {
		return nil, fmt.Errorf("reading a state: %w", err)
	}
	have := map[string]bool{}
	for _, r := range state.Deployment.Resources {
		have[r.URN] = true
	}
	return have, nil
}

// acknowledged are the URNs of resources whose journal entries the server has accepted.
type acknowledged struct {
	mu   sync.Mutex
	urns map[string]bool
}

func (a *acknowledged) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.urns = map[string]bool{}
}

func (a *acknowledged) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.urns)
}

func (a *acknowledged) missing(have map[string]bool) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for urn := range a.urns {
		if !have[urn] {
			n++
		}
	}
	return n
}

// see records the resources of a batch of a journal.
func (a *acknowledged) see(path string, body io.Reader) {
	const success = 1
	if !strings.HasSuffix(path, "/journalentries") {
		return
	}
	if unzipped, err := gzip.NewReader(body); err == nil {
		body = unzipped
	}
	var batch struct {
		Entries []struct {
			Kind  int
			State struct{ URN string }
		}
	}
	_ = json.NewDecoder(body).Decode(&batch) // without its entries, no resource is acknowledged, and the run fails
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range batch.Entries {
		if e.Kind == success && e.State.URN != "" {
			a.urns[e.State.URN] = true
		}
	}
}
