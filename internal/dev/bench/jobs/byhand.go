package jobs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"workflowagent/internal/dev/bench/site"
)

// user does by hand what deployments do, in a checkout and with a home that are kept. With an engine, each
// command runs in a new container of the jobs' image.
type user struct {
	w         *warm
	dir       string // holds checkout and home
	variables []string
}

func (w *warm) newUser(p warmProgram) (*user, error) {
	dir, err := w.run.NewDir()
	if err != nil {
		return nil, err
	}
	u := &user{w: w, dir: dir}
	for name, value := range w.variables(p) {
		u.variables = append(u.variables, fmt.Sprintf("%s=%v", name, value))
	}
	return u, u.forget()
}

func (u *user) checkout() string { return filepath.Join(u.dir, "checkout") }

// forget empties the checkout and the home.
func (u *user) forget() error {
	if err := os.RemoveAll(u.dir); err != nil {
		return fmt.Errorf("removing a checkout: %w", err)
	}
	if err := os.MkdirAll(u.checkout(), 0o700); err != nil {
		return fmt.Errorf("creating a directory for a checkout: %w", err)
	}
	return u.w.tools.Home(filepath.Join(u.dir, "home"))
}

func (u *user) up(ctx context.Context) error {
	return u.pulumi(ctx, "up", "--yes", "--skip-preview", "--stack="+u.w.Organization+"/"+site.Project+"/"+u.w.stack)
}

func (u *user) pulumi(ctx context.Context, args ...string) error {
	return u.run(ctx, append([]string{"pulumi", "--non-interactive", "--color=never"}, args...)...)
}

// run runs a command in the checkout.
func (u *user) run(ctx context.Context, args ...string) error {
	env := append(u.w.tools.Env(filepath.Join(u.dir, "home"), u.w.URL, u.w.Token), u.variables...)
	if u.w.engine == nil {
		return command(ctx, u.checkout(), append(env, "PATH="+u.w.path), append([]string{"env"}, args...)...)
	}
	docker := []string{"docker", "--host=" + u.w.engine.Host, "run", "--rm", "--network=host", "--volume=" + u.dir + ":" + u.dir, "--workdir=" + u.checkout()}
	for _, variable := range env {
		if name, _, _ := strings.Cut(variable, "="); name != "PATH" && name != "TMPDIR" {
			docker = append(docker, "--env="+variable)
		}
	}
	return command(ctx, u.dir, os.Environ(), slices.Concat(docker, []string{u.w.image}, args)...)
}

// command runs a program.
func command(ctx context.Context, dir string, env []string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, warmPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopPatience
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out[max(0, len(out)-4000):])
	}
	return nil
}
