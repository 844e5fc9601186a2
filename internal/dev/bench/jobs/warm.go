package jobs

import (
	"context"
	"errors"
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
	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/dev/lab"
)

const (
	warmPatience = 15 * time.Minute
	// ignored are the files that tools add to the checkouts of programs.
	ignored = "node_modules\n/bin\n"
)

// warmProgram is a program of which deployments change nothing.
type warmProgram struct {
	name  string
	tool  string // that the program needs on the PATH, or ""
	files map[string]string
	lock  []string // command that adds the lock file, or nil
	more  float64  // seconds that the second deployment may take longer than pulumi up in a warm checkout
	// change returns a file of the program for each round, or is nil.
	change func(round int) (path, text string)
	// fetch compares only how long the source takes with a change, not pulumi.
	fetch bool
}

func warmPrograms(run *figures.Run) []warmProgram {
	var yaml strings.Builder
	yaml.WriteString("name: " + site.Project + "\nruntime: yaml\nresources:\n")
	for i := range 20 {
		fmt.Fprintf(&yaml, "  r%d:\n    type: %s\n    properties:\n      input: %d\n", i, site.StashType, i)
	}
	large := map[string]string{"Pulumi.yaml": yaml.String()}
	n := figures.Pick(run, 50_000, 500)
	for i := range n {
		// Compression does not make the content much smaller.
		large[fmt.Sprintf("files/%d/%d", i/500, i)] = incompressible(i, 10_000)
	}
	return []warmProgram{
		{name: "YAML, 20 resources", files: map[string]string{"Pulumi.yaml": yaml.String()}, more: 0.3},
		{name: "Node.js", tool: "npm", lock: []string{"npm", "install", "--package-lock-only", "--no-audit", "--no-fund"}, more: 1.5, files: map[string]string{
			"Pulumi.yaml": "name: " + site.Project + "\nruntime: nodejs\n", ".gitignore": ignored,
			"package.json":  `{"name": "bench", "main": "index.ts", "dependencies": {"@pulumi/pulumi": "3.255.0"}, "devDependencies": {"@types/node": "20.19.0", "typescript": "5.9.2"}}`,
			"tsconfig.json": `{"compilerOptions": {"strict": true, "target": "es2020", "module": "commonjs", "moduleResolution": "node"}, "files": ["index.ts"]}`,
			"index.ts":      "import * as pulumi from \"@pulumi/pulumi\";\nexport const stack = pulumi.getStack();\n",
		}},
		{name: "Go", tool: "go", lock: []string{"go", "mod", "tidy"}, more: 1.5, files: map[string]string{
			"Pulumi.yaml": "name: " + site.Project + "\nruntime: go\n", ".gitignore": ignored,
			"go.mod":  "module bench\n\ngo 1.25.0\n\nrequire github.com/pulumi/pulumi/sdk/v3 v3.255.0\n",
			"main.go": goMain(0),
		}, change: func(round int) (path, text string) { return "main.go", goMain(round) }},
		{name: fmt.Sprintf("YAML in a repository of %d files", n), files: large, more: 1, fetch: true, change: func(round int) (path, text string) {
			return "files/0/0", incompressible(-round, 10_000)
		}},
	}
}

func goMain(round int) string {
	return fmt.Sprintf("package main\n\nimport \"github.com/pulumi/pulumi/sdk/v3/go/pulumi\"\n\nfunc main() {\n"+
		"\tpulumi.Run(func(*pulumi.Context) error { _ = %d; return nil })\n}\n", round)
}

// incompressible returns text that depends on seed.
func incompressible(seed, size int) string {
	text := make([]byte, size)
	x := uint64(seed)*2862933555777941757 + 3037000493
	for i := range text {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		text[i] = byte(' ' + x%95)
	}
	return string(text)
}

// warm is a product whose jobs run the stock CLI, with a git server.
type warm struct {
	*product
	git   *lab.GitServer
	tools lab.Tools
	path  string // of the jobs and of the CLI that users run
}

