package executortest

import (
	"io"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/executortest/program"
)

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
	s.launch(h, nil)
	s.wantCode(h, program.ExitNoLaunch)
}

func testOutput(t *testing.T, s *suite) {
	const lines, last = 30000, "to standard error\n"
	end := program.Action{CountInterrupts: 200 * time.Millisecond}
	if s.StopDiscards {
		// containerd can lose the end of the output of a program that exits at once.
		end = program.Action{Pause: 3 * time.Second}
	}
	h := s.start(program.Action{Lines: lines}, program.Action{PrintErr: last}, end)
	s.until(h, last)
	if !s.StopDiscards {
		if err := s.ex.Stop(s.ctx, h, executor.StopInterrupt); err != nil {
			t.Fatalf("Stop: %v", err)
		}
	}
	// The order between the two streams is not guaranteed.
	check := func(when, got string) {
		t.Helper()
		stdout, rest, found := strings.Cut(got, last)
		if !found || stdout+rest != program.Lines(lines) {
			t.Errorf("output %s has %d bytes, want %d", when, len(got), len(program.Lines(lines))+len(last))
		}
	}
	check("followed", s.output(h))
	s.wait(h)
	check("after the exit", s.output(h))
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
		t.Error("Close did not unblock a concurrent Read")
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
			t.Errorf("Stop of a finished job: %v", err)
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
		t.Errorf("a killed job exited with %+v", exit)
	}
}
