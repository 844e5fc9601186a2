package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/dev/lab/child"

	"github.com/Masterminds/semver/v3"
)

// OldestPulumi is the oldest pulumi known to run the quickstart's program. All of the program's
// resources are built into the CLI.
const OldestPulumi = "v3.232.0"

// ErrNoPulumi is returned by [InstalledPulumi] if no pulumi is on the PATH.
var ErrNoPulumi = errors.New("no pulumi on the PATH")

// InstalledPulumi returns the pulumi on the PATH and its version. The pulumi must be at least
// [OldestPulumi], with its YAML host in the same directory.
func InstalledPulumi(ctx context.Context) (tools Tools, version string, err error) {
	path, err := exec.LookPath(pulumiBinary)
	if err != nil {
		return Tools{}, "", ErrNoPulumi
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return Tools{}, "", fmt.Errorf("resolving the path of pulumi: %w", err)
	}
	tools = Tools{Dir: filepath.Dir(path)}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := child.Command(ctx, path, "version")
	cmd.Env = append(os.Environ(), tools.Quiet()...)
	out, err := cmd.Output()
	if err != nil {
		return Tools{}, "", fmt.Errorf("%s version: %w", path, err)
	}
	version = strings.TrimSpace(string(out))
	found, err := semver.NewVersion(version)
	if err != nil {
		return Tools{}, "", fmt.Errorf("%s version printed %q, not a version", path, version)
	}
	if found.LessThan(semver.MustParse(OldestPulumi)) {
		return Tools{}, "", fmt.Errorf("%s is %s, older than %s", path, version, OldestPulumi)
	}
	if _, err := exec.LookPath(filepath.Join(tools.Dir, yamlBinary)); err != nil {
		return Tools{}, "", fmt.Errorf("%s has no %s next to it", path, yamlBinary)
	}
	return tools, version, nil
}
