package pulumi

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/workflow"
)

// versionTime bounds how long pulumi may take to print its version.
const versionTime = 30 * time.Second

// FindIn returns the path of the pulumi program in a list of directories, such as a PATH.
func FindIn(dirs string) (string, error) {
	for _, dir := range filepath.SplitList(dirs) {
		if path, err := exec.LookPath(filepath.Join(dir, "pulumi")); err == nil && filepath.IsAbs(path) {
			return path, nil
		}
	}
	return "", errMissing
}

// Version asks the pulumi program at path for its version. That of a pre-release or a development build
// is the one of its release.
func Version(ctx context.Context, path, dir string, env []string) (workflow.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "version")
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(env, "PWD="+dir, "PULUMI_SKIP_UPDATE_CHECK=true"), time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = errors.New("it does not end")
	}
	if err != nil {
		return workflow.Version{}, fmt.Errorf("asking %s for its version: %w", path, err)
	}
	text := strings.TrimSpace(string(out))
	if end := strings.IndexAny(text, "-+"); end >= 0 {
		text = text[:end]
	}
	version, err := workflow.ParseVersion(text)
	if err != nil {
		return workflow.Version{}, fmt.Errorf("asking %s for its version: %w", path, err)
	}
	return version, nil
}
