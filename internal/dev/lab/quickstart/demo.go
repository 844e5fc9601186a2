package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
)

const (
	projectName = "quickstart"
	stackName   = "dev"
	// statusTimeout limits the wait for a deployment's final status after the CLI has printed the
	// whole log.
	statusTimeout  = 30 * time.Second
	statusInterval = 100 * time.Millisecond
)

type demo struct {
	*quickstart
	repo  *lab.Repo
	work  string // the repository's clone
	home  string // PULUMI_HOME of the CLI
	stack string // ORGANIZATION/PROJECT/STACK
}

func (q *quickstart) newDemo(ctx context.Context) (*demo, error) {
	root, err := lab.Root()
	if err != nil {
		return nil, err
	}
	files, err := lab.ReadFiles(filepath.Join(root, "examples", "quickstart"))
	if err != nil {
		return nil, err
	}
	git := filepath.Join(q.dir, "git")
	if err := os.Mkdir(git, 0o755); err != nil {
		return nil, fmt.Errorf("creating a directory for the git server: %w", err)
	}
	if q.git, err = lab.StartGitServer(ctx, git, lab.GitOptions{}); err != nil {
		return nil, err
	}
	q.undo = append(q.undo, q.git.Close)
	d := &demo{
		quickstart: q,
		work:       filepath.Join(q.dir, "program"),
		home:       filepath.Join(q.dir, "cli-home"),
		stack:      strings.Join([]string{q.server.Organization, projectName, stackName}, "/"),
	}
	if d.repo, _, err = q.git.NewRepo(ctx, projectName, files); err != nil {
		return nil, err
	}
	if err := q.tools.Home(d.home); err != nil {
		return nil, err
	}
	q.ui.say("examples/quickstart is in the git repository %s", d.repo.URL)
	return d, d.quietly(ctx, q.dir, "git", "clone", "--quiet", d.repo.Dir(), d.work)
}

// deploy creates the stack, saves its deployment settings and runs a deployment. It uses the stock
// CLI for everything but the settings.
func (d *demo) deploy(ctx context.Context) error {
	steps := [][]string{
		{"pulumi", "login", d.server.URL},
		{"pulumi", "stack", "init", d.stack},
		{"pulumi", "config", "set", "name", "quickstart"},
		{"pulumi", "config", "set", "--secret", "apiKey", "correct-horse-battery-staple"},
		{"git", "config", "user.name", "Quickstart"},
		{"git", "config", "user.email", "quickstart@example.invalid"},
		{"git", "add", "--all"},
		{"git", "commit", "--quiet", "--message", "Configure the stack"},
		{"git", "push", "--quiet"},
	}
	for _, step := range steps {
		if err := d.quietly(ctx, d.work, step...); err != nil {
			return err
		}
		if step[0] == "pulumi" {
			d.ui.say("$ %s", strings.Join(step, " "))
		}
	}
	if err := d.putSettings(ctx); err != nil {
		return err
	}
	d.ui.say("saved the deployment settings: repository, branch, pool %s", d.place.what())
	d.ui.say("$ pulumi deployment run update --suppress-stream-logs=false")
	if err := d.aloud(ctx, "pulumi", "deployment", "run", "update", "--suppress-stream-logs=false"); err != nil {
		return err
	}
	return d.awaitSuccess(ctx)
}

func (d *demo) putSettings(ctx context.Context) error {
	type object = map[string]any
	settings := object{
		"sourceContext": object{"git": object{"repoUrl": d.repo.URL, "branch": "refs/heads/" + lab.MainBranch}},
		"agentPoolID":   d.poolID,
	}
	if len(d.place.jobEnv) > 0 {
		settings["operationContext"] = object{"environmentVariables": d.place.jobEnv}
	}
	if d.place.image != "" {
		settings["executorContext"] = object{"executorImage": object{"reference": d.place.image}}
	}
	return d.server.Call(ctx, "PUT", "/api/stacks/"+d.stack+"/deployments/settings", settings, nil)
}

// awaitSuccess waits for the deployment's final status from the server, because CLIs before 3.276 exit
// with 0 even if the deployment failed.
func (d *demo) awaitSuccess(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, statusTimeout,
		fmt.Errorf("the deployment had no final status %s after its log was complete", statusTimeout))
	defer cancel()
	return child.Poll(ctx, statusInterval, func() (bool, error) {
		var list struct {
			Deployments []struct {
				Status  string `json:"status"`
				Version int    `json:"version"`
			} `json:"deployments"`
		}
		if err := d.server.Call(ctx, "GET", "/api/stacks/"+d.stack+"/deployments?pageSize=1", nil, &list); err != nil {
			return false, err
		}
		if len(list.Deployments) == 0 {
			return false, fmt.Errorf("the server lists no deployment of %s", d.stack)
		}
		latest := list.Deployments[0]
		switch {
		case latest.Status == "succeeded":
			d.ui.say("deployment #%d succeeded", latest.Version)
			return true, nil
		case ended(latest.Status):
			return false, fmt.Errorf("deployment #%d finished as %q; its log is above", latest.Version, latest.Status)
		}
		return false, nil
	})
}

func (d *demo) show(ctx context.Context) error {
	d.ui.say("$ pulumi stack output")
	return d.aloud(ctx, "pulumi", "stack", "output")
}

// writeEnvironment writes a shell script that sets the environment of the demo's CLI, and returns
// its path. The script holds a token, so only its owner may read it.
func (d *demo) writeEnvironment() (string, error) {
	var script strings.Builder
	fmt.Fprintf(&script, "export PATH='%s':\"$PATH\"\n", d.tools.Dir)
	for _, variable := range d.environment() {
		if name, value, ok := strings.Cut(variable, "="); ok && strings.HasPrefix(name, "PULUMI_") {
			fmt.Fprintf(&script, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
		}
	}
	path := filepath.Join(d.dir, "env.sh")
	if err := os.WriteFile(path, []byte(script.String()), 0o600); err != nil {
		return "", fmt.Errorf("writing the script that sets the CLI's environment: %w", err)
	}
	return path, nil
}

func (d *demo) environment() []string {
	return d.tools.Env(d.home, d.server.URL, d.server.Token)
}

func (d *demo) quietly(ctx context.Context, dir string, args ...string) error {
	cmd := d.command(ctx, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (d *demo) aloud(ctx context.Context, args ...string) error {
	colour := "never"
	if d.ui.colour {
		colour = "always"
	}
	cmd := d.command(ctx, append(args, "--color="+colour)...)
	cmd.Dir = d.work
	out := d.ui.lines()
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	out.flush()
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// command returns a command that runs args. The name "pulumi" means the demo's CLI.
func (d *demo) command(ctx context.Context, args ...string) *exec.Cmd {
	name := args[0]
	if name == "pulumi" {
		name = d.tools.Pulumi()
	}
	cmd := exec.CommandContext(ctx, name, args[1:]...)
	cmd.Env = d.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = stopPatience
	return cmd
}

func (p place) what() string {
	if p.image != "" {
		return "and image"
	}
	return "and environment"
}
