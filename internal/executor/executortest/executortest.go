// Package executortest is the suite that every executor passes: the comment of
// [executor.Executor] as tests.
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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/executor"
	"workflowagent/internal/executor/executortest/program"
)

// patience bounds every wait of the suite; only a failure takes so long.
const patience = 60 * time.Second

// Place is where the suite's jobs run.
type Place struct {
	// Open returns a new executor for the place. The suite closes it.
	Open func(t *testing.T) executor.Executor
	// Spec returns a job that the place can run; the suite sets JobID, Epoch and Owner.
	Spec func(t *testing.T) executor.Spec
	// BadSpec returns one that Prepare refuses after it has begun to work; nil if
	// the place has none.
	BadSpec func(t *testing.T) executor.Spec
	// Visible returns what others than the job can see of a running one: the
	// engine's description, command lines, environments.
	Visible func(t *testing.T, h executor.Handle) string
	// Leftovers names the objects and processes that a job has in the place.
	Leftovers func(t *testing.T, h executor.Handle) []string
	// LeftoversOf does so for a job whose Prepare failed.
	LeftoversOf func(t *testing.T, spec executor.Spec) []string
	// MemoryLimit is what jobs of the place may use, in MiB; 0 if there is no limit.
	MemoryLimit int
	// InProcess says that jobs are functions of the test, which have no environment.
	InProcess bool
}

// BuildRunner builds the suite's runner as a static binary named name in dir.
func BuildRunner(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-o", path, "workflowagent/internal/executor/executortest/program/testrunner")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the test runner: %w\n%s", err, out)
	}
	return path, nil
}

// Run runs the suite.
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
		{"prepared once", testPreparedOnce},
		{"spool", testSpool},
		{"result", testResult},
		{"remove", testRemove},
		{"list", testList},
		{"sweep", testSweep},
		{"prepare fails", testPrepareFails},
		{"secrets", testSecrets},
		{"environment", testEnvironment},
		{"out of memory", testOutOfMemory},
		{"foreign handles", testForeignHandles},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newSuite(t, place))
		})
	}
}

// suite is one test's view of the place.
type suite struct {
	Place
	t   *testing.T
	ctx context.Context
	ex  executor.Executor
	own string // the owner of the test's jobs
}

var jobNumber struct {
	sync.Mutex
	n int
}

// unique returns a job id that no other test of the process has.
func unique() string {
	jobNumber.Lock()
	defer jobNumber.Unlock()
	jobNumber.n++
	return fmt.Sprintf("job-%d-%d", os.Getpid(), jobNumber.n)
}

func newSuite(t *testing.T, place Place) *suite {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	s := &suite{Place: place, t: t, ctx: ctx, own: "owner-" + unique()}
	s.ex = s.open()
	return s
}

// open returns a new executor that is closed at the end of the test.
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
		if err := s.ex.Remove(ctx, h); err != nil {
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
	if err := s.ex.Start(s.ctx, h, launch(actions...)); err != nil {
		s.t.Fatalf("Start: %v", err)
	}
	return h
}

func (s *suite) wait(h executor.Handle) executor.Exit {
	s.t.Helper()
	exit, err := s.ex.Wait(s.ctx, h)
	if err != nil {
		s.t.Fatalf("Wait: %v", err)
	}
	return exit
}

// output returns all of the output of a job.
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

// until reads the output of a job until text is in it.
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
			s.t.Fatalf("the output ended with %v before %q: %q", err, text, seen.String())
		}
	}
}

func (s *suite) wantCode(h executor.Handle, code int) {
	s.t.Helper()
	exit := s.wait(h)
	if exit.Code != code || exit.Signal != "" || exit.OOMKilled || exit.Lost || exit.Success() != (code == 0) {
		s.t.Errorf("the job ended with %+v, want code %d", exit, code)
	}
	if exit.FinishedAt.IsZero() || time.Since(exit.FinishedAt).Abs() > time.Hour {
		s.t.Errorf("the job finished at %v", exit.FinishedAt)
	}
}

func code(n int) program.Action { return program.Action{Exit: &n} }

