package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/lab"
)

const upPatience = 10 * time.Minute

// pulumi runs the stock CLI on a program with many resources, alternating between the server and
// the CLI's file backend.
func (b *bench) pulumi(ctx context.Context) error {
	tools, err := lab.PulumiTools(ctx, io.Discard)
	if err != nil {
		return err
	}
	n := pick(b, 1000, 100)
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	program := filepath.Join(dir, "program")
	if err := writeProgram(program, n); err != nil {
		return err
	}
	p, err := b.startProduct(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		return fmt.Errorf("creating a directory for the CLI's backend: %w", err)
	}
	server, err := newCLI(tools, filepath.Join(dir, "home-server"), program, p.server.URL, p.server.Token)
	if err != nil {
		return err
	}
	files, err := newCLI(tools, filepath.Join(dir, "home-files"), program, "file://"+state, "")
	if err != nil {
		return err
	}
	files.env = append(files.env, "PULUMI_CONFIG_PASSPHRASE=bench")

	var up, floorUp, used, floorUsed, serverCPU, wrong []float64
	for round := range min(b.rounds, 2) { // one run takes minutes
		stack := fmt.Sprintf("up%d", round)
		before, err := figures.CPU(p.serverPID())
		if err != nil {
			return err
		}
		wall, cpuTime, err := server.up(ctx, p.server.Organization+"/bench/"+stack)
		if err != nil {
			return err
		}
		after, err := figures.CPU(p.serverPID())
		if err != nil {
			return err
		}
		up, used, serverCPU = append(up, wall), append(used, cpuTime), append(serverCPU, (after-before).Seconds())
		stored, err := p.resources(ctx, stack)
		if err != nil {
			return err
		}
		wrong = append(wrong, float64(abs(n-stored)))
		if wall, cpuTime, err = files.up(ctx, "organization/bench/"+stack); err != nil {
			return err
		}
		floorUp, floorUsed = append(floorUp, wall), append(floorUsed, cpuTime)
		b.say("  round %d: %.1f and %.1f s, server CPU %.1f s", round+1, last(up), last(floorUp), last(serverCPU))
	}
	b.add(fmt.Sprintf("pulumi up of %d resources", n), "s", up, floorUp, figures.Goal{})
	b.add("CPU of the CLI and its children", "s", used, floorUsed, figures.Goal{})
	b.add("CPU of the server", "s", serverCPU, nil, figures.Goal{})
	b.add("resources missing in the stored state", "resources", wrong, nil, figures.AtMost(0, true))
	return nil
}

func writeProgram(dir string, n int) error {
	var text strings.Builder
	text.WriteString("name: bench\nruntime: yaml\nresources:\n")
	for i := range n {
		fmt.Fprintf(&text, "  r%04d:\n    type: lab:Random\n", i)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("writing a program: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Pulumi.yaml"), []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("writing a program: %w", err)
	}
	return nil
}

type cli struct {
	path, dir string
	env       []string
}

func newCLI(tools lab.Tools, home, program, backend, token string) (*cli, error) {
	if err := tools.Home(home); err != nil {
		return nil, err
	}
	return &cli{tools.Pulumi(), program, tools.Env(home, backend, token)}, nil
}

// up creates a stack and runs pulumi up on it. It returns the wall-clock and CPU seconds of that
// command only.
func (c *cli) up(ctx context.Context, stack string) (wall, used float64, err error) {
	if _, err := c.run(ctx, "stack", "init", stack); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	state, err := c.run(ctx, "up", "--yes", "--skip-preview", "--stack="+stack)
	if err != nil {
		return 0, 0, err
	}
	return time.Since(began).Seconds(), (state.UserTime() + state.SystemTime()).Seconds(), nil
}

func (c *cli) run(ctx context.Context, args ...string) (*os.ProcessState, error) {
	ctx, cancel := context.WithTimeout(ctx, upPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.path, append(args, "--non-interactive", "--color=never")...)
	cmd.Dir, cmd.Env = c.dir, c.env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopPatience
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pulumi %s: %w\n%s", strings.Join(args, " "), err, out[max(0, len(out)-4000):])
	}
	return cmd.ProcessState, nil
}

func (p *product) resources(ctx context.Context, stack string) (int, error) {
	var export struct {
		Deployment struct {
			Resources []struct {
				Type string `json:"type"`
			} `json:"resources"`
		} `json:"deployment"`
	}
	if err := p.server.Call(ctx, http.MethodGet, "/api/stacks/"+p.server.Organization+"/bench/"+stack+"/export", nil, &export); err != nil {
		return 0, err
	}
	n := 0
	for _, resource := range export.Deployment.Resources {
		if strings.HasPrefix(resource.Type, "lab:") {
			n++
		}
	}
	return n, nil
}

func abs(n int) int { return max(n, -n) }
