package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// The names of the configuration file, in the order they are looked for in a directory.
const (
	FileName    = "pulumi-workflow-agent.yaml"
	OldFileName = "pulumi-deployment-agent.yaml"
)

// Found is the outcome of a search for the configuration file.
type Found struct {
	// Path is the file to read, "" if there is none.
	Path string
	// Shadowed are files further down the search order, which have no effect.
	Shadowed []string
	// Warnings are places that could not be looked at.
	Warnings []string
}

// Find looks for the configuration file: the one that was asked for, which must exist, or the
// first of both names in the current directory, the home directory, /etc and the directory of
// the binary. It does not look inside.
func Find(o LoadOptions) (Found, error) {
	if o.Path != "" {
		path, err := paths{cwd: o.Cwd, home: o.Home}.absolute(o.Path)
		if err != nil {
			return Found{}, fmt.Errorf("--config: %w", err)
		}
		if _, err := os.Stat(path); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return Found{}, fmt.Errorf("the configuration file %s given with --config does not exist: correct the path or create the file", path)
			}
			return Found{}, fmt.Errorf("look at the configuration file given with --config: %w", err)
		}
		return Found{Path: path}, nil
	}

	var found Found
	var seen []os.FileInfo
	for _, path := range candidates(o) {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			continue
		case err != nil:
			found.Warnings = append(found.Warnings, fmt.Sprintf("cannot look for a configuration file: %v", err))
			continue
		case containsFile(seen, info):
			continue // the same directory twice, or a link from the old name to the new one
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

// candidates returns the places a configuration file may be, best first.
func candidates(o LoadOptions) []string {
	dirs := []string{o.Cwd, o.Home, o.Etc}
	if o.Binary != "" {
		dirs = append(dirs, filepath.Dir(o.Binary))
	}
	var all []string
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		all = append(all, filepath.Join(dir, FileName), filepath.Join(dir, OldFileName))
	}
	return all
}

func containsFile(seen []os.FileInfo, info os.FileInfo) bool {
	for _, s := range seen {
		if os.SameFile(s, info) {
			return true
		}
	}
	return false
}

// readFile reads a configuration file after checking that nobody but its owner can have written
// it and that the owner is root or the user uid. It also returns the permissions.
func readFile(path string, uid int) ([]byte, fs.FileMode, error) {
	// O_NONBLOCK keeps a named pipe from blocking the start forever; the checks are made on what
	// was opened, so that nobody can swap the file between check and read.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("read the configuration file: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written that could get lost
	info, err := f.Stat()
	if err != nil {
		return nil, 0, fmt.Errorf("read the configuration file: %w", err)
	}
	if err := checkFile(path, info, uid); err != nil {
		return nil, 0, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, 0, fmt.Errorf("read the configuration file: %w", err)
	}
	if len(data) > maxFileSize {
		return nil, 0, fmt.Errorf("%s: is larger than 1 MiB, which no configuration is: check that it is the right file", path)
	}
	return data, info.Mode(), nil
}

// checkFile refuses what is not a regular file under the control of root or the user alone.
func checkFile(path string, info os.FileInfo, uid int) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("%s: is a directory: name the configuration file in it", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: is not a regular file: name a configuration file", path)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != uid {
		return fmt.Errorf("%s: belongs to user %d, who could change what this agent runs: make it belong to root or to user %d (chown %d)",
			path, stat.Uid, uid, uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s: can be written by other users (mode %04o), who could change what this agent runs: run chmod go-w on it",
			path, info.Mode().Perm())
	}
	return nil
}
