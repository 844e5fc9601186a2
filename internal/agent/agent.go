// Package agent is the life of the agent: it asks for work, claims it, has an
// executor launch it, watches it, reports how it ended, and finds its jobs again
// after a restart.
//
// Stopping is not cancelling. [Agent.Stop] takes no more work and detaches from
// the jobs, whose runners continue to report by themselves; the next process with the
// same identity finds them in its journal. [Agent.Drain] takes no more work and
// waits for the jobs. Neither ends a job.
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

// Rules decide which jobs the host's administrator lets in.
type Rules interface {
	AllowsImage(reference string) bool
	// AllowsRepository takes a [workflow.Repository.Name], or "" to ask whether any is allowed.
	AllowsRepository(name string) bool
}

// Monitor is told what the agent is doing, for health checks and metrics. Its
// methods must return at once.
type Monitor interface {
	// Activity is called whenever the server answered a poll or a status call.
	Activity()
	// EngineState is called when the executor becomes able (nil) or unable to run
	// jobs, and once at the start.
	EngineState(err error)
	// Polled is called after each poll with its outcome.
	Polled(err error)
	// JobStarted and JobEnded are called once each for every job. The status is one
	// of [workflow.Status], or of those that only the agent knows: see
	// [status.Outcome]. took counts from the claim.
	JobStarted()
	JobEnded(status string, reason workflow.Reason, took time.Duration)
	// JobLaunched is called when the runner of a job was started, with the time
	// since the claim.
	JobLaunched(took time.Duration)
}

// Options are what an agent needs. Those without a stated default are required.
type Options struct {
	Client   *protocol.Client
	Tokens   TokenSource // of the pool, for poll and status calls
	Executor executor.Executor
	Identity *instance.Identity // locked for as long as the agent runs; the caller closes it
	Rules    Rules              // nil: everything is allowed
	Monitor  Monitor            // nil: none
	Log      *logrus.Entry

	Version    string
	UserAgent  string // what runners send, too
	ServiceURL string // where runners send their log, heartbeats and results
	CACertPEM  string
	BootID     string // of the host, "" if unknown: what another start of it has left may be incomplete

	Types          []workflow.Type
	Slots          int // jobs at a time
	SingleRun      bool
	LogJobOutput   bool
	JobOutput      *JobOutput        // nil: the output of jobs goes to Log, line by line
	ImageOverride  string            // "": each job's own image
	ForwardedEnv   map[string]string // host variables for jobs; never sent to the server
	ProxyEnv       map[string]string // the host's proxy variables, for jobs whose place sets none
	PollInterval   time.Duration
	KeepInterval   bool // ignore Retry-After and do not ask for a long poll
	RequestTimeout time.Duration
	RetryWait      time.Duration // first pause after a failed poll; it doubles up to RetryMaxWait
	RetryMaxWait   time.Duration
	JobRetry       time.Duration // first pause after a call for a job that failed; 0 = 1 s
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
	// epochs says that a job of the journal has one, which only servers give that
	// honour the number of free slots.
	epochs bool

	// kick has room for one: something changed that the poll loop should act on.
	kick chan struct{}

	stopping context.Context // ended by Stop: detach from everything
	stop     context.CancelFunc
	draining context.Context // ended by Stop and Drain: no more work
	drain    context.CancelFunc

	mu     sync.Mutex
	active map[string]bool // by journal name of each job: whether it holds a slot
	ran    []string        // the newest jobs without an epoch that have ended here
	jobs   sync.WaitGroup  // goroutines of jobs
	loops  sync.WaitGroup  // goroutines of the agent itself; they end with stopping
	// ranOne is closed after the result of the one job of a single run.
	ranOne  chan struct{}
	oneOnly sync.Once
}

// Bounds of the agent's own waits.
const (
	// detachTime is how long Stop waits until jobs are detached.
	detachTime = 10 * time.Second
	// maxWithoutSlot is how many jobs may wait without a slot for a server to take
	// their results. Each uses memory and disk, and a server that hands out jobs and
	// refuses their results must not exhaust them.
	maxWithoutSlot = 32
	// maxRan is how many ended jobs are remembered, because a server with only the stock
	// calls has no way to refuse leave to one that a cache hands out again.
	maxRan = 1000
	// engineCall bounds short calls of the executor.
	engineCall = 30 * time.Second
)

// New returns an agent that has not done anything yet.
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
		opts.Monitor = nobody{}
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

// Stop takes no more work and detaches from the running jobs without ending them.
// It returns at once; [Agent.Run] returns when that is done.
func (a *Agent) Stop() { a.stop() }

// Drain takes no more work; [Agent.Run] returns when the last job has ended.
func (a *Agent) Drain() { a.drain() }

// Run works until Stop, Drain or the end of a single run, and returns nil then.
// Ending ctx is the hard way out: Run returns without waiting for anything that
// takes time, which loses no job either, as its journal stays.
func (a *Agent) Run(ctx context.Context) error {
	// Jobs live in a context of their own, so that a stop can still finish what
	// must not be left half done.
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
	// The first check comes before the first poll, which depends on it.
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

// wake makes the poll loop check again.
func (a *Agent) wake() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// busy returns how many jobs hold a slot.
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

// freeSlot makes room for another job while one of which nothing runs any more is
// still being reported, unless there are too many of those.
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

// launch gives the job a slot and a goroutine. It returns false if the agent is
// at that job already.
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

// remember notes that a job without an epoch has ended here.
func (a *Agent) remember(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ran = append(a.ran, name)
	if len(a.ran) > maxRan {
		a.ran = slices.Delete(a.ran, 0, len(a.ran)-maxRan)
	}
}

// hasRun reports whether a job without an epoch has ended here not long ago.
func (a *Agent) hasRun(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.ran, name)
}

// freeSlots returns how many more jobs there is room for.
func (a *Agent) freeSlots() int { return max(a.opts.Slots-a.busy(), 0) }

// jobLog returns the log with the fields of one job, as far as they are known.
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

// nobody is the monitor of an agent without one.
type nobody struct{}

func (nobody) Activity()                                       {}
func (nobody) EngineState(error)                               {}
func (nobody) Polled(error)                                    {}
func (nobody) JobStarted()                                     {}
func (nobody) JobEnded(string, workflow.Reason, time.Duration) {}
func (nobody) JobLaunched(time.Duration)                       {}

// anything are the rules of an agent without any.
type anything struct{}

func (anything) AllowsImage(string) bool      { return true }
func (anything) AllowsRepository(string) bool { return true }

// TokenSource has the token of the agent's pool. Several goroutines use it.
type TokenSource interface {
	// Token returns a token that is good as far as is known. It may wait for one,
	// and fails only when ctx ends.
	Token(ctx context.Context) (string, error)
	// Refused tells that the server answered 401 to the token, and reports whether
	// another one is to be had: then [TokenSource.Token] waits for that.
	Refused(token string) bool
	// Values returns every token that is, or may still be, good, and those they were
	// got for: none of them may show in a log.
	Values() []string
}
