// Package lab finds or builds the product's real peers for the quickstart, the end-to-end tests and
// the benchmarks: the stock Pulumi CLI with a test provider, a git server, a private Docker Engine
// with an executor image, and PostgreSQL. The product does not import this package.
//
// Artifacts that are slow to build are kept in a cache directory outside the repository, keyed by
// all of their inputs. Deleting the cache is always safe.
package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const cacheVariable = "WORKFLOW_LAB_CACHE"

// CacheDir returns the cache directory and creates it if it is missing. The directory is
// WORKFLOW_LAB_CACHE, or else workflowagent/lab in the user's cache directory.
func CacheDir() (string, error) {
	dir := os.Getenv(cacheVariable)
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("choosing a directory for the lab's cache (set %s to name one): %w", cacheVariable, err)
		}
		dir = filepath.Join(user, "workflowagent", "lab")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding the lab's cache: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("creating the lab's cache: %w", err)
	}
	return dir, nil
}

// Root returns the root of the checkout that holds the current directory.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		switch {
		case err == nil && bytes.HasPrefix(mod, []byte("module workflowagent\n")):
			return dir, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("finding the repository: %w", err)
		case dir == filepath.Dir(dir):
			return "", fmt.Errorf("finding the repository: neither %s nor a parent directory holds the module workflowagent; run this command inside a checkout", start)
		}
	}
}
