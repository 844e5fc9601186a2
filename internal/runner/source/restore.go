package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"workflowagent/internal/sys/dirtree"
)

// dependencyDirs are the names of directories into which tools install a program's dependencies.
var dependencyDirs = []string{"node_modules", ".venv", "venv"}

// maxDepth limits the levels of directories of a kept checkout, because each one keeps a file open.
const maxDepth = 200

// restore makes a kept checkout what a clone would be, except for dependencies. git has checked out the
// job's commit, and has restored the files of which the index says that an earlier job changed them.
func (k *Keep) restore(ctx context.Context, git *commandLine) error {
	// git does not apply changed attributes to files that are otherwise unchanged, so write all files again.
	changed, err := withGlobs(git).run(ctx, "diff", "--name-only", "--no-renames", keptRef, "HEAD", "--", ":(glob)**/.gitattributes")
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
	listed, err := list(ctx, git)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(git.dir)
	if err != nil {
		return err
	}
	defer root.Close() // opened for reading only
	s := sweep{entries: listed.entries}
	args := []string{"clean", "--quiet", "-ffdx"}
	for _, name := range dependencyDirs {
		if k.Dependencies && !slices.Contains(listed.dependencies, name) {
			s.kept = append(s.kept, name)
			args = append(args, "--exclude="+name+"/") // matches no symbolic link
		}
	}
	if err := s.dir(ctx, root, "", 0); err != nil || !s.untracked {
		return err
	}
	if _, err := git.run(ctx, args...); err != nil {
		return err
	}
	s.deep = true
	return s.dir(ctx, root, "", 0)
}

// sweep searches a checkout, of which git has written all files of the index, for other entries. It removes
// nested repositories, which git does not see next to files of the index, but whose settings and hooks have
// an effect on programs that run git there.
type sweep struct {
	entries map[string]bool // of [listing]
	kept    []string        // directories of dependencies
	deep    bool            // search also in directories that the index does not contain

	untracked bool // entries exist that git must remove
}

// dir searches a directory. prefix is its path with a trailing slash, or "".
func (s *sweep) dir(ctx context.Context, root *os.Root, prefix string, depth int) error {
	names, err := dirtree.Names(ctx, root, ".")
	if err != nil {
		return err
	}
	for _, name := range names {
		enter, listed := s.entries[prefix+name]
		switch {
		case prefix == "" && name == ".git":
		case strings.EqualFold(name, ".git"): // some file systems ignore case
			if err := dirtree.Remove(ctx, root, name); err != nil {
				return err
			}
		case !listed:
			info, err := root.Lstat(name)
			if err != nil {
				return err
			}
			if info.IsDir() && slices.Contains(s.kept, name) {
				continue
			}
			s.untracked = true
			enter = s.deep && info.IsDir()
		}
		if !enter {
			continue
		}
		if depth == maxDepth {
			return fmt.Errorf("%s has more than %d levels of directories", prefix, maxDepth)
		}
		if err := s.subdir(ctx, root, prefix, name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (s *sweep) subdir(ctx context.Context, in *os.Root, prefix, name string, depth int) error {
	root, err := in.OpenRoot(name)
	if err != nil {
		return err
	}
	defer root.Close() // opened for reading only
	return s.dir(ctx, root, prefix+name+"/", depth)
}

// withGlobs returns git with wildcards in the paths that are its arguments.
func withGlobs(git *commandLine) *commandLine {
	globs := *git
	globs.env = slices.DeleteFunc(slices.Clone(git.env), func(entry string) bool { return strings.HasPrefix(entry, "GIT_LITERAL_PATHSPECS=") })
	return &globs
}

// list returns what the index of a checkout contains. It returns an error if the checkout has submodules,
// whose directories git does not clean.
func list(ctx context.Context, git *commandLine) (*listing, error) {
	l := &listing{entries: map[string]bool{}}
	if err := git.stream(ctx, "", l, "ls-files", "--stage", "-z"); err != nil {
		return nil, err
	}
	if l.submodules {
		return nil, errors.New("the repository has submodules, whose directories git does not clean")
	}
	return l, nil
}

// listing is a writer for the output of ls-files --stage -z.
type listing struct {
	entries      map[string]bool // by path; true: a directory, which contains files of the index
	dependencies []string        // the dependencyDirs whose name an entry has
	submodules   bool

	partial []byte // an entry whose end was not yet written
	last    string // the directory of the last file
}

// Write implements [io.Writer].
func (l *listing) Write(p []byte) (int, error) {
	text := append(l.partial, p...)
	for {
		entry, more, ended := bytes.Cut(text, []byte{0})
		if !ended {
			l.partial = append([]byte(nil), text...)
			return len(p), nil
		}
		// The mode, the hash and the stage, with a space between them, precede the tab.
		kind, file, _ := strings.Cut(string(entry), "\t")
		l.submodules = l.submodules || strings.HasPrefix(kind, "160000 ")
		l.add(file)
		text = more
	}
}

func (l *listing) add(file string) {
	l.entries[file] = false
	l.note(file)
	dir := path.Dir(file)
	if dir == l.last {
		return
	}
	l.last = dir
	for ; dir != "." && !l.entries[dir]; dir = path.Dir(dir) {
		l.entries[dir] = true
		l.note(dir)
	}
}

// note records a name that is that of a directory of dependencies. Some file systems ignore case.
func (l *listing) note(file string) {
	base := path.Base(file)
	for _, name := range dependencyDirs {
		if strings.EqualFold(base, name) && !slices.Contains(l.dependencies, name) {
			l.dependencies = append(l.dependencies, name)
		}
	}
}
