package clients

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// stub is a package manager that prints how it was called and leaves what its callers look for. It
// stands for the managers that test machines lack.
const stub = `#!/bin/sh
case "$*" in
*--version*) echo 'VERSION'; exit;;
"env info --path") echo "$PWD/.venv"; exit;;
esac
echo "called: NAME $*"
mkdir -p node_modules .venv/bin
printf '#!/bin/sh\necho GREETING\n' >.venv/bin/python
chmod +x .venv/bin/python
`

// TestClientsInstallDependencies installs the dependencies of programs in each language. Deployments
// share the cache of a package manager only if their settings name its directory.
func TestClientsInstallDependencies(t *testing.T) {
	ctx := t.Context()
	w := harness.StartSite(t, "")
	host := must.Get(lab.LanguageHost(ctx, os.Stderr))(t)
	bin := t.TempDir()
	for _, language := range []string{"nodejs", "python", "go"} {
		must.OK(t, os.Symlink(host, filepath.Join(bin, "pulumi-language-"+language)))
	}
	for name, version := range map[string]string{"yarn": "1.22.22", "pnpm": "10.0.0", "poetry": "Poetry (version 2.1.0)", "uv": "uv 0.9.0"} {
		text := strings.NewReplacer("NAME", name, "VERSION", version, "GREETING", greeting).Replace(stub)
		harness.Write(t, filepath.Join(bin, name), []byte(text), 0o755)
	}
	path := strings.Join([]string{bin, w.Tools.Dir, os.Getenv("PATH")}, string(os.PathListSeparator))
	must.Get(w.StartAgent(ctx, "process", nil, "PATH="+path))(t)
	index := startPackageIndex(t)
	variables := index.env()
	if out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output(); err == nil {
		variables["GOCACHE"] = strings.TrimSpace(string(out)) // has the compiled standard library
	}
	node := map[string]string{
		"package.json": `{"name": "app", "version": "0.0.1", "main": "index.js", "dependencies": {"leaf": "^1.0.0"}}`,
		"index.js":     "console.log(require('leaf')())\n",
	}
	alone := map[string]string{"package.json": `{"name": "app", "version": "0.0.1", "main": "index.js"}`, "index.js": "console.log('" + greeting + "')\n"}
	python := map[string]string{"requirements.txt": "leaf==1.0.0\n", "__main__.py": "import leaf\nprint(leaf.hello())\n"}
	locked := map[string]string{"pyproject.toml": "[project]\nname = \"app\"\nversion = \"0.0.1\"\n", "uv.lock": "", "__main__.py": ""}
	for _, tc := range []struct {
		name, runtime string
		files         map[string]string
		needs         []string // a command that succeeds if this machine has the package manager
		fetched       string   // the package's path in the registry
		cache         string   // the variable that names the directory of the cache
		called        string   // how a stub is called
	}{
		{name: "npm", runtime: "nodejs", files: node, needs: []string{"npm", "--version"}, fetched: "/npm/leaf/-/leaf-1.0.0.tgz", cache: "NPM_CONFIG_CACHE"},
		{name: "yarn", runtime: "{name: nodejs, options: {packagemanager: yarn}}", files: alone, needs: []string{"node", "--version"}, called: "yarn install"},
		{name: "pnpm", runtime: "{name: nodejs, options: {packagemanager: pnpm}}", files: alone, needs: []string{"node", "--version"}, called: "pnpm install --use-stderr"},
		{
			name: "pip", runtime: "{name: python, options: {virtualenv: venv}}", files: python,
			needs: []string{"python3", "-c", "import venv, ensurepip"}, fetched: "/wheels/leaf-1.0.0-py3-none-any.whl", // pip caches nothing from an index without TLS
		},
		{name: "poetry", runtime: "{name: python, options: {toolchain: poetry}}", files: locked, called: "poetry install --no-ansi"},
		{name: "uv", runtime: "{name: python, options: {toolchain: uv}}", files: locked, called: "uv sync"},
		{name: "go", runtime: "go", files: map[string]string{
			"go.mod":  "module app\n\ngo 1.24\n\nrequire lab.invalid/leaf v1.0.0\n",
			"main.go": "package main\n\nimport \"lab.invalid/leaf\"\n\nfunc main() { println(leaf.Hello()) }\n",
		}, fetched: "/go/lab.invalid/leaf/@v/v1.0.0.zip", cache: "GOMODCACHE"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if len(tc.needs) > 0 {
				if out, err := exec.CommandContext(ctx, tc.needs[0], tc.needs[1:]...).CombinedOutput(); err != nil {
					t.Skipf("%s: %v %s", strings.Join(tc.needs, " "), err, out)
				}
			}
			files := map[string]string{"Pulumi.yaml": "name: " + tc.name + "\nruntime: " + tc.runtime + "\n"}
			maps.Copy(files, tc.files)
			repo, _, err := w.Git.NewRepo(ctx, tc.name, files)
			must.OK(t, err)
			deploy := func(s *harness.Stack) {
				t.Helper()
				d := s.Finish(ctx, t, s.Deploy(ctx, t, "update", repo.URL))
				log := s.Log(ctx, t, d)
				if d.Status != "succeeded" {
					t.Fatalf("it ended as %+v:\n%s", d, log)
				}
				if !strings.Contains(log, greeting) {
					t.Errorf("the program could not use its dependencies:\n%s", log)
				}
				if want := "called: " + tc.called + "\n"; tc.called != "" && !strings.Contains(log, want) {
					t.Errorf("the log lacks %q:\n%s", want, log)
				}
			}
			deploy(w.NewStack(ctx, t, tc.name, "dev", "", variables))
			if tc.fetched != "" && index.count(tc.fetched) != 1 {
				t.Errorf("a deployment fetched %s %d times, want once", tc.fetched, index.count(tc.fetched))
			}
			if tc.cache == "" {
				return
			}
			cached := maps.Clone(variables)
			cached[tc.cache] = t.TempDir()
			s := w.NewStack(ctx, t, tc.name, "cached", "", cached)
			for range 2 {
				deploy(s)
			}
			if n := index.count(tc.fetched); n != 2 {
				t.Errorf("a deployment without and two with the cache fetched %s %d times, want twice", tc.fetched, n)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		if reason, ok := lab.NodeAvailable(); !ok {
			t.Skip(reason)
		}
		repo, _, err := w.Git.NewRepo(ctx, "missing", map[string]string{
			"Pulumi.yaml": "name: missing\nruntime: nodejs\n", "package.json": `{"name": "app", "dependencies": {"twig": "1.0.0"}}`,
		})
		must.OK(t, err)
		s := w.NewStack(ctx, t, "missing", "dev", "", variables)
		d := s.Finish(ctx, t, s.Deploy(ctx, t, "update", repo.URL))
		log := s.Log(ctx, t, d)
		if d.Status != "failed" || d.Reason != "exit-code" || !strings.Contains(log, "404 Not Found") || strings.Contains(log, "== pulumi update") {
			t.Errorf("with a dependency that does not exist, it ended as %+v:\n%s", d, log)
		}
	})
}
