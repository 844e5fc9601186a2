package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"workflowagent/internal/dev/lab/child"
)

// AutomationGo returns the path of the program internal/dev/tools/automation for Go, building it if
// necessary.
func AutomationGo(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := buildModule(ctx, progress, "automation", []program{{
		name: "automation", pkg: ".", what: "the program with the Automation API", expect: "about 1 min",
	}})
	return filepath.Join(dir, "automation"), err
}

// NodeAvailable returns the reason why [AutomationNode] cannot work on this machine, if any.
func NodeAvailable() (reason string, ok bool) {
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed", false
		}
	}
	return "", true
}

// AutomationNode returns the path of the program internal/dev/tools/automation/main.mjs for
// Node.js. It installs the packages that the program needs from the package registry, once per
// version.
func AutomationNode(ctx context.Context, progress io.Writer) (string, error) {
	src, err := toolDir("automation")
	if err != nil {
		return "", err
	}
	files := []string{"package.json", "package-lock.json", "main.mjs"}
	var key fingerprint
	for _, name := range files {
		if err := key.addFile(filepath.Join(src, name)); err != nil {
			return "", fmt.Errorf("reading the program for Node.js: %w", err)
		}
	}
	dir, err := cached(ctx, "automation-node", key.sum(), func(dir string) error {
		for _, name := range files {
			data, err := os.ReadFile(filepath.Join(src, name))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), data, 0o644)
			}
			if err != nil {
				return fmt.Errorf("copying the program for Node.js: %w", err)
			}
		}
		watch := newBuildWatch(progress, "installing the Automation API for Node.js (first time only)")
		defer watch.stop()
		cmd := child.Command(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		cmd.Dir = dir
		cmd.Stdout, cmd.Stderr = watch, watch
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("installing the Automation API for Node.js: %w\n%s", err, watch.tail())
		}
		return nil
	})
	return filepath.Join(dir, "main.mjs"), err
}
