package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"workflowagent/internal/protocol"

	"golang.org/x/sys/unix"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/delivery"
	"workflowagent/internal/durable"
	"workflowagent/internal/filelock"
)

const (
	removedPrefix = ".removed-"
	fileMeta      = "meta.json"
	fileStarted   = "started"
	fileProcess   = "process.json"
	fileOutput    = "output.log"
	fileExit      = "exit.json"
	fileLock      = "lock"
	dirJob        = "job"
	dirHome       = "home"
	dirTemp       = "tmp"
)

// maxResult bounds result.json, which the job writes, in bytes.
const maxResult = 64 << 10

type dir string

func (d dir) path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// marker is an inherited environment entry, which identifies processes outside the session.
func (d dir) marker() string { return "WORKFLOW_JOB_DIRECTORY=" + string(d) }

func (d dir) create(m meta) (err error) {
	if err := os.Mkdir(string(d), 0o700); err != nil {
		return fmt.Errorf("creating the job's directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(string(d)))
		}
	}()
	if err := writeJSON(d.path(fileMeta), m); err != nil {
		return err
	}
	for _, sub := range []string{dirJob, dirHome, dirTemp} {
		if err := os.Mkdir(d.path(sub), 0o700); err != nil {
			return fmt.Errorf("creating the job's directory: %w", err)
		}
	}
	return nil
}

func (d dir) meta() (meta, error) {
	var m meta
	err := readJSON(d.path(fileMeta), &m)
	return m, err
}

func (d dir) process() (identity, error) {
	var id identity
	err := readJSON(d.path(fileProcess), &id)
	return id, err
}

// lock takes the directory's lock, which orders Start and the reading of the exit status across
// processes. Holders are quick. The caller must call the returned function.
func (d dir) lock(ctx context.Context) (func(), error) {
	lock, err := filelock.Wait(ctx, d.path(fileLock))
	if err != nil {
		return nil, fmt.Errorf("locking the job's directory: %w", err)
	}
	return lock.Release, nil
}

func (d dir) result() *protocol.Result {
	root, err := os.OpenRoot(d.path(dirJob))
	if err != nil {
		return nil
	}
	defer root.Close()
	f, err := root.OpenFile(protocol.FileResult, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, maxResult))
	if err != nil {
		return nil
	}
	var r protocol.Result
	if json.Unmarshal(data, &r) != nil {
		return nil
	}
	return &r
}

// copySpool copies the spool. The job controls the directory, so nothing leads outside.
func (d dir) copySpool(ctx context.Context, dst string) (err error) {
	to, err := executor.NewSpoolCopy(dst)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	job, err := os.OpenRoot(d.path(dirJob))
	if err != nil {
		return err
	}
	defer job.Close()
	src, err := job.OpenRoot(protocol.DirSpool)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer src.Close()
	entries, err := fs.ReadDir(src.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !entry.Type().IsRegular() || !delivery.IsFileName(entry.Name()) {
			continue
		}
		if err := copyFile(src, to, entry.Name()); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(src *os.Root, to *executor.SpoolCopy, name string) error {
	in, err := src.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return nil // removed since the directory was read
	}
	return to.Add(name, info.Size(), in)
}

// remove deletes the directory. It renames it first, so that a process that watches the job
// makes no file in it meanwhile. Jobs leave directories without write permission (Go's module
// cache does), so remove grants it.
func (d dir) remove() error {
	root, err := os.OpenRoot(filepath.Dir(string(d)))
	if err != nil {
		return err
	}
	defer root.Close()
	name := filepath.Base(string(d))
	doomed := removedPrefix + name
	if err := root.Rename(name, doomed); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = root.RemoveAll(doomed)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	walkErr := fs.WalkDir(root.FS(), doomed, func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && err == nil {
			return root.Chmod(path, 0o700) // before its entries are read
		}
		return err
	})
	return errors.Join(root.RemoveAll(doomed), walkErr)
}

// writeJSON writes atomically and syncs, to survive a loss of power.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err == nil {
		err = durable.WriteFile(path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// readJSON reads a file of the executor. A missing or damaged file is fs.ErrNotExist: a crash
// of the host can leave a damaged one.
func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("reading %s: %w (%w)", path, fs.ErrNotExist, err)
	}
	return nil
}
