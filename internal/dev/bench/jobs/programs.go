package jobs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/dev/lab"
)

const (
	// ignored are the files that tools add to the checkouts of programs.
	ignored = "node_modules\n/bin\n"
	// wheelsVariable names a directory of wheels: pulumi for Python and its dependencies.
	wheelsVariable = "BENCH_WHEELS"
)

// warmProgram is a program of which deployments change nothing.
type warmProgram struct {
	name  string
	needs []string // programs on the PATH
	files map[string]string
	lock  []string // command that adds the lock file, or nil
	more  float64  // seconds that the second deployment may take longer than pulumi up in a kept checkout
	// wheels is a directory of the Python packages of the program.
	wheels   string
	inImages bool // deployed in containers, too
	off      bool // without a workspace
	preRun   string
	// change returns a file of the program for each round, or is nil.
	change func(round int) (path, text string)
	// fetch compares only how long the source takes with a change, not pulumi.
	fetch bool
}

func warmPrograms(run *figures.Run) []warmProgram {
	yaml := stashes(20)
	large := map[string]string{"Pulumi.yaml": yaml}
	n := figures.Pick(run, 50_000, 500)
	for i := range n {
		// Compression does not make the content much smaller.
		large[fmt.Sprintf("files/%d/%d", i/500, i)] = incompressible(i, 10_000)
	}
	return []warmProgram{
		{name: "YAML, 20 resources", files: map[string]string{"Pulumi.yaml": yaml}, more: 0.3, inImages: true},
		{name: "Node.js", needs: []string{"npm", "node"}, inImages: true, lock: []string{"npm", "install", "--package-lock-only", "--no-audit", "--no-fund"}, more: 1.5, files: map[string]string{
			"Pulumi.yaml": "name: " + site.Project + "\nruntime: nodejs\n", ".gitignore": ignored,
			"package.json":  `{"name": "bench", "main": "index.ts", "dependencies": {"@pulumi/pulumi": "3.255.0"}, "devDependencies": {"@types/node": "20.19.0", "typescript": "5.9.2"}}`,
			"tsconfig.json": `{"compilerOptions": {"strict": true, "target": "es2020", "module": "commonjs", "moduleResolution": "node"}, "files": ["index.ts"]}`,
			"index.ts":      "import * as pulumi from \"@pulumi/pulumi\";\nexport const stack = pulumi.getStack();\n",
		}},
		{name: "Go", needs: []string{"go"}, inImages: true, lock: []string{"go", "mod", "tidy"}, more: 1.5, files: map[string]string{
			"Pulumi.yaml": "name: " + site.Project + "\nruntime: go\n", ".gitignore": ignored,
			"go.mod":  "module bench\n\ngo 1.25.0\n\nrequire github.com/pulumi/pulumi/sdk/v3 v3.255.0\n",
			"main.go": goMain(0),
		}, change: func(round int) (path, text string) { return "main.go", goMain(round) }},
		{name: "Python", needs: []string{"python3", "pulumi-language-python"}, more: 1.5, wheels: os.Getenv(wheelsVariable), files: map[string]string{
			"Pulumi.yaml": "name: " + site.Project + "\nruntime:\n  name: python\n  options: {virtualenv: venv}\n", ".gitignore": "/venv\n",
			"requirements.txt": "pulumi\n", "__main__.py": "import pulumi\npulumi.export('stack', pulumi.get_stack())\n",
		}},
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

// missing returns what this machine lacks to run the program, or "".
func (p warmProgram) missing() string {
	for _, name := range p.needs {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not on the PATH"
		}
	}
	if slices.Contains(p.needs, "python3") && p.wheels == "" {
		return wheelsVariable + " names no directory of wheels"
	}
	return ""
}

// publish creates a repository of the program.
func (w *warm) publish(ctx context.Context, p warmProgram) (*lab.Repo, error) {
	files := p.files
	if p.lock != nil {
		locked, err := w.run.NewDir()
		if err != nil {
			return nil, err
		}
		for path, text := range files {
			if err := os.WriteFile(filepath.Join(locked, path), []byte(text), 0o600); err != nil {
				return nil, fmt.Errorf("writing a program: %w", err)
			}
		}
		if err := command(ctx, locked, os.Environ(), p.lock...); err != nil {
			return nil, err
		}
		if files, err = lab.ReadFiles(locked); err != nil {
			return nil, err
		}
	}
	repo, _, err := w.git.NewRepo(ctx, w.stack, files)
	return repo, err
}

// variables returns the variables with which tools find the packages of a program.
func (w *warm) variables(p warmProgram) map[string]any {
	found := maps.Clone(w.registries)
	if p.wheels != "" {
		found["PIP_NO_INDEX"], found["PIP_FIND_LINKS"] = "true", p.wheels
	}
	return found
}

// registries returns the variables with which tools use the registries of this machine.
func registries(ctx context.Context) map[string]any {
	found := map[string]any{}
	for variable, show := range map[string][]string{
		"GOPROXY": {"go", "env", "GOPROXY"}, "GOSUMDB": {"go", "env", "GOSUMDB"},
		"npm_config_registry": {"npm", "config", "get", "registry"}, "npm_config_cafile": {"npm", "config", "get", "cafile"},
	} {
		out, err := exec.CommandContext(ctx, show[0], show[1:]...).Output()
		if value := strings.TrimSpace(string(out)); err == nil && value != "" && value != "null" {
			found[variable] = value
		}
	}
	return found
}
