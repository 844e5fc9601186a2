package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"workflowagent/internal/dev/lab/child"
)

// BuildProduct builds the product's programs for this machine into dir, including the runner for
// Linux containers of this architecture.
func BuildProduct(ctx context.Context, dir string, progress io.Writer) error {
	root, err := Root()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("building the product: %w", err)
	}
	watch := newBuildWatch(progress, "building server, evaluator, agent and runner")
	defer watch.stop()
	err = build(ctx, root, watch, runtime.GOOS, runtime.GOARCH, "-o", dir+string(filepath.Separator),
		"./cmd/workflow-server", "./cmd/customer-managed-workflow-agent", "./cmd/workflow-runner")
	if err != nil {
		return err
	}
	evaluator := filepath.Join(root, "cmd", "workflow-esc")
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("building the product: %w", err)
	}
	if err := build(ctx, evaluator, watch, runtime.GOOS, runtime.GOARCH, "-o", dir+string(filepath.Separator), "."); err != nil {
		return err
	}
	// On Linux, Go's build cache already holds this build.
	return buildRunner(ctx, root, watch, dir, runtime.GOARCH)
}

// BuildRunner builds the runner for Linux containers of an architecture into dir.
func BuildRunner(ctx context.Context, dir, arch string, progress io.Writer) error {
	root, err := Root()
	if err != nil {
		return err
	}
	watch := newBuildWatch(progress, "building the runner for "+arch)
	defer watch.stop()
	return buildRunner(ctx, root, watch, dir, arch)
}

func buildRunner(ctx context.Context, root string, watch *buildWatch, dir, arch string) error {
	embeddable := filepath.Join(dir, "workflow-runner-embeddable")
	if arch == "arm64" {
		embeddable += "-arm64"
	}
	return build(ctx, root, watch, "linux", arch, "-o", embeddable, "./cmd/workflow-runner")
}

// build runs go build in the directory of a module.
func build(ctx context.Context, module string, watch *buildWatch, goos, goarch string, args ...string) error {
	cmd := child.Command(ctx, "go", append([]string{
		"build", "-v", "-trimpath",
		"-ldflags", "-s -w -X main.version=" + productVersion(ctx, module),
	}, args...)...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	cmd.Stdout, cmd.Stderr = watch, watch
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building the product: %w\n%s", err, watch.tail())
	}
	return nil
}

func productVersion(ctx context.Context, root string) string {
	cmd := child.Command(ctx, "git", "describe", "--tags", "--always", "--dirty")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return "v0.0.0"
	}
	return strings.TrimSpace(string(out))
}
