package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is the compiled Pulumi program.
type program struct{ dir string }

// compile installs the packages of the Pulumi program, once per version, and compiles it into dir
// together with an example of its use. The compiler checks both against the types of the packages.
func compile(ctx context.Context, dir, example string) (program, error) {
	source := filepath.Join(packaging, "kubernetes", "pulumi")
	files := map[string]string{"example.ts": example}
	for _, name := range []string{"package.json", "package-lock.json", "index.ts", "agent.ts", "tsconfig.json"} {
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return program{}, err
		}
		files[name] = string(text)
	}
	files["tsconfig.json"] = strings.Replace(files["tsconfig.json"], `"index.ts"`, `"index.ts", "example.ts"`, 1)
	if err := write(dir, files); err != nil {
		return program{}, err
	}
	modules, err := nodeModules(ctx, files)
	if err != nil {
		return program{}, err
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		return program{}, err
	}
	return program{dir}, run(ctx, dir, "node", "node_modules/typescript/bin/tsc")
}

// nodeModules returns the directory with the packages that the program's lock file names.
func nodeModules(ctx context.Context, files map[string]string) (_ string, err error) {
	cache := os.Getenv("WORKFLOW_LAB_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, "workflowagent", "lab")
	}
	final := filepath.Join(cache, fmt.Sprintf("kubernetes-program-%x", sha256.Sum256([]byte(files["package-lock.json"])))[:40])
	modules := filepath.Join(final, "node_modules")
	if _, err := os.Stat(final); err == nil {
		return modules, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	draft, err := os.MkdirTemp(cache, "kubernetes-program-draft-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(draft)) }()
	if err := write(draft, map[string]string{"package.json": files["package.json"], "package-lock.json": files["package-lock.json"]}); err != nil {
		return "", err
	}
	if err := run(ctx, draft, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
		return "", err
	}
	if err := os.Rename(draft, final); err != nil {
		if _, exists := os.Stat(final); exists != nil { // another process may have installed them
			return "", err
		}
	}
	return modules, nil
}

// objects runs the program with mocks in place of the engine and returns its objects, in the order in
// which the program creates them.
func (p program) objects(ctx context.Context, config map[string]string) ([]object, error) {
	values, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	evaluate, err := filepath.Abs("evaluate.cjs")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "node", evaluate, filepath.Join("bin", "index.js"), string(values))
	cmd.Dir, cmd.Stderr = p.dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running the program: %w", err)
	}
	var list []object
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("reading the program's objects: %w: %s", err, out)
	}
	return list, nil
}

func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func write(dir string, files map[string]string) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
