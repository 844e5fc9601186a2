// Package jobs measures jobs that an agent runs as processes.
package jobs

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
)

const stopPatience = 15 * time.Second

// product is a server, a stack and an agent.
type product struct {
	*site.Site
	run       *figures.Run
	agent     *lab.Agent
	setup     setup
	stack     string // of the jobs
	poolToken string
}

// setup is how the agent of a product runs.
type setup struct {
	env      []string
	target   string            // "" = process
	settings map[string]string // of the agent
	// between returns the agent's URL of the server, if not nil.
	between func(url string) (string, error)
	site    site.Options
}

// start starts a product whose jobs run a stub of pulumi, and waits until its agent is online. The caller
// must close it. If between is not nil, it returns the agent's URL of the server.
func start(ctx context.Context, run *figures.Run, between func(url string) (string, error)) (*product, error) {
	return startWith(ctx, run, setup{env: []string{"PATH=" + run.Stubs + string(os.PathListSeparator) + os.Getenv("PATH")}, between: between})
}

func startWith(ctx context.Context, run *figures.Run, setup setup) (_ *product, err error) {
	s, err := site.Start(ctx, run, setup.site)
	if err != nil {
		return nil, err
	}
	p := &product{Site: s, run: run, setup: setup, stack: "job"}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	pool, token, err := s.Pool(ctx)
	if err != nil {
		return nil, err
	}
	p.poolToken = token
	if err := s.NewStack(ctx, p.stack); err != nil {
		return nil, err
	}
	url := s.URL
	if setup.between != nil {
		if url, err = setup.between(url); err != nil {
			return nil, err
		}
	}
	if err := p.startAgent(ctx, url); err != nil {
		return nil, err
	}
	return p, until(ctx, 20*time.Millisecond, 30*time.Second, "the agent's first poll", func() (bool, error) {
		var found struct{ Agents []struct{ Status string } }
		err := s.Call(ctx, http.MethodGet, "/api/orgs/"+s.Organization+"/agent-pools/"+pool, nil, &found)
		return len(found.Agents) > 0 && found.Agents[0].Status == "online", err
	})
}

func (p *product) startAgent(ctx context.Context, url string) error {
	dir, err := p.run.NewDir()
	if err != nil {
		return err
	}
	// The jobs have no source: pulumi searches the job's directory and its parents for a project,
	// and finds this one.
	if err := os.WriteFile(filepath.Join(dir, "Pulumi.yaml"), []byte("name: bench\nruntime: yaml\n"), 0o600); err != nil {
		return fmt.Errorf("writing the project file: %w", err)
	}
	p.agent, err = lab.StartAgent(ctx, lab.AgentOptions{
		Binary: p.run.Program("customer-managed-workflow-agent"), Dir: dir, ServiceURL: url, Token: p.poolToken,
		Target: cmp.Or(p.setup.target, "process"), Settings: p.setup.settings, Env: append([]string{"HOME=" + dir}, p.setup.env...),
	})
	return err
}

func (p *product) agentPID() int { return p.agent.Process.Pid() }

func (p *product) close() {
	if p.agent != nil {
		jobs := figures.Tree(p.agentPID())[1:]
		_ = p.agent.Process.Stop(syscall.SIGTERM, stopPatience)
		// An agent that stops leaves its jobs running, also those of an interrupted run.
		for _, pid := range jobs {
			if strings.HasPrefix(figures.Program(pid), p.run.Dir) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	p.Close()
}

// enqueue starts a job that runs shell text as its pre-run command, with BENCH_STAMP set to file.
func (p *product) enqueue(ctx context.Context, command, file string) (job string, err error) {
	return p.Enqueue(ctx, p.stack, command, map[string]string{"BENCH_STAMP": file})
}

// finished reports whether the job has finished; a failed job is an error.
func (p *product) finished(ctx context.Context, job string) (bool, error) {
	resp, err := p.Send(ctx, http.MethodGet, "/api/deployments/"+job+"/status", http.Header{"Authorization": {"token " + p.poolToken}}, nil)
	if err != nil {
		return false, err
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return false, err
	}
	switch status := strings.Trim(strings.TrimSpace(string(text)), `"`); status {
	case "failed", "skipped":
		var log strings.Builder
		if err := lines(ctx, p.pages(job), func(line string) { log.WriteString(line + "\n") }); err != nil {
			fmt.Fprintf(&log, "(the rest cannot be read: %v)\n", err)
		}
		return false, fmt.Errorf("deployment %s has status %s; its log:\n%sthe agent's log:\n%s", job, status, log.String(), child.Tail(p.agent.LogFile, 20))
	default:
		return status == "succeeded", nil
	}
}

// runJob runs a job and reads its stamps.
func (p *product) runJob(ctx context.Context, command, file string) (job string, t jobTimes, err error) {
	if job, err = p.enqueue(ctx, command, file); err != nil {
		return "", t, err
	}
	t.queued = time.Now()
	err = until(ctx, time.Millisecond, jobPatience, "the job's exit", func() (bool, error) { return p.finished(ctx, job) })
	t.finished = time.Now()
	if err != nil {
		return job, t, err
	}
	if t.first, err = readTimes(file); err != nil {
		return job, t, err
	}
	t.last, err = readTimes(file + ".pulumi")
	return job, t, err
}

// alone waits until the agent has no job.
func (p *product) alone(ctx context.Context) error {
	return until(ctx, 5*time.Millisecond, time.Minute, "the last job's exit", func() (bool, error) {
		return len(figures.Tree(p.agentPID())) == 1, nil
	})
}

// until calls ask at every interval until ask returns true or an error, or patience has passed.
func until(ctx context.Context, interval, patience time.Duration, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("timed out waiting for %s after %s", what, patience))
	defer cancel()
	return child.Poll(ctx, interval, ask)
}
