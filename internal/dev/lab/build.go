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

// BuildProduct builds the product's programs for this machine into dir, with the
// runners for Linux containers beside the agent, as "make build" does.
func BuildProduct(ctx context.Context, dir string, progress io.Writer) error {
	root, err := Root()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("building the product: %w", err)
	}
	watch := newBuildWatch(progress, "compiling")
	defer watch.stop()
	build := func(goos, goarch string, args ...string) error {
		cmd := command(ctx, "go", append([]string{
			"build", "-v", "-trimpath",
			"-ldflags", "-s -w -X main.version=" + productVersion(ctx, root),
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
	for name, arch := range map[string]string{
		"workflow-runner-embeddable":       "amd64",
		"workflow-runner-embeddable-arm64": "arm64",
	} {
		if err := build("linux", arch, "-o", filepath.Join(dir, name), "./cmd/workflow-runner"); err != nil {
			return err
		}
	}
	return nil
}

// productVersion is the version that git gives the checkout.
func productVersion(ctx context.Context, root string) string {
	cmd := command(ctx, "git", "describe", "--tags", "--always", "--dirty")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return "v0.0.0"
	}
	return strings.TrimSpace(string(out))
}
