package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// BuildProduct builds the product's programs for this machine into dir, with the runner for Linux
// containers of this architecture.
func BuildProduct(ctx context.Context, dir string, progress io.Writer) error {
	root, err := Root()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("building the product: %w", err)
	}
	watch := newBuildWatch(progress, "building server, agent and runner")
	defer watch.stop()
	version := productVersion(ctx, root)
	build := func(goos, goarch string, args ...string) error {
		cmd := command(ctx, "go", append([]string{
			"build", "-v", "-trimpath",
			"-ldflags", "-s -w -X main.version=" + version,
		}, args...)...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
		cmd.Stdout, cmd.Stderr = watch, watch
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("building the product: %w\n%s", err, watch.tail())
		}
		return nil
	}
	err = build(runtime.GOOS, runtime.GOARCH, "-o", dir+string(filepath.Separator),
		"./cmd/workflow-server", "./cmd/customer-managed-workflow-agent", "./cmd/workflow-runner")
	if err != nil {
		return err
	}
	embeddable := filepath.Join(dir, "workflow-runner-embeddable")
	if runtime.GOARCH == "arm64" {
		embeddable += "-arm64"
	}
	// On Linux this build comes from Go's build cache.
	return build("linux", runtime.GOARCH, "-o", embeddable, "./cmd/workflow-runner")
}

func productVersion(ctx context.Context, root string) string {
	cmd := command(ctx, "git", "describe", "--tags", "--always", "--dirty")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return "v0.0.0"
	}
	return strings.TrimSpace(string(out))
}
