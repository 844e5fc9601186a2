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

	"golang.org/x/sys/unix"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
	"workflowagent/internal/sys/boundedfile"
	"workflowagent/internal/sys/dirtree"
	"workflowagent/internal/sys/durable"
	"workflowagent/internal/sys/filelock"
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

// maxResult bounds the size of result.json in bytes, because the job can write that file.
const maxResult = 64 << 10

type dir string

func (d dir) path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// marker returns the environment entry that identifies the job's processes outside the runner's
// session.
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

// lock acquires the directory's lock. Across processes, the lock serializes Start and the reading
// of the exit status. The caller must call the returned function soon.
func (d dir) lock(ctx context.Context) (func(), error) {
	lock, err := filelock.Wait(ctx, d.path(fileLock))
	if err != nil {
		return nil, fmt.Errorf("locking the job's directory: %w", err)
	}
	return lock.Release, nil
}

// openJob opens the directory that the job owns.
func (d dir) openJob() (*os.Root, error) {
	info, err := os.Lstat(d.path(dirJob))
	if err := needDirectory(info, err); err != nil {
		return nil, err
	}
	return os.OpenRoot(d.path(dirJob))
}

// needDirectory returns an error unless a file is a directory. A job can replace its directories by pipes,
// whose opening would never end.
func needDirectory(info fs.FileInfo, err error) error {
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", info.Name())
	}
	return err
}

func (d dir) result() *protocol.Result {
	root, err := d.openJob()
	if err != nil {
		return nil
	}
	defer root.Close()
	f, info, err := boundedfile.OpenIn(root, protocol.FileResult, os.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return nil
	}
	defer f.Close()
	var r protocol.Result
	data := make([]byte, min(info.Size(), maxResult))
	if _, err := io.ReadFull(f, data); err != nil || json.Unmarshal(data, &r) != nil {
		return nil
	}
	return &r
}

// copySpool copies the spool to dst. The job controls the directory, so copySpool never follows
// paths out of it.
func (d dir) copySpool(ctx context.Context, dst string) (err error) {
	to, err := executor.NewSpoolCopy(dst)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	job, err := d.openJob()
	if err != nil {
		return err
	}
	defer job.Close()
	info, err := job.Lstat(protocol.DirSpool)
	var src *os.Root
	if err = needDirectory(info, err); err == nil {
		src, err = job.OpenRoot(protocol.DirSpool)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer src.Close()
	list, err := src.Open(".")
	if err != nil {
		return err
	}
	defer list.Close()
	for ctx.Err() == nil {
		entries, err := list.ReadDir(256) // a job can make any number of them
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if !entry.Type().IsRegular() || !delivery.IsFileName(entry.Name()) {
				err = to.Skip()
			} else {
				err = copyFile(src, to, entry.Name())
			}
			if err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func copyFile(src *os.Root, to *executor.SpoolCopy, name string) error {
	in, info, err := boundedfile.OpenIn(src, name, os.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer in.Close()
	return to.Add(name, info.Size(), in)
}

// remove deletes the directory. It renames the directory first, so that a process of the job cannot
// create files in it.
func (d dir) remove(ctx context.Context) error {
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
	return dirtree.Remove(ctx, root, doomed)
}

// writeJSON writes the file atomically and syncs it, so that the file survives a power failure.
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

// readJSON reads one of the executor's files. It returns fs.ErrNotExist for a missing file. It
// returns the same error for a damaged file, because a host crash can damage files.
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