func testRuns(t *testing.T, s *suite) {
	if err := s.ex.Check(s.ctx); err != nil {
		t.Fatalf("Check: %v", err)
	}
	h := s.start(program.Action{Print: "hello\n"})
	s.wantCode(h, 0)
	if got := s.output(h); got != "hello\n" {
		t.Errorf("output %q", got)
	}
}

func testExitCodes(t *testing.T, s *suite) {
	for _, n := range []int{1, 7, 125} {
		s.wantCode(s.start(code(n)), n)
	}
}

func testNoLaunch(t *testing.T, s *suite) {
	h := s.prepare(s.spec())
	if err := s.ex.Start(s.ctx, h, nil); err != nil {
		t.Fatalf("Start: %v", err)
	}
	s.wantCode(h, program.ExitNoLaunch)
}

func testOutput(t *testing.T, s *suite) {
	const lines, last = 30000, "to standard error\n"
	h := s.start(program.Action{Lines: lines}, program.Action{PrintErr: last}, program.Action{CountInterrupts: 200 * time.Millisecond})
	s.until(h, last)
	if err := s.ex.Stop(s.ctx, h, executor.StopInterrupt); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	// The two streams need not keep their order.
	check := func(when, got string) {
		t.Helper()
		stdout, rest, found := strings.Cut(got, last)
		if !found || stdout+rest != program.Lines(lines) {
			t.Errorf("output %s has %d bytes, want %d", when, len(got), len(program.Lines(lines))+len(last))
		}
	}
	check("followed", s.output(h))
	s.wait(h)
	check("after the end", s.output(h))
}

func testOutputClosed(t *testing.T, s *suite) {
	h := s.start(program.Action{Print: "ready\n"}, program.Action{Forever: true})
	s.until(h, "ready\n")
	r, err := s.ex.Output(s.ctx, h)
	if err != nil {
		t.Fatalf("Output: %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, r)
		ended <- err
	}()
	if err := r.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	select {
	case <-ended:
	case <-s.ctx.Done():
		t.Error("Close did not end the Read that was going on")
	}
}

func testInterrupt(t *testing.T, s *suite) {
	h := s.start(program.Action{Print: "ready\n"}, program.Action{CountInterrupts: 500 * time.Millisecond})
	s.until(h, "ready\n")
	if err := s.ex.Stop(s.ctx, h, executor.StopInterrupt); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	s.wantCode(h, program.ExitSignals+1)
	for _, how := range []executor.Stop{executor.StopInterrupt, executor.StopKill} {
		if err := s.ex.Stop(s.ctx, h, how); err != nil {
			t.Errorf("Stop of a job that has ended: %v", err)
		}
	}
}

func testKill(t *testing.T, s *suite) {
	h := s.start(program.Action{Child: true}, program.Action{Print: "ready\n"}, program.Action{Forever: true})
	s.until(h, "ready\n")
	if err := s.ex.Stop(s.ctx, h, executor.StopInterrupt); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	if err := s.ex.Stop(s.ctx, h, executor.StopKill); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	exit := s.wait(h)
	if exit.Signal != "SIGKILL" || exit.Code != -1 || exit.Lost || exit.OOMKilled || exit.Success() {
		t.Errorf("a killed job ended with %+v", exit)
	}
}

func testReattach(t *testing.T, s *suite) {
	h := s.start(program.Action{Print: "ready\n"}, program.Action{CountInterrupts: 500 * time.Millisecond})
	s.until(h, "ready\n")
	data, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var again executor.Handle
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatal(err)
	}
	if err := s.ex.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	s.ex = s.open()
	if err := s.ex.Start(s.ctx, again, launch()); !errors.Is(err, executor.ErrStarted) {
		t.Errorf("Start after the restart: %v, want %v", err, executor.ErrStarted)
	}
	s.until(again, "ready\n")
	if err := s.ex.Stop(s.ctx, again, executor.StopInterrupt); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	s.wantCode(again, program.ExitSignals+1)
	if got := s.output(again); got != "ready\n" {
		t.Errorf("output %q", got)
	}
}

