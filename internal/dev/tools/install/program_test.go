package install

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program is the compiled Pulumi program.
type program struct{ dir string }

// buildProgram installs the packages of the Pulumi program, once per version, and compiles it
// together with an example of its use. The compiler checks both against the types of the packages.
func buildProgram(t *testing.T, example string) program {
	t.Helper()
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed", name)
		}
	}
	source, dir := filepath.Join(packaging, "kubernetes", "pulumi"), t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "index.ts", "agent.ts"} {
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), text)
	}
	if err := os.Symlink(nodeModules(t, dir), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(read(t, filepath.Join(source, "tsconfig.json")), `"index.ts"`, `"index.ts", "example.ts"`, 1)
	write(t, filepath.Join(dir, "tsconfig.json"), []byte(config))
	write(t, filepath.Join(dir, "example.ts"), []byte(example))
	run(t, dir, "node", "node_modules/typescript/bin/tsc")
	return program{dir}
}

// nodeModules returns the directory with the packages that dir's lock file names.
func nodeModules(t *testing.T, dir string) string {
	t.Helper()
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	cache := os.Getenv("WORKFLOW_LAB_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(user, "workflowagent", "lab")
	}
	final := filepath.Join(cache, fmt.Sprintf("kubernetes-program-%x", sha256.Sum256(lock))[:40])
	if _, err := os.Stat(final); err == nil {
		return filepath.Join(final, "node_modules")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	draft, err := os.MkdirTemp(cache, "kubernetes-program-draft-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(draft) })
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(draft, name), text)
	}
	run(t, draft, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	if err := os.Rename(draft, final); err != nil {
		if _, exists := os.Stat(final); exists != nil { // another test may have installed them
			t.Fatal(err)
		}
	}
	return filepath.Join(final, "node_modules")
}

// evaluate runs the program with mocks in place of the engine and returns its objects.
func (p program) evaluate(t *testing.T, config map[string]string) objects {
	t.Helper()
	values, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	evaluate, err := filepath.Abs("evaluate.cjs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", evaluate, filepath.Join("bin", "index.js"), string(values))
	cmd.Dir, cmd.Stderr = p.dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []object
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	all := objects{}
	for _, o := range list {
		all.add(t, o)
	}
	return all
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
