package state

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/dev/lab"
)

const (
	commandPatience = 30 * time.Minute
	stopPatience    = 15 * time.Second
)

// fast returns the environment variables with which the runner starts the CLI. They let the CLI
// send batches of journal entries almost without delay, and prepare no checkpoints that it would discard.
func fast() []string {
	return []string{"PULUMI_JOURNALING_BATCH_PERIOD=2", "PULUMI_SKIP_CHECKPOINTS=true"}
}

// engineAlone returns environment variables that make the file backend write the state only at the
// end.
func engineAlone() []string {
	return []string{"PULUMI_EXPERIMENTAL=true", "PULUMI_SKIP_CHECKPOINTS=true"}
}

// cli is the stock CLI with a backend.
type cli struct {
	path, program, organization string
	env                         []string
}

// clis creates CLIs that run the same program.
type clis struct {
	tools   lab.Tools
	program string // directory
	homes   string // parent of the directories of CLIs
	made    int
}

func newCLIs(ctx context.Context, run *figures.Run, n int) (*clis, error) {
	tools, err := lab.PulumiTools(ctx, io.Discard)
	if err != nil {
		return nil, err
	}
	// A provider process would add costs that are not the server's.
	tools.ProviderDir = ""
	dir, err := run.NewDir()
	if err != nil {
		return nil, err
	}
	c := &clis{tools: tools, program: filepath.Join(dir, "program"), homes: dir}
	if err := os.Mkdir(c.program, 0o700); err != nil {
		return nil, fmt.Errorf("writing a program: %w", err)
	}
	return c, c.write(n, "value")
}

// write replaces the program by one with n resources. Changing first changes only the first
// resource.
func (c *clis) write(n int, first string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "name: %s\nruntime: yaml\nresources:\n", site.Project)
	for i := range n {
		input := "value"
		if i == 0 {
			input = first
		}
		fmt.Fprintf(&text, "  r%05d:\n    type: pulumi:index:Stash\n    properties:\n      input: %s %d\n", i, input, i)
	}
	if err := os.WriteFile(filepath.Join(c.program, "Pulumi.yaml"), []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("writing a program: %w", err)
	}
	return nil
}

func (c *clis) new(backend, token, organization string, env ...string) (*cli, error) {
	c.made++
	home := filepath.Join(c.homes, fmt.Sprintf("home%d", c.made))
	if err := c.tools.Home(home); err != nil {
		return nil, err
	}
	return &cli{c.tools.Pulumi(), c.program, organization, append(c.tools.Env(home, backend, token), env...)}, nil
}

func (c *clis) forSite(s *site.Site) (*cli, error) { return c.new(s.URL, s.Token, s.Organization) }

func (c *clis) forFiles() (*cli, error) {
	dir := filepath.Join(c.homes, fmt.Sprintf("files%d", c.made))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating a directory for the CLI's backend: %w", err)
	}
	return c.new("file://"+dir, "", "organization", "PULUMI_CONFIG_PASSPHRASE=bench")
}

// with returns the CLI with additional environment variables.
func (c *cli) with(env []string) *cli {
	other := *c
	other.env = append(append([]string{}, c.env...), env...)
	return &other
}

func (c *cli) init(ctx context.Context, stack string) error {
	_, err := c.run(ctx, "stack", "init", c.organization+"/"+site.Project+"/"+stack)
	return err
}

// up runs pulumi up on a stack, which it can create first, and returns the seconds of up.
func (c *cli) up(ctx context.Context, stack string, create bool) (float64, error) {
	if create {
		if err := c.init(ctx, stack); err != nil {
			return 0, err
		}
	}
	return c.on(ctx, stack, "up", "--yes", "--skip-preview")
}

// on runs a CLI command on a stack, and returns its duration in seconds.
func (c *cli) on(ctx context.Context, stack string, args ...string) (float64, error) {
	return c.run(ctx, append(args, "--stack="+c.organization+"/"+site.Project+"/"+stack)...)
}

func (c *cli) run(ctx context.Context, args ...string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, commandPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.path, append(args, "--non-interactive", "--color=never")...)
	cmd.Dir, cmd.Env = c.program, c.env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopPatience
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pulumi %s: %w\n%s", strings.Join(args, " "), err, out[max(0, len(out)-4000):])
	}
	return time.Since(began).Seconds(), nil
}
