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
	s := sweep{listed: listed.files}
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
	listed map[string][]string // [listing.files]
	kept   []string            // directories of dependencies
	deep   bool                // search also in directories that the index does not contain

	untracked bool // entries exist that git must remove
}

// dir searches a directory with a path in the checkout.
func (s *sweep) dir(ctx context.Context, root *os.Root, at string, depth int) error {
	names, err := dirtree.Names(ctx, root, ".")
	if err != nil {
		return err
	}
	files := s.listed[at]
	for _, name := range names {
		if _, found := slices.BinarySearch(files, name); found {
			continue
		}
		inside := path.Join(at, name)
		_, enter := s.listed[inside]
		switch {
		case inside == ".git":
		case strings.EqualFold(name, ".git"): // some file systems ignore case
			if err := dirtree.Remove(ctx, root, name); err != nil {
				return err
			}
		case !enter:
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
			return fmt.Errorf("%s has more than %d levels of directories", at, maxDepth)
		}
		if err := s.subdir(ctx, root, name, inside, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (s *sweep) subdir(ctx context.Context, in *os.Root, name, at string, depth int) error {
	root, err := in.OpenRoot(name)
	if err != nil {
		return err
	}
	defer root.Close() // opened for reading only
	return s.dir(ctx, root, at, depth)
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
	l := &listing{files: map[string][]string{"": nil}}
	if err := git.stream(ctx, "", l, "ls-files", "--stage", "-z"); err != nil {
		return nil, err
	}
	if l.addNames(); l.submodules {
		return nil, errors.New("the repository has submodules, whose directories git does not clean")
	}
	return l, nil
}

// listing is a writer for the output of ls-files --stage -z.
type listing struct {
	files        map[string][]string // sorted names, by the path of the directory; "" is the checkout
	dependencies []string            // the dependencyDirs whose name a file or a directory has
	submodules   bool

	partial []byte   // an entry whose end was not yet written
	dir     string   // the directory of the last files
	names   []string // of these files
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
		kind, file, _ := bytes.Cut(entry, []byte{'\t'})
		l.submodules = l.submodules || bytes.HasPrefix(kind, []byte("160000 "))
		l.add(string(file))
		text = more
	}
}

func (l *listing) add(file string) {
	dir, name := split(file)
	if dir != l.dir {
		l.addNames()
		l.dir = dir
	}
	l.names = append(l.names, name)
	l.note(name)
}

// addNames adds the directory of the last files, and those that contain it.
func (l *listing) addNames() {
	all := append(l.files[l.dir], l.names...)
	slices.Sort(all) // git sorts by whole paths
	for at := l.dir; at != ""; {
		if _, known := l.files[at]; known {
			break
		}
		l.files[at] = nil
		dir, name := split(at)
		l.note(name)
		at = dir
	}
	l.files[l.dir], l.names = all, l.names[:0]
}

// split returns the directory and the name of a path in the checkout, whose own path is "".
func split(file string) (dir, name string) {
	if i := strings.LastIndexByte(file, '/'); i >= 0 {
		return file[:i], file[i+1:]
	}
	return "", file
}

// note records a name that is that of a directory of dependencies. Some file systems ignore case.
func (l *listing) note(base string) {
	for _, name := range dependencyDirs {
		if strings.EqualFold(base, name) && !slices.Contains(l.dependencies, name) {
			l.dependencies = append(l.dependencies, name)
		}
	}
}
