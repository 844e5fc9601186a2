package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// repository returns the root of the checkout, which is the current directory.
func repository() (string, error) {
	mod, err := os.ReadFile("go.mod")
	if err != nil || !bytes.HasPrefix(mod, []byte("module workflowagent\n")) {
		return "", &usageError{errors.New("not in the root of the repository: run this command there")}
	}
	root, err := filepath.Abs(".")
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	return root, nil
}

func commitTime(ctx context.Context, root string) (time.Time, error) {
	text, err := git(ctx, root, "log", "-1", "--format=%ct")
	if err != nil {
		return time.Time{}, err
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("parsing the commit's time %q", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// versionOf returns the version in the commit's tag. For a commit without a tag or with uncommitted
// changes, it returns a version that is lower than all releases and increases with time.
func versionOf(ctx context.Context, root string, commit time.Time, changed bool) (string, error) {
	if tag, err := git(ctx, root, "describe", "--tags", "--exact-match", "--match", "v*"); err == nil && !changed {
		return tag, nil
	}
	revision, err := git(ctx, root, "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("v0.0.0-dev.%d.g%s", commit.Unix(), revision), nil
}

func isChanged(ctx context.Context, root string) (bool, error) {
	changes, err := git(ctx, root, "status", "--porcelain")
	return changes != "", err
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = root
	out, err := output(cmd)
	return strings.TrimSpace(string(out)), err
}