func testWaits(t *testing.T, s *suite) {
	h := s.start(program.Action{Print: "ready\n"}, program.Action{CountInterrupts: 100 * time.Millisecond})
	var waits sync.WaitGroup
	for _, ex := range []executor.Executor{s.ex, s.ex, s.open()} {
		waits.Go(func() {
			if exit, err := ex.Wait(s.ctx, h); err != nil || exit.Code != program.ExitSignals+1 {
				t.Errorf("Wait: %+v, %v", exit, err)
			}
		})
	}
	s.until(h, "ready\n")
	if err := s.ex.Stop(s.ctx, h, executor.StopInterrupt); err != nil {
		t.Errorf("Stop: %v", err)
	}
	waits.Wait()
	s.wantCode(h, program.ExitSignals+1)
	if err := s.ex.Remove(s.ctx, h); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	if exit := s.wait(h); !exit.Lost || exit.Code != -1 || exit.Success() {
		t.Errorf("Wait for a removed job: %+v, want it lost", exit)
	}
}

func testContext(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(s.ctx)
	h := s.prepare(s.spec())
	if err := s.ex.Start(ctx, h, launch(program.Action{Print: "ready\n"}, program.Action{CountInterrupts: 100 * time.Millisecond})); err != nil {
		t.Fatalf("Start: %v", err)
	}
	s.until(h, "ready\n")
	ended := make(chan error, 1)
	go func() {
		_, err := s.ex.Wait(ctx, h)
		ended <- err
	}()
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Wait with an ended context: %v", err)
		}
	case <-s.ctx.Done():
		t.Fatal("Wait did not return when its context ended")
	}
	if err := s.ex.Stop(s.ctx, h, executor.StopInterrupt); err != nil {
		t.Errorf("Stop: %v", err)
	}
	s.wantCode(h, program.ExitSignals+1) // so it was running all the time
}

func testNotStarted(t *testing.T, s *suite) {
	h := s.prepare(s.spec())
	if _, err := s.ex.Wait(s.ctx, h); !errors.Is(err, executor.ErrNotStarted) {
		t.Errorf("Wait: %v", err)
	}
	if err := s.ex.Stop(s.ctx, h, executor.StopInterrupt); !errors.Is(err, executor.ErrNotStarted) {
		t.Errorf("Stop: %v", err)
	}
	if _, err := s.ex.Output(s.ctx, h); !errors.Is(err, executor.ErrNotStarted) {
		t.Errorf("Output: %v", err)
	}
	if err := s.ex.Remove(s.ctx, h); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if got := s.Leftovers(t, h); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
	if err := s.ex.Start(s.ctx, h, launch()); err == nil {
		t.Error("a removed job could be started")
	}
}

func testStartedOnce(t *testing.T, s *suite) {
	h := s.prepare(s.spec())
	var mu sync.Mutex
	var results []error
	var starts sync.WaitGroup
	for range 5 {
		starts.Go(func() {
			err := s.ex.Start(s.ctx, h, launch(program.Action{Print: "ran\n"}))
			mu.Lock()
			defer mu.Unlock()
			results = append(results, err)
		})
	}
	starts.Wait()
	ok := 0
	for _, err := range results {
		switch {
		case err == nil:
			ok++
		case !errors.Is(err, executor.ErrStarted):
			t.Errorf("Start: %v, want %v", err, executor.ErrStarted)
		}
	}
	if ok != 1 {
		t.Errorf("%d starts succeeded, want 1", ok)
	}
	s.wantCode(h, 0)
	if err := s.ex.Start(s.ctx, h, launch(program.Action{Print: "ran\n"})); !errors.Is(err, executor.ErrStarted) {
		t.Errorf("Start of a job that has ended: %v, want %v", err, executor.ErrStarted)
	}
	if got := s.output(h); got != "ran\n" {
		t.Errorf("output %q, want one line", got)
	}
}

func testPreparedOnce(t *testing.T, s *suite) {
	spec := s.spec()
	h := s.prepare(spec)
	if _, err := s.ex.Prepare(s.ctx, spec, func(string) {}); err == nil {
		t.Fatal("the same job and epoch could be prepared twice")
	}
	if err := s.ex.Start(s.ctx, h, launch(code(5))); err != nil {
		t.Fatalf("Start after a second Prepare was refused: %v", err)
	}
	s.wantCode(h, 5)
	spec.Epoch++
	s.prepare(spec)
}