// Warm compares the deployments of programs that change nothing with pulumi up in a checkout that is kept.
func Warm(ctx context.Context, run *figures.Run) (err error) {
	w := &warm{}
	if w.tools, err = lab.PulumiTools(ctx, io.Discard); err != nil {
		return err
	}
	if err := w.findHosts(ctx, run); err != nil {
		return err
	}
	env := append(w.tools.Quiet(), "PATH="+w.path)
	if w.product, err = startWith(ctx, run, env, nil); err != nil {
		return err
	}
	defer w.close()
	dir, err := run.NewDir()
	if err != nil {
		return err
	}
	if w.git, err = lab.StartGitServer(ctx, dir, lab.GitOptions{}); err != nil {
		return err
	}
	defer func() { _ = w.git.Close() }()
	for i, p := range warmPrograms(run) {
		if p.tool != "" {
			if _, err := exec.LookPath(p.tool); err != nil {
				run.Skip(p.name, p.tool+" is not installed")
				continue
			}
		}
		w.stack = fmt.Sprintf("warm%d", i)
		if err := w.measure(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// findHosts sets the path of programs: Pulumi's language hosts if they are on the PATH, or else those of the
// tests.
func (w *warm) findHosts(ctx context.Context, run *figures.Run) error {
	dir, err := run.NewDir()
	if err != nil {
		return err
	}
	for _, name := range []string{"pulumi-language-nodejs", "pulumi-language-go"} {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		host, err := lab.LanguageHost(ctx, io.Discard)
		if err != nil {
			return err
		}
		run.Say("  %s is not on the PATH; the tests' own host replaces it", name)
		if err := os.Symlink(host, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("adding a language host: %w", err)
		}
	}
	w.path = strings.Join([]string{w.tools.Dir, dir, os.Getenv("PATH")}, string(os.PathListSeparator))
	return nil
}

// measure deploys a program: once on an agent that has never seen it, and then again and again.
func (w *warm) measure(ctx context.Context, p warmProgram) error {
	checkout, repo, err := w.publish(ctx, p)
	if err != nil {
		return err
	}
	if err := w.NewStack(ctx, w.stack); err != nil {
		return err
	}
	settings := map[string]any{
		"sourceContext":    map[string]any{"git": map[string]any{"repoURL": repo.URL, "branch": lab.MainBranch}},
		"operationContext": map[string]any{"environmentVariables": w.registries(ctx)},
		"cacheOptions":     map[string]any{"enable": true},
	}
	if err := w.Call(ctx, http.MethodPut, w.StackPath(w.stack)+"/deployments/settings", settings, nil); err != nil {
		return err
	}
	cold, err := w.deploy(ctx)
	if err != nil {
		return err
	}
	user, up := w.user(checkout), w.up()
	coldBare, err := w.seconds(func() error {
		return errors.Join(command(ctx, filepath.Dir(checkout), os.Environ(), "git", "clone", "--quiet", "--depth=1", repo.URL, checkout),
			user(ctx, "install"), user(ctx, up...))
	})
	if err != nil {
		return err
	}
	w.run.Say("  %s: first deployment %.1f s; clone, install and up by hand %.1f s", p.name, cold.took, coldBare)
	w.run.Compare(p.name+": first deployment; clone, install and up by hand", "s", []float64{cold.took}, []float64{coldBare}, figures.RatioAtMost(1.1, false))
	var ours, bare, more []float64
	for range w.run.Rounds {
		b, err := w.seconds(func() error { return user(ctx, up...) })
		if err != nil {
			return err
		}
		d, err := w.deploy(ctx)
		if err != nil {
			return err
		}
		ours, bare, more = append(ours, d.took), append(bare, b), append(more, d.took-b)
	}
	w.run.Say("  %s: second deployment %.2f s; pulumi up %.2f s", p.name, figures.Median(ours), figures.Median(bare))
	w.run.Compare(p.name+": second deployment; pulumi up in a kept checkout", "s", ours, bare, figures.Goal{})
	w.run.Add(p.name+": longer than pulumi up", "s", more, figures.AtMost(p.more, false))
	if p.change == nil {
		return nil
	}
	return w.changed(ctx, p, repo, checkout)
}

// changed measures deployments of which each has another commit.
func (w *warm) changed(ctx context.Context, p warmProgram, repo *lab.Repo, checkout string) error {
	user, up := w.user(checkout), w.up()
	var ours, bare []float64
	for round := range w.run.Rounds {
		path, text := p.change(round + 1)
		if _, err := repo.Commit(ctx, lab.MainBranch, "Change", map[string]string{path: text}); err != nil {
			return err
		}
		b, err := w.seconds(func() error {
			err := errors.Join(command(ctx, checkout, os.Environ(), "git", "fetch", "--quiet", "--depth=1", "origin", lab.MainBranch),
				command(ctx, checkout, os.Environ(), "git", "checkout", "--quiet", "FETCH_HEAD"))
			if p.fetch || err != nil {
				return err
			}
			return user(ctx, up...)
		})
		if err != nil {
			return err
		}
		d, err := w.deploy(ctx)
		if err != nil {
			return err
		}
		if p.fetch {
			d.took = d.source
		}
		ours, bare = append(ours, d.took), append(bare, b)
	}
	w.run.Say("  %s: with a changed file %.2f s; by hand %.2f s", p.name, figures.Median(ours), figures.Median(bare))
	if p.fetch {
		w.run.Compare(p.name+": source with a changed file; git fetch and checkout", "s", ours, bare, figures.RatioAtMost(1.2, false))
		return nil
	}
	w.run.Compare(p.name+": deployment of a changed file; fetch and up by hand", "s", ours, bare, figures.RatioAtMost(1.5, false))
	return nil
}

func (w *warm) up() []string {
	return []string{"up", "--yes", "--skip-preview", "--stack=" + w.Organization + "/" + site.Project + "/" + w.stack}
}

func (w *warm) seconds(do func() error) (float64, error) {
	began := time.Now()
	err := do()
	return time.Since(began).Seconds(), err
}

// publish creates a repository of the program, and returns the directory for a checkout.
func (w *warm) publish(ctx context.Context, p warmProgram) (checkout string, repo *lab.Repo, err error) {
	dir, err := w.run.NewDir()
	if err != nil {
		return "", nil, err
	}
	files := p.files
	if p.lock != nil {
		locked := filepath.Join(dir, "lock")
		for path, text := range files {
			if err := errors.Join(os.MkdirAll(locked, 0o700), os.WriteFile(filepath.Join(locked, path), []byte(text), 0o600)); err != nil {
				return "", nil, fmt.Errorf("writing a program: %w", err)
			}
		}
		if err := command(ctx, locked, os.Environ(), p.lock...); err != nil {
			return "", nil, err
		}
		if files, err = lab.ReadFiles(locked); err != nil {
			return "", nil, err
		}
	}
	if repo, _, err = w.git.NewRepo(ctx, w.stack, files); err != nil {
		return "", nil, err
	}
	return filepath.Join(dir, "checkout"), repo, nil
}

// registries returns the variables with which the tools of this machine find their packages.
func (w *warm) registries(ctx context.Context) map[string]any {
	found := map[string]any{}
	for variable, show := range map[string][]string{
		"GOPROXY": {"go", "env", "GOPROXY"}, "GOSUMDB": {"go", "env", "GOSUMDB"},
		"npm_config_registry": {"npm", "config", "get", "registry"},
	} {
		if out, err := exec.CommandContext(ctx, show[0], show[1:]...).Output(); err == nil {
			found[variable] = strings.TrimSpace(string(out))
		}
	}
	return found
}

// user returns a function that runs pulumi in a checkout, with a home that begins empty.
func (w *warm) user(checkout string) func(ctx context.Context, args ...string) error {
	home := filepath.Join(filepath.Dir(checkout), "home")
	env := w.tools.Env(home, w.URL, w.Token)
	for i, variable := range env {
		if strings.HasPrefix(variable, "PATH=") {
			env[i] = "PATH=" + w.path
		}
	}
	return func(ctx context.Context, args ...string) error {
		if err := w.tools.Home(home); err != nil {
			return err
		}
		return command(ctx, checkout, env, append([]string{w.tools.Pulumi(), "--non-interactive", "--color=never"}, args...)...)
	}
}

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

// deployed is a deployment that has finished.
type deployed struct {
	took   float64 // seconds until its end
	source float64 // seconds that fetching the source took
}

// deploy updates the stack with its settings, and waits until the agent has no job left.
func (w *warm) deploy(ctx context.Context) (deployed, error) {
	var d struct{ ID string }
	began := time.Now()
	err := w.Call(ctx, http.MethodPost, w.StackPath(w.stack)+"/deployments", map[string]any{"operation": "update", "inheritSettings": true}, &d)
	if err != nil {
		return deployed{}, err
	}
	err = until(ctx, 10*time.Millisecond, warmPatience, "the end of a deployment", func() (bool, error) { return w.finished(ctx, d.ID) })
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
	if err := w.Call(ctx, http.MethodGet, w.StackPath(w.stack)+"/deployments/"+d.ID, nil, &body); err != nil {
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
		return deployed{}, fmt.Errorf("deployment %s has no step that fetched the source", d.ID)
	}
	return done, w.alone(ctx)
}
