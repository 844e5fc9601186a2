// Package executortest tests the contract of [executor.Executor]. Every executor must pass it.
package executortest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/executortest/program"
)

// patience is the timeout of each test of the suite. Only a failing test reaches it.
const patience = 5 * time.Minute

// Place describes the environment in which the suite's jobs run.
type Place struct {
	// Open returns a new executor for the place. The suite closes the executor.
	Open func(t *testing.T) executor.Executor
	// Spec returns a job for the place. The suite sets JobID, Epoch and Owner.
	Spec func(t *testing.T) executor.Spec
	// BadSpec returns a job whose Prepare fails after it has created some objects. It is nil if the
	// place has no such job.
	BadSpec func(t *testing.T) executor.Spec
	// Visible returns the data of a running job that is visible outside the job: the engine's
	// description, command lines, environments.
	Visible func(t *testing.T, h executor.Handle) string
	// Leftovers returns the names of a job's existing objects and processes in the place.
	Leftovers func(t *testing.T, h executor.Handle) []string
	// LeftoversOf is like Leftovers, for a job whose Prepare failed.
	LeftoversOf func(t *testing.T, spec executor.Spec) []string
	// Broken returns an executor for the place whose Start loses its connection after the runner
	// has received its launch document. It is nil if the place has no such connection.
	Broken func(t *testing.T) executor.Executor
	// MemoryLimit is the memory limit of jobs in MiB, or 0 if jobs have no limit.
	MemoryLimit int
	// Unprepared means that Prepare creates no objects in the place, so that Start can also create
	// those of a job that was removed. It applies only to an [executor.Launcher], whose runner
	// requests leave: there, a second start of an epoch ends before it runs the job.
	Unprepared bool
	// StopDiscards means that the place discards the output of a job that Stop ended, because the
	// only request of its engine that ends a job also removes it.
	StopDiscards bool
	// SpoolAtExit means that CopySpool reports an error while the runner runs.
	SpoolAtExit bool
	// InProcess reports whether jobs are functions in the test's process, without environment
	// variables.
	InProcess bool
	// Workspaces reports whether jobs have workspaces.
	Workspaces bool
}

// BuildRunner builds the suite's runner as a static binary named name in dir.
func BuildRunner(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "workflowagent/internal/dev/executortest/program/testrunner")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the test runner: %w\n%s", err, out)
	}
	return path, nil
}

// Run runs the suite for the executors of a place.
func Run(t *testing.T, place Place) {
	tests := []struct {
		name string
		run  func(t *testing.T, s *suite)
	}{
		{"runs", testRuns},
		{"exit codes", testExitCodes},
		{"no launch document", testNoLaunch},
		{"output", testOutput},
		{"output ends with its reader", testOutputClosed},
		{"interrupt", testInterrupt},
		{"kill", testKill},
		{"reattach", testReattach},
		{"waits", testWaits},
		{"context", testContext},
		{"not started", testNotStarted},
		{"started once", testStartedOnce},
		{"start breaks", testStartBreaks},
		{"prepared once", testPreparedOnce},
		{"spool", testSpool},
		{"result", testResult},
		{"forged result", testForgedResult},
		{"remove", testRemove},
		{"list", testList},
		{"sweep", testSweep},
		{"prepare fails", testPrepareFails},
		{"secrets", testSecrets},
		{"environment", testEnvironment},
		{"out of memory", testOutOfMemory},
		{"foreign handles", testForeignHandles},
		{"workspaces", testWorkspaces},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newSuite(t, place))
		})
	}
}

type suite struct {
	Place
	t   *testing.T
	ctx context.Context
	ex  executor.Executor
	own string // the owner of the test's jobs
}

var jobNumber atomic.Int64

func unique() string { return fmt.Sprintf("job-%d-%d", os.Getpid(), jobNumber.Add(1)) }

func newSuite(t *testing.T, place Place) *suite {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	s := &suite{Place: place, t: t, ctx: ctx, own: "owner-" + unique()}
	s.ex = s.open()
	return s
}

