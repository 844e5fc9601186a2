package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/sys/filelock"
)

const lockPoll = 200 * time.Millisecond

// fingerprint collects the inputs of a cached artifact.
type fingerprint struct {
	parts []string
}

func (f *fingerprint) add(name, value string) {
	f.parts = append(f.parts, fmt.Sprintf("%s %d %s", name, len(value), value))
}

// addFile adds the file's base name and content.
func (f *fingerprint) addFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	f.add(filepath.Base(path), hex.EncodeToString(h.Sum(nil)))
	return nil
}

// addModule adds the go.mod, go.sum and non-test Go files at the top of a module's directory.
func (f *fingerprint) addModule(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		isGo, _ := filepath.Match("*.go", name)
		isTest, _ := filepath.Match("*_test.go", name)
		if name != "go.mod" && name != "go.sum" && (!isGo || isTest) {
			continue
		}
		if err := f.addFile(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// sum returns the key: 16 hexadecimal digits that depend on every input and not on their order.
func (f *fingerprint) sum() string {
	parts := append([]string(nil), f.parts...)
	sort.Strings(parts)
	h := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintln(h, part) // never fails
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// cached returns the directory cache/name-key. If the directory is missing, make fills an empty
// one, which is then renamed into place, so that it is complete or absent. While another process
// creates the directory, cached waits at most until ctx is done.
func cached(ctx context.Context, name, key string, make func(dir string) error) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	final := filepath.Join(cache, name+"-"+key)
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	unlock, err := lock(ctx, filepath.Join(cache, name+".lock"))
	if err != nil {
		return "", fmt.Errorf("waiting for the process that builds %s: %w", name, err)
	}
	defer unlock()
	if _, err := os.Stat(final); err == nil {
		return final, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("finding %s in the cache: %w", name, err)
	}
	// While the lock is held, any draft was left behind by a killed process.
	draft := filepath.Join(cache, name+".draft")
	if err := os.RemoveAll(draft); err != nil {
		return "", fmt.Errorf("clearing the cache: %w", err)
	}
	if err := os.Mkdir(draft, 0o755); err != nil {
		return "", fmt.Errorf("preparing the cache: %w", err)
	}
	defer func() { _ = os.RemoveAll(draft) }()
	if err := make(draft); err != nil {
		return "", err
	}
	if err := os.Rename(draft, final); err != nil {
		return "", fmt.Errorf("storing %s in the cache: %w", name, err)
	}
	return final, nil
}

// lock acquires an exclusive lock on a file, waiting at most until ctx is done, and returns the
// function that releases the lock. The operating system also releases the lock when the process
// exits.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	err = child.Poll(ctx, lockPoll, func() (done bool, err error) {
		unlock, err = tryLock(path)
		return unlock != nil, err
	})
	return unlock, err
}

// tryLock is like [lock], but does not wait: unlock is nil if another process holds the lock.
func tryLock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	lock, err := filelock.Try(file)
	if _, held := errors.AsType[*filelock.HeldError](err); held {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}
