package executortest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/executortest/program"
	"workflowagent/internal/dev/must"
)

const segment = "step-0001-0000000000000000.log"

func testSpool(t *testing.T, s *suite) {
	h := s.start(
		program.Action{WriteFile: "spool/" + segment}, program.Action{WriteFile: "spool/step-0001.state"},
		program.Action{WriteFile: "spool/other"}, program.Action{WriteFile: "spool/step-1-0.log"}, program.Action{WriteFile: "spool/1/" + segment},
		program.Action{WriteFile: "work/no"}, program.Action{Print: "ready\n"}, program.Action{Forever: true},
	)
	s.until(h, "ready\n")
	check := func(dst string) {
		t.Helper()
		if err := s.ex.CopySpool(s.ctx, h, dst); err != nil {
			t.Fatalf("CopySpool: %v", err)
		}
		got := files(t, dst)
		if want := []string{segment + "=spool/" + segment, "step-0001.state=spool/step-0001.state"}; !slices.Equal(got, want) {
			t.Errorf("copied %q, want %q", got, want)
		}
	}
	dst := filepath.Join(t.TempDir(), "new", "copy")
	if s.SpoolAtExit {
		if err := s.ex.CopySpool(s.ctx, h, dst); err == nil {
			t.Error("CopySpool succeeded for a running job")
		}
	} else {
		check(dst)
	}
	if err := s.ex.Stop(s.ctx, h, executor.StopKill); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	s.wait(h)
	check(dst) // copy again over the first copy, after the job has finished
	check(dst)
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
	must.OK(t, err)
	return out
}

func testResult(t *testing.T, s *suite) {
	h := s.start(program.Action{Result: `{"exitCode":3,"status":"failed","reason":"exit-code","reported":true,"finishedAt":"2026-01-02T03:04:05Z"}`}, code(3))
	exit := s.wait(h)
	if exit.Code != 3 || exit.Result == nil || !exit.Result.Reported || exit.Result.ExitCode != 3 {
		t.Errorf("the job exited with %+v, result %+v", exit, exit.Result)
	}
	for _, bad := range []string{"not JSON", strings.Repeat("[", 1<<18)} {
		h := s.start(program.Action{Result: bad}, code(4))
		if exit := s.wait(h); exit.Code != 4 || exit.Result != nil {
			t.Errorf("the job exited with %+v, result %+v", exit, exit.Result)
		}
	}
}

// testForgedResult checks that a killed runner is reported as killed, even if its job has written a
// result with the exit code that some executors report for a killed runner.
func testForgedResult(t *testing.T, s *suite) {
	h := s.start(
		program.Action{Result: `{"exitCode":137,"status":"failed","reason":"exit-code","reported":true,"finishedAt":"2026-01-02T03:04:05Z"}`},
		program.Action{Print: "ready\n"}, program.Action{Forever: true},
	)
	s.until(h, "ready\n")
	if err := s.ex.Stop(s.ctx, h, executor.StopKill); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	if exit := s.wait(h); exit.Code != -1 || exit.Signal != "SIGKILL" {
		t.Errorf("a killed runner exited with %+v, want SIGKILL regardless of its result file", exit)
	}
}

func testRemove(t *testing.T, s *suite) {
	h := s.start(program.Action{Child: true}, program.Action{WriteFile: "work/file"}, program.Action{Print: "ready\n"}, program.Action{Forever: true})
	s.until(h, "ready\n")
	if got := s.Leftovers(t, h); len(got) == 0 {
		t.Error("a running job has no objects: the check cannot fail")
	}
	for range 2 {
		if err := s.ex.Remove(s.ctx, h); err != nil {
			t.Fatalf("Remove: %v", err)
		}
		if got := s.Leftovers(t, h); len(got) > 0 {
			t.Errorf("leftovers: %q", got)
		}
	}
	if err := s.ex.Stop(s.ctx, h, executor.StopInterrupt); err != nil {
		t.Errorf("Stop of a removed job: %v", err)
	}
}

