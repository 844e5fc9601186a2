// Package pathowner finds out to whom a path leads. A user who can change a directory or a symbolic link on the way
// to a file can replace the file.
package pathowner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is the number of symbolic links in a path after which it counts as a loop.
const maxLinks = 40

// Owner is a user with a group.
type Owner struct{ UID, GID int }

// Of returns the owner of the file at an absolute path. It follows symbolic links, and returns an error if a user
// other than the owner and root can replace the file, a link or a directory on the way.
func Of(path string) (Owner, error) { return find(path, noGroup) }

const noGroup = -1

// OfVolume is like [Of], but trusts the members of a group to whom directories of root on the way belong. Kubernetes gives
// such volumes to a pod, whose processes have a group of their own.
func OfVolume(path string, group int) (Owner, error) { return find(path, group) }

func find(path string, group int) (Owner, error) {
	steps, err := walk(path)
	if err != nil {
		return Owner{}, err
	}
	last := steps[len(steps)-1]
	owner := Owner{UID: int(last.uid), GID: int(last.gid)}
	for i, s := range steps {
		if err := s.check(last.uid, group, i == len(steps)-1); err != nil {
			return Owner{}, fmt.Errorf("%s cannot be trusted: %w", path, err)
		}
	}
	return owner, nil
}

// step is a file, a symbolic link or a directory on a way.
type step struct {
	path     string
	mode     fs.FileMode
	uid, gid uint32
	// within is the directory that contains it, and below whether others than its owner can rename it there.
	within *step
}

// check returns an error if users other than root and the final owner can replace what is at a step.
func (s step) check(final uint32, group int, last bool) error {
	if s.uid != 0 && s.uid != final {
		return fmt.Errorf("%s belongs to user %d", s.path, s.uid)
	}
	others := s.mode.Perm()&0o022 != 0 && s.mode.Type() != fs.ModeSymlink && (last || !s.isVolume(group)) // the mode of a link means nothing
	if others && (last || s.mode&fs.ModeSticky == 0) {
		return fmt.Errorf("users other than its owner can write to %s (mode %04o)", s.path, s.mode.Perm())
	}
	// In a sticky directory such as /tmp, everyone can create what is missing.
	if s.within != nil && s.within.mode.Perm()&0o022 != 0 && s.uid != 0 && !s.within.isVolume(group) {
		return fmt.Errorf("%s belongs to user %d in %s, to which everyone can write", s.path, s.uid, s.within.path)
	}
	return nil
}

// isVolume reports whether a step is a directory of root to which, besides root, only a group can write.
func (s step) isVolume(group int) bool {
	return s.uid == 0 && int(s.gid) == group && s.mode.IsDir() && s.mode.Perm()&0o002 == 0
}

// walk returns the steps on the way to a path, which begin with the root directory and end with the file.
func walk(path string) ([]step, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%s is not an absolute path", path)
	}
	root, err := look("/", nil)
	if err != nil {
		return nil, err
	}
	steps, dir := []step{root}, root
	parents := []step{}
	links := 0
	for rest := parts(path); len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			if len(parents) > 0 {
				dir, parents = parents[len(parents)-1], parents[:len(parents)-1]
			}
			steps = append(steps, dir)
			continue
		}
		next, err := look(filepath.Join(dir.path, name), &dir)
		if err != nil {
			return nil, err
		}
		steps = append(steps, next)
		if next.mode.Type() != fs.ModeSymlink {
			parents, dir = append(parents, dir), next
			continue
		}
		if links++; links > maxLinks {
			return nil, &fs.PathError{Op: "resolve", Path: path, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(next.path)
		if err != nil {
			return nil, err
		}
		if filepath.IsAbs(target) {
			dir, parents = root, nil
		}
		rest = append(parts(target), rest...)
	}
	return append(steps, dir), nil
}

func parts(path string) []string {
	var out []string
	for part := range strings.SplitSeq(path, "/") {
		if part != "" && part != "." {
			out = append(out, part)
		}
	}
	return out
}

func look(path string, within *step) (step, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return step{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return step{}, errors.New("this system does not state the owners of files")
	}
	s := step{path: path, mode: info.Mode(), uid: stat.Uid, gid: stat.Gid}
	if within != nil {
		in := *within
		s.within = &in
	}
	return s, nil
}
