package fakes_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/executortest"
	"workflowagent/internal/dev/executortest/program"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/dev/must"
)

func runProgram(ctx context.Context, j *fakes.Job) executor.Exit {
	code := program.Run(program.Host{
		Stdin:      bytes.NewReader(j.Launch),
		Stdout:     j,
		Stderr:     j,
		Interrupts: j.Interrupts,
		Killed:     ctx.Done(),
		WriteFile: func(name string, data []byte) error {
			j.WriteFile(name, data)
			return nil
		},
		Environ:    os.Environ,
		StartChild: func() error { return nil },
	})
	return executor.Exit{Code: code}
}

func TestConformance(t *testing.T) {
	place := fakes.New()
	place.OnRun(runProgram)
	place.OnPrepare(func(_ context.Context, spec executor.Spec, _ func(string)) error {
		if spec.OS == "plan9" {
			return &executor.Error{Reason: "launch", Message: "no such place"}
		}
		return nil
	})
	t.Cleanup(place.Shutdown)
	objects := func(t *testing.T, spec executor.Spec) []string {
		all := must.Get(place.List(t.Context(), spec.Owner))(t)
		var out []string
		for _, h := range all {
			if h.JobID == spec.JobID {
				out = append(out, h.JobID)
			}
		}
		return out
	}
	executortest.Run(t, executortest.Place{
		Open:    func(*testing.T) executor.Executor { return place.Reopen() },
		Spec:    func(*testing.T) executor.Spec { return executor.Spec{} },
		BadSpec: func(*testing.T) executor.Spec { return executor.Spec{OS: "plan9"} },
		Visible: func(_ *testing.T, h executor.Handle) string { return string(h.Data) },
		Leftovers: func(t *testing.T, h executor.Handle) []string {
			return objects(t, place.Record(h.JobID).Spec)
		},
		LeftoversOf: objects,
		Broken: func(t *testing.T) executor.Executor {
			return brokenExecutor{place.Reopen()}
		},
		InProcess: true,
	})
}

// brokenExecutor starts jobs but reports a broken connection.
type brokenExecutor struct{ *fakes.Executor }

// Start starts the job and returns a connection error.
func (e brokenExecutor) Start(ctx context.Context, h executor.Handle, launch []byte) error {
	return errors.Join(e.Executor.Start(ctx, h, launch), errors.New("the connection broke"))
}

func TestScripts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := fakes.New()
		defer e.Shutdown()
		spec := executor.Spec{JobID: "j", Epoch: 1, Owner: "o"}
		h := must.Get(e.Prepare(t.Context(), spec, func(string) {}))(t)
		e.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
			time.Sleep(time.Hour)
			return fakes.UntilInterrupt(executor.Exit{Code: 137, OOMKilled: true})(ctx, j)
		})
		refusal := errors.New("no")
		e.OnStart(func(context.Context, executor.Handle) error { return refusal })
		if err := e.Start(t.Context(), h, []byte("a")); !errors.Is(err, refusal) {
			t.Errorf("Start: %v", err)
		}
		e.OnStart(nil)
		begin := time.Now()
		must.OK(t, e.Start(t.Context(), h, []byte("b")))
		must.OK(t, e.Stop(t.Context(), h, executor.StopInterrupt))
		exit, err := e.Wait(t.Context(), h)
		if err != nil || !exit.OOMKilled || exit.Success() || time.Since(begin) != time.Hour {
			t.Errorf("Wait after %v: %+v, %v", time.Since(begin), exit, err)
		}
		r := e.Record("j")
		if r.Prepares != 1 || r.Starts != 2 || len(r.Launches) != 1 || string(r.Launches[0]) != "b" || r.Interrupts != 1 || r.Kills != 0 {
			t.Errorf("the record is %+v", r)
		}
		down := errors.New("down")
		e.SetCheck(down)
		if err := e.Check(t.Context()); !errors.Is(err, down) {
			t.Errorf("Check: %v", err)
		}
	})
}
