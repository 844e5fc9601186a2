package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
)

// TestExaminationEnds examines a database with programs that end, and with one that never does.
func TestExaminationEnds(t *testing.T) {
	program := func(script string) string {
		path := filepath.Join(t.TempDir(), "program")
		must.OK(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
		return path
	}
	if untouched, err := examine(t.Context(), program(`test "$*" = "untouched -- -file" && echo true`), "-file", time.Minute); err != nil || !untouched {
		t.Errorf("%t, %v", untouched, err)
	}
	if _, err := examine(t.Context(), program("exit 1"), "file", time.Minute); err == nil {
		t.Error("a failure is not reported")
	}
	if _, err := examine(t.Context(), program("exec sleep 600"), "file", 10*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an examination that never ends: %v", err)
	}
}
