package source

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"workflowagent/internal/runner/fileid"
	"workflowagent/internal/sys/dirtree"
)

// Store makes a checkout, after the job, what it was before the job's own steps, and moves git's files out
// of it.
type Store struct {
	Dir     string // the checkout
	Git     string // directory for git's files, as in [Keep]
	Private string // directory for git's configuration; Run creates and removes it
	Environ []string
	Kept    *Kept // as [Git.Fetch] described the checkout
	// Dependencies keeps the same directories as [Keep.Dependencies].
	Dependencies bool
}

// Run stores the checkout, and returns its description. After an error, the checkout is not usable. A step
// of the job could have replaced git, so the description is complete before git runs.
func (s *Store) Run(ctx context.Context) (*Kept, error) {
	if err := s.dismantle(ctx); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(s.Git)
	if err != nil {
		return nil, err
	}
	defer root.Close() // opened for reading only
	if err := fileid.Check(root, s.Kept.Files); err != nil {
		return nil, err
	}
	kept := *s.Kept
	if kept.Packs, err = packIDs(ctx, root, dirPack); err != nil { // renaming a file changes its ID
		return nil, err
	}
	return &kept, s.tidy(ctx, root)
}

// tidy restores the checkout's files, so that what the job has left, such as credentials, is not kept until
// the next job, which restores them again.
func (s *Store) tidy(ctx context.Context, kept *os.Root) (err error) {
	if err := os.MkdirAll(s.Private, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.Private)) }()
	env, err := environment(s.Environ, s.Private, true)
	if err != nil {
		return err
	}
	git := &commandLine{dir: s.Dir, env: env, log: io.Discard}
	if err := reinit(ctx, git, s.Kept.Commit); err != nil {
		return err
	}
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return err
	}
	defer root.Close() // opened for reading only
	to, err := root.OpenRoot(".git")
	if err != nil {
		return err
	}
	defer to.Close() // files are closed one by one
	for _, file := range s.Kept.Files {
		if err := copyFile(kept, to, file.Name); err != nil {
			return err
		}
	}
	info := filepath.Join("objects", "info")
	err = errors.Join(to.MkdirAll(info, 0o700), to.WriteFile(filepath.Join(info, "alternates"), []byte(s.Git+"\n"), 0o600))
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"update-ref", keptRef, s.Kept.Commit},
		{"checkout", "--quiet", "--force", "--detach", s.Kept.Commit, "--"},
	} {
		if _, err := git.run(ctx, args...); err != nil {
			return err
		}
	}
	keep := Keep{Dependencies: s.Dependencies}
	return errors.Join(keep.restore(ctx, git), dirtree.Remove(ctx, root, ".git"))
}

// dismantle moves the packs, which must be unchanged, to the directory of git's files, and removes .git.
func (s *Store) dismantle(ctx context.Context) error {
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return err
	}
	defer root.Close() // opened for reading only
	to, err := os.OpenRoot(s.Git)
	if err != nil {
		return err
	}
	defer to.Close() // opened for reading only
	if err := dirtree.Remove(ctx, to, dirPack); err != nil {
		return err
	}
	if err := to.Mkdir(dirPack, 0o700); err != nil {
		return err
	}
	from, err := root.OpenRoot(filepath.Join(".git", "objects", dirPack))
	if err != nil {
		return err
	}
	defer from.Close() // opened for reading only
	if err := fileid.Check(from, s.Kept.Packs); err != nil {
		return err
	}
	for _, file := range s.Kept.Packs {
		// The names contain no separator, and the directory was opened without leaving the checkout.
		err := os.Rename(filepath.Join(s.Dir, ".git", "objects", dirPack, file.Name), filepath.Join(s.Git, dirPack, file.Name))
		if err != nil {
			return err
		}
	}
	return dirtree.Remove(ctx, root, ".git")
}
