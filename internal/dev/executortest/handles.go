package executortest

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/executortest/program"
	"workflowagent/internal/dev/must"
)

func testReattach(t *testing.T, s *suite) {
	h := s.start(program.Action{Print: "ready\n"}, program.Action{CountInterrupts: 500 * time.Millisecond})
	s.until(h, "ready\n")
	data := must.Get(json.Marshal(h))(t)
	var again executor.Handle
	must.OK(t, json.Unmarshal(data, &again))
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
	if s.StopDiscards {
		return
	}
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
		t.Errorf("Wait for a removed job: %+v, want a lost job", exit)
	}
}

func testContext(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(s.ctx)
	h := s.prepare(s.spec())
	if err := s.ex.Start(ctx, h, launch(program.Action{Print: "ready\n"}, program.Action{CountInterrupts: 100 * time.Millisecond})); err != nil {
		t.Fatalf("Start: %v", err)
	}
	s.awaitStart(h)
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
			t.Errorf("Wait with a canceled context: %v", err)
		}
	case <-s.ctx.Done():
		t.Fatal("Wait did not return after its context was canceled")
	}
	if err := s.ex.Stop(s.ctx, h, executor.StopInterrupt); err != nil {
		t.Errorf("Stop: %v", err)
	}
	s.wantCode(h, program.ExitSignals+1) // the job kept running
}

func testNotStarted(t *testing.T, s *suite) {
	h := s.prepare(s.spec())
	if launcher, ok := s.ex.(executor.Launcher); ok {
		if err := launcher.AwaitStart(s.ctx, h, func(string) {}); !errors.Is(err, executor.ErrNotStarted) {
			t.Errorf("AwaitStart: %v", err)
		}
	}
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
		t.Errorf("leftovers: %q", got)
	}
	if s.Unprepared {
		return
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
	s.awaitStart(h)
	s.wantCode(h, 0)
	if err := s.ex.Start(s.ctx, h, launch(program.Action{Print: "ran\n"})); !errors.Is(err, executor.ErrStarted) {
		t.Errorf("Start of a finished job: %v, want %v", err, executor.ErrStarted)
	}
	if got := s.output(h); got != "ran\n" {
		t.Errorf("output %q, want one line", got)
	}
}

// testStartBreaks checks the errors of Start. Only an [executor.Error] means that the job does not
// run. After any other error, a second Start reports whether the job runs.
func testStartBreaks(t *testing.T, s *suite) {
	var failure *executor.Error
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	h := s.prepare(s.spec())
	if err := s.ex.Start(ended, h, launch(code(3))); err == nil || errors.As(err, &failure) {
		t.Errorf("Start with a canceled context: %v, want an error other than an executor.Error", err)
	}
	if err := s.ex.Start(s.ctx, h, launch(code(4))); err != nil {
		t.Errorf("Start after a Start with a canceled context: %v", err)
	}
	s.wantCode(h, 4)
	if s.Broken == nil {
		return
	}
	h = s.prepare(s.spec())
	broken := s.Broken(t)
	if err := broken.Start(s.ctx, h, launch(program.Action{Print: "ran\n"}, code(5))); err == nil || errors.As(err, &failure) {
		t.Errorf("Start over a connection that broke: %v, want an error other than an executor.Error", err)
	}
	if err := s.ex.Start(s.ctx, h, launch(program.Action{Print: "ran\n"}, code(6))); !errors.Is(err, executor.ErrStarted) {
		t.Errorf("Start after the connection broke: %v, want %v", err, executor.ErrStarted)
	}
	s.wantCode(h, 5)
	if got := s.output(h); got != "ran\n" {
		t.Errorf("output %q, want one line", got)
	}
}

func testPreparedOnce(t *testing.T, s *suite) {
	spec := s.spec()
	h := s.prepare(spec)
	if s.Unprepared {
		s.launch(h, launch(code(5)))
	}
	if _, err := s.ex.Prepare(s.ctx, spec, func(string) {}); err == nil {
		t.Fatal("the same job and epoch could be prepared twice")
	}
	if !s.Unprepared {
		s.launch(h, launch(code(5)))
	}
	s.wantCode(h, 5)
	spec.Epoch++
	s.prepare(spec)
}
