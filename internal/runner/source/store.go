package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"workflowagent/internal/runner/fileid"
	"workflowagent/internal/sys/dirtree"
)

// DependencyDirs are the names of directories into which tools install a program's dependencies.
var DependencyDirs = []string{"node_modules", ".venv", "venv"}

// Store makes a checkout, after the job, what it was before the job's own steps, and moves git's files out
// of it. It returns the description of the result.
type Store struct {
	Dir     string // the checkout
	Git     string // directory for git's files, as in [Keep]
	Private string // directory for git's configuration; Run creates and removes it
	Environ []string
	Kept    *Kept // as [Git.Fetch] described the checkout
	// Dependencies keeps the directories in [DependencyDirs] that contain no files of the repository.
	Dependencies bool
}

// Run stores the checkout. After an error, the checkout is not usable.
func (s *Store) Run(ctx context.Context) (kept *Kept, err error) {
	if len(s.Kept.Packs) > 3*maxPacks {
		return nil, fmt.Errorf("git has more than %d packs", maxPacks)
	}
	if err := os.MkdirAll(s.Private, 0o700); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.Private)) }()
	env, err := environment(s.Environ, s.Private, true)
	if err != nil {
		return nil, err
	}
	if err := s.dismantle(ctx, s.Kept.Packs); err != nil {
		return nil, err
	}
	pristine := *s.Kept
	if pristine.Packs, err = s.packs(ctx); err != nil {
		return nil, err
	}
	git := &commandLine{dir: s.Dir, env: env, log: io.Discard}
	if err := adopt(ctx, git, s.Git, &pristine); err != nil {
		return nil, err
	}
	if _, err := git.run(ctx, "checkout", "--quiet", "--force", "--detach", s.Kept.Commit, "--"); err != nil {
		return nil, err
	}
	found := &gitlinks{}
	if err := git.stream(ctx, "", found, "ls-files", "--stage", "-z"); err != nil {
		return nil, err
	}
	if found.any {
		return nil, errors.New("the repository has submodules, whose directories git does not clean")
	}
	if err := s.clean(ctx, git); err != nil {
		return nil, err
	}
	stored, err := record(ctx, git, s.Git, s.Kept.Origin, s.Kept.Commit)
	if err != nil {
		return nil, err
	}
	if err := s.dismantle(ctx, stored.Packs); err != nil {
		return nil, err
	}
	stored.Packs, err = s.packs(ctx)
	return stored, err
}

// dismantle moves the packs, which must be unchanged, to the directory of git's files, and removes .git.
func (s *Store) dismantle(ctx context.Context, packs []fileid.ID) error {
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
	if err := fileid.Check(from, packs); err != nil {
		return err
	}
	for _, file := range packs {
		// The names contain no separator, and the directory was opened without leaving the checkout.
		err := os.Rename(filepath.Join(s.Dir, ".git", "objects", dirPack, file.Name), filepath.Join(s.Git, dirPack, file.Name))
		if err != nil {
			return err
		}
	}
	return dirtree.Remove(ctx, root, ".git")
}

func (s *Store) packs(ctx context.Context) ([]fileid.ID, error) {
	root, err := os.OpenRoot(s.Git)
	if err != nil {
		return nil, err
	}
	defer root.Close() // opened for reading only
	return packIDs(ctx, root, dirPack)
}

// clean removes everything from the checkout that is not in the repository, except dependencies.
func (s *Store) clean(ctx context.Context, git *commandLine) error {
	args := []string{"clean", "--quiet", "-ffdx"}
	if s.Dependencies {
		for _, name := range DependencyDirs {
			tracked, err := s.tracked(ctx, git, name)
			if err != nil {
				return err
			}
			if !tracked {
				args = append(args, "--exclude="+name+"/") // matches no symbolic link
			}
		}
	}
	_, err := git.run(ctx, args...)
	return err
}

// tracked reports whether the repository contains files in a directory of that name.
func (s *Store) tracked(ctx context.Context, git *commandLine, name string) (bool, error) {
	globs := *git
	globs.env = slices.DeleteFunc(slices.Clone(git.env), func(entry string) bool { return strings.HasPrefix(entry, "GIT_LITERAL_PATHSPECS=") })
	out, err := globs.run(ctx, "ls-files", "--", ":(glob)**/"+name+"/**", ":(glob)**/"+name)
	return out != "", err
}

// gitlinks is a writer for the output of ls-files --stage -z. It searches for submodules.
type gitlinks struct {
	any bool
	at  int // in the current entry, or -1 after a mode that is not that of a submodule
}

// Write implements [io.Writer].
func (g *gitlinks) Write(p []byte) (int, error) {
	const mode = "160000 "
	for _, b := range p {
		switch {
		case b == 0:
			g.at = 0
		case g.at >= 0 && g.at < len(mode) && b != mode[g.at]:
			g.at = -1
		case g.at >= 0 && g.at < len(mode):
			if g.at++; g.at == len(mode) {
				g.any = true
			}
		}
	}
	return len(p), nil
}
