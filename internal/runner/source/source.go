// Package source fetches a deployment's program into the job's directory with the git command line.
//
// A deployment's settings are treated only as data. URLs and refs are validated before git receives
// them, credentials reach git only through an askpass program, and git reads no configuration of
// the host or the user. So neither a repository nor a home directory can change git's behaviour.
//
// Content filters do not run, and git fetches no submodules, because both would make git contact
// servers, or run programs, that the settings do not name. If the settings request submodules or
// files of Git LFS, this package itself fetches them, within limits.
package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"workflowagent/internal/sys/dirtree"
	"workflowagent/internal/workflow"
)

// Git fetches a program from a git repository.
type Git struct {
	Source workflow.GitSource
	// Dir is the directory of the checkout. Unless it is a kept checkout, Fetch empties it first, because
	// an interrupted earlier attempt might have left an incomplete checkout.
	Dir string
	// Private is a directory for credentials. Fetch creates it with mode 0700 and removes it.
	Private string
	// Askpass is a program that responds to prompts of git and ssh through [Answer].
	Askpass string
	// Environ is the environment of the step. git receives only the necessary variables.
	Environ []string
	// AllowedRepositories are the host's patterns for the addresses of submodules; nil allows all.
	AllowedRepositories []string
	// Log receives messages about the fetch, for the user.
	Log io.Writer
	// Keep is set if a workspace keeps the checkout.
	Keep *Keep
}

// Checkout is a fetched program.
type Checkout struct {
	// Commit is the hash of the checked-out commit.
	Commit string
	// ProgramDir is the absolute path of the program's directory in the checkout.
	ProgramDir string
	// Kept describes the checkout for [Store]; nil: it cannot be kept.
	Kept *Kept
	// Reused is true if the kept checkout was used.
	Reused bool
	// Received is the size of the fetched objects, in bytes, if Kept is set.
	Received int64
}

// Fetch fetches the source into Dir. Each error is one line, addresses the author of the
// deployment's settings, and contains no secret.
func (g *Git) Fetch(ctx context.Context) (checkout *Checkout, err error) {
	repo, err := parseURL(g.Source.RepoURL)
	if err != nil {
		return nil, err
	}
	want, err := parseRevision(g.Source.Branch, g.Source.Commit)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(g.Private, 0o700); err != nil {
		return nil, fmt.Errorf("creating a directory for the git credentials: %w", err)
	}
	defer func() {
		if rmErr := os.RemoveAll(g.Private); rmErr != nil && err == nil {
			err = fmt.Errorf("removing the git credentials: %w", rmErr)
		}
	}()
	login, err := newLogin(repo, g.Source.Auth, g.Private, g.Askpass)
	if err != nil {
		return nil, err
	}
	for _, note := range login.notes {
		fmt.Fprintln(g.Log, note)
	}
	env, err := environment(g.Environ, g.Private, g.AllowedRepositories == nil)
	if err != nil {
		return nil, err
	}
	f := &fetch{
		repo: repo,
		git:  &commandLine{dir: g.Dir, env: append(slices.Clone(env), login.env...), log: g.Log},
		log:  g.Log,

		redirects: g.AllowedRepositories == nil, depth: g.Source.Depth, tags: g.Source.Tags,
	}
	checkout = &Checkout{}
	if checkout.Commit, checkout.Reused, err = g.checkOut(ctx, f, want); err != nil {
		return nil, err
	}
	g.describe(ctx, f.git, repo, checkout)
	if g.Source.LFS {
		if err := fetchLFS(ctx, f, login); err != nil {
			return nil, err
		}
	}
	if g.Source.Submodules {
		s := &submodules{g: g, login: login, env: env}
		if err := s.fetch(ctx, repo, g.Dir, 1); err != nil {
			return nil, err
		}
	}
	if checkout.ProgramDir, err = ProgramDir(g.Dir, g.Source.RepoDir); err != nil {
		return nil, err
	}
	return checkout, nil
}

// emptyDir empties dir. It uses [os.Root] to remove a symbolic link that leads outside without
// following it.
func emptyDir(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the checkout directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening the checkout directory: %w", err)
	}
	defer root.Close() // opened for reading only
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the checkout directory: %w", err)
	}
	for _, entry := range entries {
		if err := dirtree.Remove(ctx, root, entry.Name()); err != nil {
			return fmt.Errorf("emptying the checkout directory: %w", err)
		}
	}
	return nil
}

// ProgramDir returns the absolute, real path of repoDir inside the checkout. It returns an error if
// the directory is missing or outside the checkout, even through a symbolic link in the repository.
func ProgramDir(checkout, repoDir string) (string, error) {
	root, err := filepath.EvalSymlinks(checkout)
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	if root, err = filepath.Abs(root); err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	// Users write "/infra" for the repository's directory infra.
	rel := filepath.Clean("." + string(filepath.Separator) + filepath.FromSlash(repoDir))
	if !filepath.IsLocal(rel) {
		return "", fmt.Errorf("the directory %q is outside the repository", repoDir)
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(root, rel))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("the directory %q does not exist in the repository", repoDir)
	case err != nil:
		return "", fmt.Errorf("resolving the directory %q in the repository: %w", repoDir, err)
	}
	inside, err := filepath.Rel(root, dir)
	if err != nil || !filepath.IsLocal(inside) {
		return "", fmt.Errorf("the directory %q leads out of the repository through a symbolic link", repoDir)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", fmt.Errorf("resolving the directory %q in the repository: %w", repoDir, err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%q is a file in the repository, not a directory", repoDir)
	}
	return dir, nil
}
