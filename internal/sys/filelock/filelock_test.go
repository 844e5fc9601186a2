package filelock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/sys/filelock"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, []byte("2147483647 and older text"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := filelock.Try(open(t, path))
	if err != nil {
		t.Fatal(err)
	}
	_, err = filelock.Try(open(t, path))
	held, isHeld := errors.AsType[*filelock.HeldError](err)
	if !isHeld || held.PID != os.Getpid() || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("got %v, want this process as the holder", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := filelock.Wait(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of the context", err)
	}
	freed := time.AfterFunc(20*time.Millisecond, first.Release)
	defer freed.Stop()
	second, err := filelock.Wait(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
	third, err := filelock.Try(open(t, path))
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	third.Release()
}

func TestHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if pid, held, err := filelock.Holder(path); held || pid != 0 || err != nil {
		t.Errorf("a missing file: %d, %t, %v", pid, held, err)
	}
	lock, err := filelock.Try(open(t, path))
	if err != nil {
		t.Fatal(err)
	}
	if pid, held, err := filelock.Holder(path); !held || pid != os.Getpid() || err != nil {
		t.Errorf("a locked file: %d, %t, %v", pid, held, err)
	}
	lock.Release()
	if _, held, err := filelock.Holder(path); held || err != nil {
		t.Errorf("a released file: %t, %v", held, err)
	}
	if lock, err = filelock.Try(open(t, path)); err != nil {
		t.Fatalf("after the question: %v", err)
	}
	lock.Release()
}
