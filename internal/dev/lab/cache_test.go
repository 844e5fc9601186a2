package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"workflowagent/internal/dev/must"
)

func TestCachedMakesOnce(t *testing.T) {
	t.Setenv(cacheVariable, t.TempDir())
	var made atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			dir, err := cached(t.Context(), "thing", "key", func(dir string) error {
				made.Add(1)
				return os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := made.Load(); got != 1 {
		t.Errorf("the thing was made %d times, want once", got)
	}
}

func TestCachedForgetsFailures(t *testing.T) {
	cache := t.TempDir()
	t.Setenv(cacheVariable, cache)
	must.OK(t, os.MkdirAll(filepath.Join(cache, "thing.draft", "old"), 0o755))
	failure := errors.New("no")
	if _, err := cached(t.Context(), "thing", "key", func(string) error { return failure }); !errors.Is(err, failure) {
		t.Fatalf("making it failed with %v, want %v", err, failure)
	}
	dir := must.Get(cached(t.Context(), "thing", "key", func(dir string) error {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("the draft holds %v, %v, want nothing", left, err)
		}
		return nil
	}))(t)
	if want := filepath.Join(cache, "thing-key"); dir != want {
		t.Errorf("it is in %s, want %s", dir, want)
	}
}

func TestCachedWaitsNoLongerThanItsContext(t *testing.T) {
	t.Setenv(cacheVariable, t.TempDir())
	_, err := cached(t.Context(), "thing", "key", func(string) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := cached(ctx, "thing", "other", func(string) error {
			t.Error("two processes make things at once")
			return nil
		})
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for the lock ended with %v, want %v", err, context.Canceled)
	}
}

func TestFingerprintSeesEveryInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	sum := func() string {
		t.Helper()
		var key fingerprint
		must.OK(t, key.addModule(dir))
		return key.sum()
	}
	write("go.mod", "module x")
	seen := map[string]string{sum(): "go.mod"}
	for _, change := range []struct{ name, content string }{
		{"go.sum", "1"}, {"go.sum", "2"}, {"main.go", "package main"}, {"other.go", "package main"},
	} {
		write(change.name, change.content)
		if before, ok := seen[sum()]; ok {
			t.Errorf("writing %q to %s leaves the key of %s", change.content, change.name, before)
		}
		seen[sum()] = change.name
	}
	last := sum()
	write("main_test.go", "package main")
	write("README.md", "text")
	if sum() != last {
		t.Error("files that are not built change the key")
	}
}