// open returns a new executor that is closed when the test finishes.
func (s *suite) open() executor.Executor {
	s.t.Helper()
	ex := s.Place.Open(s.t)
	s.t.Cleanup(func() {
		if err := ex.Close(); err != nil {
			s.t.Errorf("Close: %v", err)
		}
	})
	return ex
}

func (s *suite) spec() executor.Spec {
	spec := s.Spec(s.t)
	spec.JobID, spec.Epoch, spec.Owner = unique(), 3, s.own
	spec.Labels = map[string]string{"deployment_id": "d-1", "stack": "org/project/stack with spaces & more"}
	return spec
}

func (s *suite) prepare(spec executor.Spec) executor.Handle {
	s.t.Helper()
	h, err := s.ex.Prepare(s.ctx, spec, func(line string) { s.t.Log("prepare:", line) })
	if err != nil {
		s.t.Fatalf("Prepare: %v", err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		ex := s.Place.Open(s.t) // the test's own executors are closed
		if err := errors.Join(ex.Remove(ctx, h), ex.Close()); err != nil {
			s.t.Errorf("Remove: %v", err)
		}
	})
	if h.Executor != s.ex.Name() || h.JobID != spec.JobID || h.Epoch != spec.Epoch || time.Since(h.CreatedAt).Abs() > time.Hour {
		s.t.Errorf("Prepare returned the handle %+v", h)
	}
	return h
}

func launch(actions ...program.Action) []byte {
	data, err := json.Marshal(program.Launch{Secret: secret, Actions: actions})
	if err != nil {
		panic(err) // plain data
	}
	return data
}

const secret = "the-launch-document-s-secret-4711"

func (s *suite) start(actions ...program.Action) executor.Handle {
	s.t.Helper()
	h := s.prepare(s.spec())
	s.launch(h, launch(actions...))
	return h
}

// launch starts a prepared job and waits until its runner was started.
func (s *suite) launch(h executor.Handle, document []byte) {
	s.t.Helper()
	if err := s.ex.Start(s.ctx, h, document); err != nil {
		s.t.Fatalf("Start: %v", err)
	}
	s.awaitStart(h)
}

func (s *suite) awaitStart(h executor.Handle) {
	s.t.Helper()
	if launcher, ok := s.ex.(executor.Launcher); ok {
		if err := launcher.AwaitStart(s.ctx, h, func(line string) { s.t.Log("start:", line) }); err != nil {
			s.t.Fatalf("AwaitStart: %v", err)
		}
	}
}

func (s *suite) wait(h executor.Handle) executor.Exit {
	s.t.Helper()
	exit, err := s.ex.Wait(s.ctx, h)
	if err != nil {
		s.t.Fatalf("Wait: %v", err)
	}
	return exit
}

func (s *suite) output(h executor.Handle) string {
	s.t.Helper()
	r, err := s.ex.Output(s.ctx, h)
	if err != nil {
		s.t.Fatalf("Output: %v", err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		s.t.Fatalf("reading the output: %v", err)
	}
	return string(b)
}

func (s *suite) until(h executor.Handle, text string) {
	s.t.Helper()
	r, err := s.ex.Output(s.ctx, h)
	if err != nil {
		s.t.Fatalf("Output: %v", err)
	}
	defer r.Close()
	var seen bytes.Buffer
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), text) {
		n, err := r.Read(buf)
		seen.Write(buf[:n])
		if err != nil && !strings.Contains(seen.String(), text) {
			s.t.Fatalf("reading the output failed with %v before %q: %q", err, text, seen.String())
		}
	}
}

func (s *suite) wantCode(h executor.Handle, code int) {
	s.t.Helper()
	exit := s.wait(h)
	if exit.Code != code || exit.Signal != "" || exit.OOMKilled || exit.Lost || exit.Success() != (code == 0) {
		s.t.Errorf("the job exited with %+v, want code %d", exit, code)
	}
	if exit.FinishedAt.IsZero() || time.Since(exit.FinishedAt).Abs() > time.Hour {
		s.t.Errorf("the job finished at %v", exit.FinishedAt)
	}
}

func code(n int) program.Action { return program.Action{Exit: &n} }
