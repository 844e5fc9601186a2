package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/pooltoken"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		os.Exit(runnerMain(os.Args[2:]))
	}
	if os.Getenv(childVariable) != "" {
		os.Exit(agentMain())
	}
	goleak.VerifyTestMain(m)
}

type noMonitor struct{}

func (noMonitor) Activity()                                       {}
func (noMonitor) EngineState(error)                               {}
func (noMonitor) Polled(error)                                    {}
func (noMonitor) JobStarted()                                     {}
func (noMonitor) JobEnded(string, workflow.Reason, time.Duration) {}
func (noMonitor) JobLaunched(time.Duration)                       {}

type buffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	awaited []awaited
}

type awaited struct {
	text string
	seen chan struct{}
}

func (b *buffer) await(t *testing.T, text string) {
	b.mu.Lock()
	a := awaited{text, make(chan struct{})}
	b.awaited = append(b.awaited, a)
	b.tell()
	b.mu.Unlock()
	select {
	case <-a.seen:
	case <-time.After(time.Minute):
		t.Errorf("timed out waiting for %q in the log", text)
	}
}

// tell closes the channels of the waiters whose text the buffer contains. The caller must hold the
// lock.
func (b *buffer) tell() {
	b.awaited = slices.DeleteFunc(b.awaited, func(a awaited) bool {
		if !strings.Contains(b.b.String(), a.text) {
			return false
		}
		close(a.seen)
		return true
	})
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.b.Write(p)
	b.tell()
	return n, err
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

type harness struct {
	t        *testing.T
	server   *fakes.Server
	executor *fakes.Executor
	state    string
	log      *buffer
	output   *buffer
	options  func(*agent.Options)
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	w := &harness{t: t, server: fakes.NewServer(t), executor: fakes.New(), state: t.TempDir(), log: &buffer{}, output: &buffer{}}
	t.Cleanup(func() {
		w.executor.Shutdown()
		if t.Failed() {
			t.Logf("the agent's log:\n%s", w.log)
		}
	})
	return w
}

type running struct {
	*agent.Agent
	t        *testing.T
	server   *fakes.Server
	identity *instance.Identity
	abort    context.CancelFunc
	done     chan struct{}
	err      error
}

func (w *harness) start() *running {
	w.t.Helper()
	client, err := protocol.NewClient(protocol.Options{BaseURL: w.server.URL, Breaker: protocol.Breaker{Failures: 1000, Timeout: time.Second}})
	if err != nil {
		w.t.Fatal(err)
	}
	identity, err := instance.OpenIdentity(w.state)
	if err != nil {
		w.t.Fatal(err)
	}
	logger := logrus.New()
	logger.SetOutput(w.log)
	logger.SetLevel(logrus.DebugLevel)
	opts := agent.Options{
		Client:     client,
		Tokens:     pooltoken.Static(fakes.PoolToken),
		Executor:   w.executor.Reopen(),
		Identity:   identity,
		Rules:      rules{},
		Monitor:    noMonitor{},
		Log:        logrus.NewEntry(logger),
		Version:    "v1.2.3",
		ServiceURL: w.server.URL,
		Types:      workflow.Types(),
		Agent: config.Agent{
			MaxConcurrentJobs: 1, LogJobOutput: true,
			PollingInterval: 50 * time.Millisecond, RequestTimeout: 10 * time.Second, JobStatusLoopInterval: 50 * time.Millisecond,
		},
		Retry:        protocol.Retry{Wait: 5 * time.Millisecond, MaxWait: 50 * time.Millisecond},
		JobOutput:    agent.NewJobOutput(w.output),
		ForwardedEnv: map[string]string{"CLOUD_SECRET": "forwarded-secret"},
		JobRetry:     20 * time.Millisecond,
	}
	if w.options != nil {
		w.options(&opts)
	}
	a, err := agent.New(opts)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, abort := context.WithCancel(context.Background())
	r := &running{Agent: a, t: w.t, server: w.server, identity: identity, abort: abort, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = a.Run(ctx)
		identity.Close()
		client.Close()
	}()
	w.t.Cleanup(func() {
		abort()
		<-r.done
	})
	return r
}

func (r *running) wait() {
	r.t.Helper()
	select {
	case <-r.done:
		if r.err != nil {
			r.t.Fatal(r.err)
		}
	case <-time.After(time.Minute):
		r.t.Fatal("the agent does not exit")
	}
}

func (r *running) drain() {
	r.t.Helper()
	r.Drain()
	r.wait()
}

func (r *running) finish(job *fakes.ServerJob) {
	r.t.Helper()
	r.server.WaitForResult(job)
	r.drain()
}

func (w *harness) finish(job *fakes.ServerJob) *running {
	w.t.Helper()
	r := w.start()
	r.finish(job)
	return r
}

func (r *running) kill() {
	r.abort()
	<-r.done
}

// runner returns a runner that sends a heartbeat, a log line and a result with the given status.
func (w *harness) runner(status workflow.Status) func(context.Context, *fakes.Job) executor.Exit {
	return func(ctx context.Context, j *fakes.Job) executor.Exit {
		client, launch := w.runnerClient(j.Launch)
		defer client.Close()
		job := client.Job(launch.JobID, launch.JobToken)
		if _, err := job.Heartbeat(ctx, protocol.PhaseRunning); err != nil {
			return executor.Exit{Code: 1, Detail: err.Error()}
		}
		j.Write([]byte("the job's own line\n"))
		result := protocol.ResultRequest{Status: status, FinishedAt: time.Now(), Steps: []protocol.StepResult{}}
		if err := job.Result(ctx, result); err != nil {
			return executor.Exit{Code: 1, Detail: err.Error()}
		}
		return sealed(j, executor.Exit{Result: &protocol.Result{Status: status, Reported: true}})
	}
}

func sealed(j *fakes.Job, exit executor.Exit) executor.Exit {
	var launch protocol.Launch
	if err := json.Unmarshal(j.Launch, &launch); err != nil {
		panic(err) // the agent encoded this document
	}
	result := exit.Result.Sealed(launch.JobToken)
	exit.Result = &result
	return exit
}

func sealing(run func(context.Context, *fakes.Job) executor.Exit) func(context.Context, *fakes.Job) executor.Exit {
	return func(ctx context.Context, j *fakes.Job) executor.Exit { return sealed(j, run(ctx, j)) }
}

func (w *harness) runnerClient(document []byte) (*protocol.Client, protocol.Launch) {
	var launch protocol.Launch
	if err := json.Unmarshal(document, &launch); err != nil {
		w.t.Error(err)
	}
	client, err := protocol.NewClient(protocol.Options{BaseURL: launch.ServiceURL})
	if err != nil {
		w.t.Error(err)
	}
	return client, launch
}

func (w *harness) cleanState(r *running) {
	w.t.Helper()
	left, err := w.executor.List(context.Background(), r.identity.ID)
	if err != nil || len(left) > 0 {
		w.t.Errorf("the executor still has %d jobs (error: %v)", len(left), err)
	}
	files, err := os.ReadDir(r.identity.Dir + "/jobs")
	if err != nil || len(files) > 0 {
		w.t.Errorf("the journal still has %v (error: %v)", files, err)
	}
}
