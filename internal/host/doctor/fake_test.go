package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	stdlog "log"
	"strings"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/docker"
	"workflowagent/internal/agent/executor/kubernetes"
	"workflowagent/internal/reach"
	"workflowagent/internal/workflow"
)

var discardLog = stdlog.New(io.Discard, "", 0)

// fakeExecutor is an executor whose job reports or exits as configured.
type fakeExecutor struct {
	executor.Executor // nil: unimplemented methods panic
	report            *reach.Report
	exit              executor.Exit
	output            string
	started           chan struct{} // if not nil, the job never exits

	prepareErr, startErr, removeErr error

	left              []executor.Handle // leftovers of an earlier doctor
	swept             []string
	owner             string
	launch            []byte
	prepared, removed bool
}

func (p *fakeExecutor) Prepare(_ context.Context, spec executor.Spec, progress func(string)) (executor.Handle, error) {
	progress("preparing")
	p.owner = spec.Owner
	p.prepared = p.prepareErr == nil
	return executor.Handle{JobID: spec.JobID}, p.prepareErr
}

func (p *fakeExecutor) Start(_ context.Context, _ executor.Handle, launch []byte) error {
	p.launch = launch
	return p.startErr
}

func (p *fakeExecutor) Wait(ctx context.Context, _ executor.Handle) (executor.Exit, error) {
	if p.started != nil {
		close(p.started)
		<-ctx.Done()
		return executor.Exit{}, ctx.Err()
	}
	return p.exit, nil
}

func (p *fakeExecutor) Output(context.Context, executor.Handle) (io.ReadCloser, error) {
	text := p.output
	if p.report != nil {
		line, err := json.Marshal(p.report)
		if err != nil {
			return nil, err
		}
		text = "some noise\n" + string(line) + "\n"
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

func (p *fakeExecutor) List(context.Context, string) ([]executor.Handle, error) { return p.left, nil }

func (p *fakeExecutor) Remove(ctx context.Context, h executor.Handle) error {
	if !strings.HasPrefix(h.JobID, "doctor-") {
		p.swept = append(p.swept, h.JobID)
		return nil
	}
	if ctx.Err() == nil {
		p.removed = true
	}
	return p.removeErr
}

// lateExecutor is an executor whose job starts later.
type lateExecutor struct {
	*fakeExecutor
	awaitErr error
	awaited  bool
}

func (p *lateExecutor) AwaitStart(_ context.Context, _ executor.Handle, progress func(string)) error {
	progress("pulling")
	p.awaited = true
	return p.awaitErr
}

// cluster is a cluster with configured answers.
type cluster struct {
	facts      kubernetes.Facts
	err        error
	verdict    kubernetes.Admission
	verdictErr error
}

func (c *cluster) Examine(context.Context, string) (kubernetes.Facts, error) { return c.facts, c.err }

func (c *cluster) TryPod(_ context.Context, spec executor.Spec) (kubernetes.Admission, error) {
	if !workflow.IsScope(spec.Workspace) {
		return kubernetes.Admission{}, errors.New("the pod has no workspace, whose volume the cluster can refuse")
	}
	return c.verdict, c.verdictErr
}

type pods struct {
	origin string
	notes  []string
}

func (pods) Namespace() string { return "jobs" }
func (p pods) Origin() string  { return p.origin }
func (p pods) Notes() []string { return p.notes }

type engine struct {
	facts    docker.Facts
	err      error
	arch     string
	imageErr error
}

func (e *engine) Examine(context.Context) (docker.Facts, error) { return e.facts, e.err }

func (e *engine) EnsureImage(context.Context, string, func(string)) (string, error) {
	return e.arch, e.imageErr
}

func (e *engine) RemoveRunners(context.Context, string) error { return nil }
