// Package conffile finds, reads and replaces the configuration file of a program.
package conffile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"workflowagent/internal/settings"
)

const (
	maxSize = 1 << 20 // bytes; real files are much smaller
	newMode = fs.FileMode(0o600)
)

// Found is the result of a search for the configuration file.
type Found struct {
	// Path is the file to read, or "" if no file was found.
	Path string
	// Shadowed lists files that are ignored because they come later in the search order.
	Shadowed []string
	// Failures lists the directories that cannot be searched, with the reasons.
	Failures []string
}

// Warnings returns what an operator should know about the search, one sentence each.
func (f Found) Warnings() []string {
	warnings := slices.Clone(f.Failures)
	for _, path := range f.Shadowed {
		warnings = append(warnings, fmt.Sprintf("%s is not used, because %s comes first", path, f.Path))
	}
	return warnings
}

// Find locates the configuration file without reading it. The file is the given one, which is the
// value of --config and must exist, or else the first candidate that exists.
func Find(given string, dirs settings.Dirs, candidates []string) (Found, error) {
	if given != "" {
		path, err := dirs.Absolute(given)
		if err != nil {
			return Found{}, fmt.Errorf("--config: %w", err)
		}
		if _, err := os.Stat(path); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return Found{}, fmt.Errorf("the configuration file %s given with --config does not exist: correct the path or create the file", path)
			}
			return Found{}, fmt.Errorf("checking the configuration file given with --config: %w", err)
		}
		return Found{Path: path}, nil
	}

	var found Found
	var seen []os.FileInfo
	for _, path := range candidates {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			continue
		case err != nil:
			found.Failures = append(found.Failures, fmt.Sprintf("searching for a configuration file failed: %v", err))
			continue
		case slices.ContainsFunc(seen, func(s os.FileInfo) bool { return os.SameFile(s, info) }):
			continue // the same directory again, or a link from one name to another
		}
		seen = append(seen, info)
		if found.Path == "" {
			found.Path = path
		} else {
			found.Shadowed = append(found.Shadowed, path)
		}
	}
	return found, nil
}

// File is a configuration file that was read.
type File struct {
	Path string
	Text []byte

	mode fs.FileMode
	// private is the most permissive mode for a file that contains a secret.
	private fs.FileMode
}

// Read reads a configuration file. It rejects a file that users other than root and uid could have
// written. atRisk names what such users could change, such as "the commands of this agent".
func Read(path string, uid int, atRisk string) (File, error) {
	// O_NONBLOCK prevents a named pipe from blocking the start forever. The checks apply to the
	// open file, which cannot be replaced between the checks and the read.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return File{}, fmt.Errorf("reading the configuration file: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written, so the error can be ignored
	info, err := f.Stat()
	if err != nil {
		return File{}, fmt.Errorf("reading the configuration file: %w", err)
	}
	if err := check(path, info, uid, atRisk); err != nil {
		return File{}, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return File{}, fmt.Errorf("reading the configuration file: %w", err)
	}
	if len(text) > maxSize {
		return File{}, fmt.Errorf("%s: is larger than 1 MiB: check that it is the right file", path)
	}
	return File{Path: path, Text: text, mode: info.Mode().Perm(), private: privateMode(info, uid)}, nil
}

// ReadText returns the text of a configuration file that is about to be changed, after the same
// checks as [Read]. It returns nil if the file does not exist.
func ReadText(path string, uid int, atRisk string) ([]byte, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	file, err := Read(path, uid, atRisk)
	if file.Text == nil && err == nil {
		return []byte{}, nil
	}
	return file.Text, err
}

func check(path string, info os.FileInfo, uid int, atRisk string) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("%s: is a directory: name the configuration file in it", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: is not a regular file: name a configuration file", path)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != uid {
		return fmt.Errorf("%s: belongs to user %d, who could change %s: change its owner to root or to user %d (chown %d)",
			path, stat.Uid, atRisk, uid, uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s: can be written by other users (mode %04o), who could change %s: run chmod go-w on it",
			path, info.Mode().Perm(), atRisk)
	}
	return nil
}

// privateMode returns the most permissive mode for a file that contains a secret. The system
// service's file belongs to root and is readable by its group; chmod 600 would make it unreadable
// for the service.
func privateMode(info fs.FileInfo, uid int) fs.FileMode {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && (int(stat.Uid) != uid || int(stat.Gid) != os.Getegid()) {
		return 0o640
	}
	return newMode
}

// Exposed returns a warning if other users can read the file, which contains the named secret, such
// as "a token". Otherwise, it returns "".
func (f File) Exposed(secret string) string {
	if f.mode&0o044&^f.private == 0 {
		return ""
	}
	return fmt.Sprintf("%s contains %s and can be read by other users (mode %04o): run chmod %o on it", f.Path, secret, f.mode, f.private)
}

// Program returns the path of the running program, with symbolic links resolved where that is possible. It is "" if
// the path is unknown.
func Program() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return path
}

// Environment converts NAME=VALUE pairs to a map. If a name occurs more than once, the last value
// wins.
func Environment(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env[name] = value
		}
	}
	return env
}