func testSpool(t *testing.T, s *suite) {
	h := s.start(
		program.Action{WriteFile: "spool/1/stream"}, program.Action{WriteFile: "spool/index"},
		program.Action{WriteFile: "work/no"}, program.Action{Print: "ready\n"}, program.Action{Forever: true},
	)
	s.until(h, "ready\n")
	check := func(dst string) {
		t.Helper()
		if err := s.ex.CopySpool(s.ctx, h, dst); err != nil {
			t.Fatalf("CopySpool: %v", err)
		}
		got := files(t, dst)
		if want := []string{"1/stream=spool/1/stream", "index=spool/index"}; !slices.Equal(got, want) {
			t.Errorf("copied %q, want %q", got, want)
		}
	}
	dst := filepath.Join(t.TempDir(), "new", "copy")
	check(dst)
	if err := s.ex.Stop(s.ctx, h, executor.StopKill); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	s.wait(h)
	check(dst) // again, over the first copy, after the end
	none := s.start()
	s.wait(none)
	dst = filepath.Join(t.TempDir(), "none")
	if err := s.ex.CopySpool(s.ctx, none, dst); err != nil {
		t.Errorf("CopySpool without a spool: %v", err)
	}
	if got := files(t, dst); len(got) > 0 {
		t.Errorf("copied %q from a job without a spool", got)
	}
}