func testList(t *testing.T, s *suite) {
	prepared := s.created(s.spec())
	ended := s.start(code(1))
	s.wait(ended)
	foreign := s.spec()
	foreign.Owner += "-other"
	s.created(foreign)

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
			s.wantCode(h, 1) // a listed handle works like the original
		}
	}
	want := []string{prepared.JobID, ended.JobID}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}

// created returns a job that has objects.
func (s *suite) created(spec executor.Spec) executor.Handle {
	s.t.Helper()
	h := s.prepare(spec)
	if s.Unprepared {
		s.launch(h, launch(program.Action{Forever: true}))
	}
	return h
}

func testSweep(t *testing.T, s *suite) {
	kept, dropped := s.created(s.spec()), s.created(s.spec())
	keep := func(h executor.Handle) bool { return h.JobID == kept.JobID }
	if removed, err := executor.Sweep(s.ctx, s.ex, s.own, time.Now(), time.Hour, keep); err != nil || len(removed) != 0 {
		t.Errorf("Sweep of young objects removed %v, %v", removed, err)
	}
	removed, err := executor.Sweep(s.ctx, s.ex, s.own, time.Now().Add(2*time.Hour), time.Hour, keep)
	if err != nil || len(removed) != 1 || removed[0].JobID != dropped.JobID {
		t.Errorf("Sweep removed %v, %v, want %s", removed, err, dropped.JobID)
	}
	if got := s.Leftovers(t, dropped); len(got) > 0 {
		t.Errorf("leftovers: %q", got)
	}
	if got := s.Leftovers(t, kept); len(got) == 0 {
		t.Error("Sweep removed a job that keep claims")
	}
}

func testPrepareFails(t *testing.T, s *suite) {
	cancelled, cancel := context.WithCancel(s.ctx)
	cancel()
	spec := s.spec()
	if _, err := s.ex.Prepare(cancelled, spec, func(string) {}); err == nil {
		t.Error("Prepare succeeded with a canceled context")
	}
	if got := s.LeftoversOf(t, spec); len(got) > 0 {
		t.Errorf("leftovers: %q", got)
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
		t.Errorf("leftovers: %q", got)
	}
}

func testSecrets(t *testing.T, s *suite) {
	h := s.start(program.Action{Print: "ready\n"}, program.Action{Forever: true})
	s.until(h, "ready\n")
	seen := s.Visible(t, h)
	if seen == "" {
		t.Fatal("no data is visible: the check cannot fail")
	}
	if strings.Contains(seen, secret) {
		t.Error("the launch document is visible outside the job")
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

// AgentSecret is the value of an environment variable that the caller of [Run] sets. No job may
// have it in its environment.
const AgentSecret = "the-agent-s-token-4712"

func testOutOfMemory(t *testing.T, s *suite) {
	if s.MemoryLimit == 0 {
		t.Skip("jobs of this executor have no memory limit")
	}
	for tries := 1; ; tries++ {
		h := s.start(program.Action{Allocate: 4 * s.MemoryLimit}, program.Action{Print: "not reached\n"})
		exit := s.wait(h)
		if exit.OOMKilled && !exit.Success() && !exit.Lost {
			return
		}
		// An engine can lose the OOM event (https://github.com/containerd/containerd/issues/8893).
		if tries == 3 || exit.Signal != "SIGKILL" {
			t.Fatalf("a job that used too much memory exited with %+v", exit)
		}
	}
}

func testForeignHandles(t *testing.T, s *suite) {
	for _, h := range []executor.Handle{
		{Executor: "another", JobID: "x", Data: json.RawMessage(`{}`)},
		{Executor: s.ex.Name(), JobID: "x", Data: json.RawMessage(`nonsense`)},
	} {
		if err := s.ex.Remove(s.ctx, h); err == nil {
			t.Errorf("Remove accepted the handle %+v", h)
		}
		if err := s.ex.Start(s.ctx, h, launch()); err == nil {
			t.Errorf("Start accepted the handle %+v", h)
		}
		if _, err := s.ex.Wait(s.ctx, h); err == nil {
			t.Errorf("Wait accepted the handle %+v", h)
		}
	}
}
