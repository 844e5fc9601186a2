// Package agent is the life of the agent: it polls for jobs, claims them, launches them through
// an executor, watches them, reports how they ended, and resumes them after a restart.
//
// Stopping is not cancelling. [Agent.Stop] takes no more jobs and detaches from the running
// ones, whose runners continue to report; the next process with the same identity finds them in
// its journal. [Agent.Drain] takes no more jobs and waits for the running ones. Neither ends a
// job.
package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// Rules decide which jobs the host's administrator allows.
type Rules interface {
	AllowsImage(reference string) bool
	// AllowsRepository takes a [workflow.Repository.Name], or "" to ask whether any is allowed.
	AllowsRepository(name string) bool
}

// Monitor receives the agent's events, for health checks and metrics. Its methods must return
// at once.
type Monitor interface {
	// Activity is called whenever the server answered a poll or a status call.
	Activity()
	// EngineState is called when the executor becomes able (nil) or unable to run jobs, and
	// once at the start.
	EngineState(err error)
	Polled(err error)
	// JobStarted and JobEnded are called once each for every job. The status is a
	// [workflow.Status] or one that only the agent knows: see [status.Outcome]. took counts
	// from the claim.
	JobStarted()
	JobEnded(status string, reason workflow.Reason, took time.Duration)
	// JobLaunched is called when the runner of a job has started; took counts from the claim.
	JobLaunched(took time.Duration)
}

// Options configure an [Agent]. Those without a stated default are required.
type Options struct {
	Client   *protocol.Client
	Tokens   TokenSource // of the pool, for poll and status calls
	Executor executor.Executor
	Identity *instance.Identity // locked while the agent runs; the caller closes it
	Rules    Rules              // nil: everything is allowed
	Monitor  Monitor            // nil: none
	Log      *logrus.Entry

	Version    string
	UserAgent  string // also of runners
	ServiceURL string // where runners send logs, heartbeats and results
	CACertPEM  string
	BootID     string // of the host, "" if unknown: after a reboot, a job's files may be incomplete

	Types          []workflow.Type
	Slots          int // jobs at a time
	SingleRun      bool
	LogJobOutput   bool
	JobOutput      *JobOutput        // nil: the output of jobs goes to Log, line by line
	ImageOverride  string            // "": each job's own image
	ForwardedEnv   map[string]string // host variables for jobs; never sent to the server
	ProxyEnv       map[string]string // the host's proxy variables, for jobs whose place sets none
	PollInterval   time.Duration
	KeepInterval   bool // ignore Retry-After and do not request a long poll
	RequestTimeout time.Duration
	RetryWait      time.Duration // first pause after a failed poll; it doubles up to RetryMaxWait
	RetryMaxWait   time.Duration
	JobRetry       time.Duration // first pause after a failed call for a job; 0 = 1 s
	StatusInterval time.Duration
}

// Agent serves one pool until it is stopped.
type Agent struct {
	opts     Options
	log      *logrus.Entry
	session  string
	engine   *engineWatch
	journal  *instance.Journal
	liveness liveness
	board    *board
	// epochs says that a journal entry has an epoch: the server honours the number of free
	// slots.
	epochs bool

	// kick, with a buffer of one, wakes the poll loop after a change.
	kick chan struct{}

	stopping context.Context // ended by Stop: detach from all jobs
	stop     context.CancelFunc
	draining context.Context // ended by Stop and Drain: take no more jobs
	drain    context.CancelFunc

	mu      sync.Mutex
	active  map[string]bool // by journal name of each job: whether it holds a slot
	ran     []string        // the newest ended jobs without an epoch
	jobs    sync.WaitGroup  // goroutines of jobs
	loops   sync.WaitGroup  // goroutines of the agent itself; they end with stopping
	ranOne  chan struct{}
	oneOnly sync.Once
}

const (
	detachTime = 10 * time.Second
	// maxWithoutSlot is how many jobs may wait without a slot for a server to accept their
	// results. Each uses memory and disk, which a server that hands out jobs and refuses their
	// results must not exhaust.
	maxWithoutSlot = 32
	// maxRan is how many ended jobs the agent remembers, because a server with only the stock
	// calls cannot refuse the start of a job that a cache hands out again.
	maxRan     = 1000
	engineCall = 30 * time.Second
)

// New returns an agent. [Agent.Run] starts it.
func New(opts Options) (*Agent, error) {
	switch {
	case opts.Client == nil || opts.Tokens == nil || opts.Executor == nil || opts.Identity == nil || opts.Log == nil:
		return nil, errors.New("the agent needs a client, tokens, an executor, an identity and a log")
	case opts.Slots < 1:
		return nil, errors.New("the agent needs room for at least one job")
	case len(opts.Types) == 0:
		return nil, errors.New("the agent needs at least one workflow type to work on")
	}
	if opts.JobRetry <= 0 {
		opts.JobRetry = retryFirst
	}
	if opts.SingleRun {
		opts.Slots = 1
	}
	if opts.Monitor == nil {
		opts.Monitor = noMonitor{}
	}
	if opts.Rules == nil {
		opts.Rules = anything{}
	}
	journal, err := instance.OpenJournal(opts.Identity.Dir)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		opts:    opts,
		log:     opts.Log,
		session: uuid.NewString(),
		journal: journal,
		board:   newBoard(),
		kick:    make(chan struct{}, 1),
		active:  map[string]bool{},
		ranOne:  make(chan struct{}),
	}
	a.stopping, a.stop = context.WithCancel(context.Background())
	a.draining, a.drain = context.WithCancel(a.stopping)
	a.engine = &engineWatch{executor: opts.Executor, log: a.log, monitor: opts.Monitor, changed: a.wake}
	return a, nil
}