// files returns the names and contents of the files below dir.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, relErr := filepath.Rel(dir, path)
		out = append(out, filepath.ToSlash(name)+"="+string(data))
		return errors.Join(err, relErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func testResult(t *testing.T, s *suite) {
	h := s.start(program.Action{Result: `{"exitCode":3,"status":"failed","reason":"exit-code","reported":true,"finishedAt":"2026-01-02T03:04:05Z"}`}, code(3))
	exit := s.wait(h)
	if exit.Code != 3 || exit.Result == nil || !exit.Result.Reported || exit.Result.ExitCode != 3 {
		t.Errorf("the job ended with %+v, result %+v", exit, exit.Result)
	}
	for _, bad := range []string{"not JSON", strings.Repeat("[", 1<<20)} {
		h := s.start(program.Action{Result: bad}, code(4))
		if exit := s.wait(h); exit.Code != 4 || exit.Result != nil {
			t.Errorf("the job ended with %+v, result %+v", exit, exit.Result)
		}
	}
}

func testRemove(t *testing.T, s *suite) {
	h := s.start(program.Action{Child: true}, program.Action{WriteFile: "work/file"}, program.Action{Print: "ready\n"}, program.Action{Forever: true})
	s.until(h, "ready\n")
	if got := s.Leftovers(t, h); len(got) == 0 {
		t.Error("a running job has no objects: the test cannot fail")
	}
	for range 2 {
		if err := s.ex.Remove(s.ctx, h); err != nil {
			t.Fatalf("Remove: %v", err)
		}
		if got := s.Leftovers(t, h); len(got) > 0 {
			t.Errorf("left behind: %q", got)
		}
	}
	if err := s.ex.Stop(s.ctx, h, executor.StopInterrupt); err != nil {
		t.Errorf("Stop of a removed job: %v", err)
	}
}

func testList(t *testing.T, s *suite) {
	prepared := s.prepare(s.spec())
	ended := s.start(code(1))
	s.wait(ended)
	foreign := s.spec()
	foreign.Owner += "-other"
	s.prepare(foreign)

	all, err := s.open().List(s.ctx, s.own)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	var got []string
	for _, h := range all {
		got = append(got, h.JobID)
		if h.Epoch != 3 || h.Executor != s.ex.Name() || time.Since(h.CreatedAt).Abs() > time.Hour {
			t.Errorf("listed %+v", h)
		}
		if h.JobID == ended.JobID {
			s.wantCode(h, 1) // it is as good as the first
		}
	}
	want := []string{prepared.JobID, ended.JobID}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}

func testSweep(t *testing.T, s *suite) {
	kept, dropped := s.prepare(s.spec()), s.prepare(s.spec())
	keep := func(h executor.Handle) bool { return h.JobID == kept.JobID }
	if removed, err := executor.Sweep(s.ctx, s.ex, s.own, time.Now(), time.Hour, keep); err != nil || len(removed) != 0 {
		t.Errorf("Sweep of young objects removed %v, %v", removed, err)
	}
	removed, err := executor.Sweep(s.ctx, s.ex, s.own, time.Now().Add(2*time.Hour), time.Hour, keep)
	if err != nil || len(removed) != 1 || removed[0].JobID != dropped.JobID {
		t.Errorf("Sweep removed %v, %v, want %s", removed, err, dropped.JobID)
	}
	if got := s.Leftovers(t, dropped); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
	if got := s.Leftovers(t, kept); len(got) == 0 {
		t.Error("Sweep removed a job that was to be kept")
	}
}

func testPrepareFails(t *testing.T, s *suite) {
	cancelled, cancel := context.WithCancel(s.ctx)
	cancel()
	spec := s.spec()
	if _, err := s.ex.Prepare(cancelled, spec, func(string) {}); err == nil {
		t.Error("Prepare succeeded with an ended context")
	}
	if got := s.LeftoversOf(t, spec); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
	if s.BadSpec == nil {
		return
	}
	bad := s.BadSpec(t)
	bad.JobID, bad.Epoch, bad.Owner = unique(), 1, s.own
	_, err := s.ex.Prepare(s.ctx, bad, func(string) {})
	var failure *executor.Error
	if !errors.As(err, &failure) || failure.Reason == "" || failure.Message == "" || strings.Contains(failure.Message, "\n") {
		t.Errorf("Prepare failed with %v, want an executor.Error of one line", err)
	}
	if got := s.LeftoversOf(t, bad); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
}

func testSecrets(t *testing.T, s *suite) {
	h := s.start(program.Action{Print: "ready\n"}, program.Action{Forever: true})
	s.until(h, "ready\n")
	seen := s.Visible(t, h)
	if seen == "" {
		t.Fatal("nothing is visible: the test cannot fail")
	}
	if strings.Contains(seen, secret) {
		t.Error("the launch document can be seen from outside the job")
	}
}

func testEnvironment(t *testing.T, s *suite) {
	if s.InProcess {
		t.Skip("jobs are functions of the test")
	}
	h := s.start(program.Action{Environ: true})
	s.wantCode(h, 0)
	out := s.output(h)
	if !strings.Contains(out, "PATH=") {
		t.Errorf("the job's environment has no PATH: %q", out)
	}
	if strings.Contains(out, AgentSecret) {
		t.Error("the job inherits the agent's environment")
	}
}

// AgentSecret is the value of an environment variable that the caller of [Run]
// sets and no job may see.
const AgentSecret = "the-agent-s-token-4712"

func testOutOfMemory(t *testing.T, s *suite) {
	if s.MemoryLimit == 0 {
		t.Skip("jobs of this executor have no memory limit")
	}
	h := s.start(program.Action{Allocate: 4 * s.MemoryLimit}, program.Action{Print: "not reached\n"})
	exit := s.wait(h)
	if !exit.OOMKilled || exit.Success() || exit.Lost {
		t.Errorf("a job that used too much memory ended with %+v", exit)
	}
}

func testForeignHandles(t *testing.T, s *suite) {
	for _, h := range []executor.Handle{
		{Executor: "another", JobID: "x", Data: json.RawMessage(`{}`)},
		{Executor: s.ex.Name(), JobID: "x", Data: json.RawMessage(`nonsense`)},
	} {
		if err := s.ex.Remove(s.ctx, h); err == nil {
			t.Errorf("Remove took the handle %+v", h)
		}
		if err := s.ex.Start(s.ctx, h, launch()); err == nil {
			t.Errorf("Start took the handle %+v", h)
		}
		if _, err := s.ex.Wait(s.ctx, h); err == nil {
			t.Errorf("Wait took the handle %+v", h)
		}
	}
}
