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

	"workflowagent/internal/filelock"
)

// lockPoll is how often a process that waits for another one's lock looks again.
const lockPoll = 200 * time.Millisecond

// fingerprint collects what an artefact is made from.
type fingerprint struct {
	parts []string
}

// add notes a named input.
func (f *fingerprint) add(name, value string) {
	f.parts = append(f.parts, fmt.Sprintf("%s %d %s", name, len(value), value))
}

// addFile notes a file's content under its base name.
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

// addModule notes the go.mod, go.sum and non-test Go files at the top of a
// module's directory.
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

// sum returns the key: 16 hexadecimal digits that depend on every input and not
// on the order in which they were noted.
func (f *fingerprint) sum() string {
	parts := append([]string(nil), f.parts...)
	sort.Strings(parts)
	h := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintln(h, part) // A hash takes everything.
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// cached returns the directory cache/name-key. If it is not there, make fills an
// empty directory which is then renamed into place, so the directory is either
// complete or absent. Processes that want the same artefact wait for the one
// that makes it, at most until ctx ends.
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
		return "", fmt.Errorf("waiting for another process that makes %s: %w", name, err)
	}
	defer unlock()
	if _, err := os.Stat(final); err == nil {
		return final, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("looking for %s in the cache: %w", name, err)
	}
	// The lock is ours: whatever a killed process left half-made is garbage.
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
		return "", fmt.Errorf("keeping %s in the cache: %w", name, err)
	}
	return final, nil
}

// lock takes an exclusive lock on a file and returns the function that lets it
// go. It waits for the lock at most until ctx ends. The operating system lets it
// go too if the process dies.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	err = Poll(ctx, lockPoll, func() (done bool, err error) {
		unlock, err = tryLock(path)
		return unlock != nil, err
	})
	return unlock, err
}

// tryLock is lock without waiting: unlock is nil if someone else has the lock.
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
