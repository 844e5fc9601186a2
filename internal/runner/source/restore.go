package source

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"workflowagent/internal/sys/dirtree"
)

// dependencyDirs are the names of directories into which tools install a program's dependencies.
var dependencyDirs = []string{"node_modules", ".venv", "venv"}

// restore makes a kept checkout what a clone would be, except for dependencies. git has checked out the
// job's commit, and has restored the files of which the index says that an earlier job changed them.
func (k *Keep) restore(ctx context.Context, git *commandLine) error {
	if err := refuseGitlinks(ctx, git); err != nil {
		return err
	}
	globs := withGlobs(git)
	// git does not apply changed attributes to files that are otherwise unchanged, so write all files again.
	changed, err := globs.run(ctx, "diff", "--name-only", "--no-renames", keptRef, "HEAD", "--", ":(glob)**/.gitattributes")
	if err != nil {
		return err
	}
	if changed != "" {
		for _, args := range [][]string{{"read-tree", "--empty"}, {"reset", "--quiet", "--hard"}} {
			if _, err := git.run(ctx, args...); err != nil {
				return err
			}
		}
	}
	args := []string{"clean", "--quiet", "-ffdx"}
	if k.Dependencies {
		for _, name := range dependencyDirs {
			tracked, err := globs.run(ctx, "ls-files", "--", ":(glob)**/"+name+"/**", ":(glob)**/"+name)
			if err != nil {
				return err
			}
			if tracked == "" {
				args = append(args, "--exclude="+name+"/") // matches no symbolic link
			}
		}
	}
	if _, err := git.run(ctx, args...); err != nil {
		return err
	}
	return removeNested(ctx, git.dir)
}

// removeNested removes repositories of git in the directories of the checkout. git does not see them, but
// programs that run git there would use their settings and hooks.
func removeNested(ctx context.Context, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() // opened for reading only
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case name == ".git" || entry.IsDir() && slices.Contains(dependencyDirs, base):
			return fs.SkipDir
		case strings.EqualFold(base, ".git"): // some file systems ignore case
			if err := dirtree.Remove(ctx, root, name); err != nil || !entry.IsDir() {
				return err
			}
			return fs.SkipDir
		}
		return ctx.Err()
	})
}

// withGlobs returns git with wildcards in the paths that are its arguments.
func withGlobs(git *commandLine) *commandLine {
	globs := *git
	globs.env = slices.DeleteFunc(slices.Clone(git.env), func(entry string) bool { return strings.HasPrefix(entry, "GIT_LITERAL_PATHSPECS=") })
	return &globs
}

// refuseGitlinks returns an error if the checkout has submodules, whose directories git does not clean.
func refuseGitlinks(ctx context.Context, git *commandLine) error {
	found := &gitlinks{}
	if err := git.stream(ctx, "", found, "ls-files", "--stage", "-z"); err != nil {
		return err
	}
	if found.any {
		return errors.New("the repository has submodules, whose directories git does not clean")
	}
	return nil
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
