package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/lab"
)

const warmPatience = 15 * time.Minute

// warm is a product whose jobs run the stock CLI, with a git server.
type warm struct {
	*product
	git    *lab.GitServer
	tools  lab.Tools
	hosts  map[string]string // language hosts by name
	path   string            // of the jobs and of the CLI that users run
	engine *lab.Engine       // of the jobs' containers, or nil
	image  string            // of the jobs' containers
	// registries are variables of jobs and of users.
	registries map[string]any
}

// startWarm starts a product with the settings of an agent. If engine is not nil, its jobs run in containers.
func startWarm(ctx context.Context, run *figures.Run, s setup, engine *lab.Engine) (_ *warm, err error) {
	w := &warm{engine: engine, registries: registries(ctx)}
	if w.tools, err = lab.PulumiTools(ctx, io.Discard); err != nil {
		return nil, err
	}
	if err := w.findHosts(ctx, run); err != nil {
		return nil, err
	}
	s.env = append(w.tools.Quiet(), "PATH="+w.path)
	if engine != nil {
		if w.image, err = w.load(ctx); err != nil {
			return nil, err
		}
		s.target, s.settings = "docker", map[string]string{"pull_image": "false"}
		s.env = append(s.env, "DOCKER_HOST="+engine.Host)
	}
	if w.product, err = startWith(ctx, run, s); err != nil {
		return nil, err
	}
	dir, err := run.NewDir()
	if err == nil {
		w.git, err = lab.StartGitServer(ctx, dir, lab.GitOptions{})
	}
	if err != nil {
		w.product.close()
		return nil, err
	}
	return w, nil
}

func (w *warm) close() {
	w.product.close()
	_ = w.git.Close()
}

// findHosts finds Pulumi's language hosts on the PATH; those of the tests replace the others. Python has
// none of the tests.
func (w *warm) findHosts(ctx context.Context, run *figures.Run) error {
	dir, err := run.NewDir()
	if err != nil {
		return err
	}
	w.hosts = map[string]string{}
	for _, name := range []string{"pulumi-language-nodejs", "pulumi-language-go"} {
		host, err := exec.LookPath(name)
		if err != nil {
			if host, err = lab.LanguageHost(ctx, io.Discard); err != nil {
				return err
			}
			run.Say("  %s is not on the PATH; the tests' own host replaces it", name)
		}
		w.hosts[name] = host
		if err := os.Symlink(host, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("adding a language host: %w", err)
		}
	}
	w.path = strings.Join([]string{w.tools.Dir, dir, os.Getenv("PATH")}, string(os.PathListSeparator))
	return nil
}

// load returns an image with pulumi, the language hosts and the tools of this machine.
func (w *warm) load(ctx context.Context) (string, error) {
	image, err := lab.NewExecutorImage(ctx, w.tools)
	if err != nil {
		return "", err
	}
	hosts := map[string]string{}
	for name, host := range w.hosts {
		hosts["/pulumi/bin/"+name] = host
	}
	image = image.With(hosts)
	if node, err := exec.LookPath("node"); err == nil {
		if npm, err := exec.LookPath("npm"); err == nil {
			script, err := filepath.EvalSymlinks(npm) // DIR/npm/bin/npm-cli.js
			if err := errors.Join(err, image.Copy(ctx, node, npm, filepath.Dir(filepath.Dir(script)))); err != nil {
				return "", err
			}
		}
	}
	if root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output(); err == nil {
		goroot := strings.TrimSpace(string(root))
		image.Link("/usr/local/bin/go", filepath.Join(goroot, "bin", "go"))
		if err := image.Copy(ctx, goroot); err != nil {
			return "", err
		}
	}
	return image.Load(ctx, w.engine.Host)
}

// newStack creates the stack of a program.
func (w *warm) newStack(ctx context.Context, p warmProgram, repo *lab.Repo) error {
	if err := w.NewStack(ctx, w.stack); err != nil {
		return err
	}
	operation := map[string]any{"environmentVariables": w.variables(p)}
	if p.preRun != "" {
		operation["preRunCommands"] = []string{p.preRun}
	}
	settings := map[string]any{
		"sourceContext":    map[string]any{"git": map[string]any{"repoURL": repo.URL, "branch": lab.MainBranch}},
		"operationContext": operation,
		"cacheOptions":     map[string]any{"enable": !p.off},
	}
	if w.image != "" {
		settings["executorContext"] = map[string]any{"executorImage": map[string]string{"reference": w.image}}
	}
	return w.Call(ctx, http.MethodPut, w.StackPath(w.stack)+"/deployments/settings", settings, nil)
}

// forget removes all that the agent keeps.
func (w *warm) forget(ctx context.Context) error {
	return until(ctx, 50*time.Millisecond, time.Minute, "the removal of the workspaces", func() (bool, error) {
		out, err := w.agent.Run(ctx, "cache", "prune", "--all", "--json")
		if err != nil {
			return false, err
		}
		var after struct{ Kept int }
		err = json.Unmarshal(out, &after)
		return after.Kept == 0, err // a job that has just ended can still hold its workspace
	})
}

// deployed is a deployment that has finished.
type deployed struct {
	took   float64 // seconds until its end
	source float64 // seconds that fetching the source took
}

// deploy updates the stack with its settings, and waits until the agent has no job left.
func (w *warm) deploy(ctx context.Context) (deployed, error) {
	began := time.Now()
	id, err := w.queue(ctx)
	if err != nil {
		return deployed{}, err
	}
	err = until(ctx, 10*time.Millisecond, warmPatience, "the end of a deployment", func() (bool, error) { return w.finished(ctx, id) })
	took := time.Since(began).Seconds()
	if err != nil {
		return deployed{}, err
	}
	var body struct {
		Jobs []struct {
			Steps []struct {
				Name                 string
				Started, LastUpdated time.Time
			}
		}
	}
	if err := w.Call(ctx, http.MethodGet, w.StackPath(w.stack)+"/deployments/"+id, nil, &body); err != nil {
		return deployed{}, err
	}
	done := deployed{took: took}
	for _, job := range body.Jobs {
		for _, step := range job.Steps {
			if step.Name == "Get source" {
				done.source = step.LastUpdated.Sub(step.Started).Seconds()
			}
		}
	}
	if done.source <= 0 {
		return deployed{}, fmt.Errorf("deployment %s has no step that fetched the source", id)
	}
	return done, w.alone(ctx)
}

// queue starts an update of the stack with its settings.
func (w *warm) queue(ctx context.Context) (deployment string, err error) {
	var d struct{ ID string }
	err = w.Call(ctx, http.MethodPost, w.StackPath(w.stack)+"/deployments", map[string]any{"operation": "update", "inheritSettings": true}, &d)
	return d.ID, err
}

// alone waits until the agent has neither a process nor a container of a job.
func (w *warm) alone(ctx context.Context) error {
	if w.engine == nil {
		return w.product.alone(ctx)
	}
	docker, err := w.engine.Client()
	if err != nil {
		return err
	}
	defer func() { _ = docker.Close() }()
	return until(ctx, 10*time.Millisecond, time.Minute, "the removal of the last job's container", func() (bool, error) {
		list, err := docker.ContainerList(ctx, client.ContainerListOptions{All: true})
		return len(list.Items) == 0, err
	})
}