// Stop takes no more jobs and detaches from the running ones without ending them. It returns at
// once; [Agent.Run] returns when the jobs are detached.
func (a *Agent) Stop() { a.stop() }

// Drain takes no more jobs; [Agent.Run] returns when the last job has ended.
func (a *Agent) Drain() { a.drain() }

// Run works until Stop, Drain or the end of a single run, and then returns nil. If ctx ends,
// Run returns without waiting; the journal stays, so no job is lost.
func (a *Agent) Run(ctx context.Context) error {
	// Jobs have their own context, so that a stop can finish critical steps.
	hard, abort := context.WithCancel(ctx)
	defer abort()
	defer a.stop()
	unlink := context.AfterFunc(ctx, a.stop)
	defer unlink()

	defer a.loops.Wait()
	defer a.stop()
	if err := a.reattach(hard); err != nil {
		return err
	}
	// The first poll depends on this check.
	engine := a.engine.check(a.stopping)
	a.loops.Go(func() { a.engine.run(a.stopping, engine) })
	a.poll(hard)

	if a.stopping.Err() == nil && a.draining.Err() != nil {
		a.log.WithField("jobs", a.busy()).Info("taking no more work and waiting for the running jobs")
	}
	done := make(chan struct{})
	go func() {
		a.jobs.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-a.stopping.Done():
	}
	select {
	case <-done:
	case <-ctx.Done():
		abort()
		<-done
	case <-time.After(detachTime):
		a.log.Warn("some jobs are not detached in time; their journal stays, and the next start resumes them")
		abort()
		<-done
	}
	return nil
}

func (a *Agent) wake() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

func (a *Agent) busy() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, slot := range a.active {
		if slot {
			n++
		}
	}
	return n
}

// freeSlot frees the slot of a job of which nothing runs but whose result is not delivered,
// unless too many such jobs exist.
func (a *Agent) freeSlot(name string) {
	a.mu.Lock()
	without := 0
	for _, slot := range a.active {
		if !slot {
			without++
		}
	}
	if a.active[name] && without < maxWithoutSlot {
		a.active[name] = false
	}
	a.mu.Unlock()
	a.wake()
}

// launch gives the job a slot and a goroutine, and returns false if the agent already has it.
func (a *Agent) launch(j *job, phase status.Phase, run func()) bool {
	a.mu.Lock()
	if _, here := a.active[j.name]; here {
		a.mu.Unlock()
		return false
	}
	a.active[j.name] = true
	a.mu.Unlock()
	a.board.add(j, phase)
	a.opts.Monitor.JobStarted()
	a.jobs.Go(func() {
		run()
		a.mu.Lock()
		delete(a.active, j.name)
		a.mu.Unlock()
		a.wake()
	})
	return true
}

func (a *Agent) remember(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ran = append(a.ran, name)
	if len(a.ran) > maxRan {
		a.ran = slices.Delete(a.ran, 0, len(a.ran)-maxRan)
	}
}

func (a *Agent) hasRun(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.ran, name)
}

func (a *Agent) freeSlots() int { return max(a.opts.Slots-a.busy(), 0) }

func (a *Agent) jobLog(e instance.Entry) *logrus.Entry {
	return a.log.WithFields(jobFields(e.Claim.JobID, e.Claim.DeploymentID, e.Stack, e.Claim.PoolID))
}

func jobFields(jobID, deploymentID, stack, pool string) logrus.Fields {
	fields := logrus.Fields{"job_id": jobID}
	for name, value := range map[string]string{"deployment_id": deploymentID, "stack": stack, "pool": pool} {
		if value != "" {
			fields[name] = value
		}
	}
	return fields
}

type noMonitor struct{}

func (noMonitor) Activity()                                       {}
func (noMonitor) EngineState(error)                               {}
func (noMonitor) Polled(error)                                    {}
func (noMonitor) JobStarted()                                     {}
func (noMonitor) JobEnded(string, workflow.Reason, time.Duration) {}
func (noMonitor) JobLaunched(time.Duration)                       {}

type anything struct{}

func (anything) AllowsImage(string) bool      { return true }
func (anything) AllowsRepository(string) bool { return true }

// TokenSource provides the token of the agent's pool. It is safe for concurrent use.
type TokenSource interface {
	// Token returns a token that is not known to be bad. It may wait for one, and fails only
	// when ctx ends.
	Token(ctx context.Context) (string, error)
	// Refused records that the server answered 401 to the token, and reports whether the source
	// can get another one, for which [TokenSource.Token] then waits.
	Refused(token string) bool
	// Values returns every token that is or may still be valid, and those exchanged for them:
	// logs must mask them all.
	Values() []string
}
