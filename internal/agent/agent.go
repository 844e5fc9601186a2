// Package agent implements the agent: it polls for jobs, claims them, starts them through an
// executor, watches them, reports their results, and resumes them after a restart.
//
// Stopping does not cancel jobs. [Agent.Stop] accepts no more jobs and detaches from the running
// ones, whose runners continue to report; the next process with the same identity finds the jobs in
// its journal. [Agent.Drain] accepts no more jobs and waits for the running ones.
package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/mirror"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/agent/workspace"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// Rules restrict the jobs that may run on the host. The host's administrator sets them.
type Rules interface {
	AllowsImage(reference string) bool
	// RepositoryPatterns returns the patterns of the permitted repositories, or nil if every
	// repository is permitted.
	RepositoryPatterns() []string
}

// Monitor receives the agent's events, for health checks and metrics. Its methods must not block.
type Monitor interface {
	// Activity is called after each server response to a poll or a status call.
	Activity()
	// EngineState is called at the start, and whenever the executor becomes able (nil) or unable to
	// run jobs.
	EngineState(err error)
	Polled(err error)
	// JobStarted and JobEnded are each called once per job. status is a [workflow.Status] or an
	// agent status: see [status.Outcome]. took is the time since the job was claimed.
	JobStarted()
	JobEnded(status string, reason workflow.Reason, took time.Duration)
	// JobLaunched is called after a job's runner has started. took is the time since the job was
	// claimed.
	JobLaunched(took time.Duration)
}

// Options configure an [Agent]. Fields without a stated default are required.
type Options struct {
	Client   *protocol.Client
	Tokens   TokenSource // for poll and status calls
	Executor executor.Executor
	Identity *instance.Identity // the caller locks it before Run and closes it afterwards
	Rules    Rules
	Monitor  Monitor
	Log      *logrus.Entry

	Version    string
	UserAgent  string // the User-Agent header of the agent and its runners
	ServiceURL string // the URL to which the runners send logs, heartbeats and results
	// ServerAddress, if set, is the host:port at which jobs reach the server of a ServiceURL on
	// loopback.
	ServerAddress string
	CACertPEM     string
	BootID        string // the host's boot ID, or "" if unknown; a job's files can be incomplete after a reboot

	config.Agent
	Keeper       *workspace.Keeper // bounds the workspaces; nil if the executor cannot
	Mirrors      config.Mirrors    // for jobs that do not name others
	Types        []workflow.Type
	JobOutput    *JobOutput                      // if nil, job output goes to Log, line by line
	ForwardedEnv map[string]string               // host variables for jobs; never sent to the server
	ProxyEnv     map[string]string               // the host's proxy variables, for jobs that set none
	Retry        protocol.Retry                  // pauses after a failed poll
	JobRetry     time.Duration                   // first pause after a failed call for a job; 0 means 1 second
	Pulumi       *mirror.Mirror                  // brings the versions of pulumi that jobs select; nil: the agent has none
	FreeSpace    func(dir string) (int64, error) // free bytes on the disk of a directory; nil: ask the system
	OutputWait   time.Duration                   // how long the copy of a job's output may continue after its exit; 0 means 30 seconds
}

// Agent serves one pool until it is stopped.
type Agent struct {
	opts     Options
	log      *logrus.Entry
	session  string
	engine   *condition
	disk     *condition
	journal  *instance.Journal
	liveness liveness
	board    *board
	// epochs is true if a journal entry has an epoch, which proves that the server respects the
	// number of free slots.
	epochs bool

	// kick has a buffer of one and wakes the poll loop after a change.
	kick chan struct{}

	// Canceling one of these contexts cancels all that follow it. Stop sets the cause errStopping.
	aborting context.Context // canceled with Run's context, or when a stop exceeds detachTime
	abort    context.CancelCauseFunc
	stopping context.Context // canceled by Stop: detach from all jobs
	stop     context.CancelCauseFunc
	draining context.Context // canceled by Drain: accept no more jobs
	drain    context.CancelFunc

	largeMasks chan struct{} // held by the job that has a large set of secrets

	mu      sync.Mutex
	active  map[string]bool // maps a job's journal name to whether the job holds a slot
	ran     []string        // the most recently finished jobs without an epoch
	jobs    sync.WaitGroup  // job goroutines
	loops   sync.WaitGroup  // the agent's own goroutines; they return after stopping is canceled
	ranOne  chan struct{}
	oneOnly sync.Once
}

const (
	detachTime = 10 * time.Second
	// maxWithoutSlot is the maximum number of jobs that wait without a slot until the server
	// accepts their results. Each such job uses memory and disk space. The limit protects the agent
	// from a server that assigns jobs and rejects their results.
	maxWithoutSlot = 32
	// maxRan is the number of finished jobs that the agent remembers. A proxy's cache can return a
	// finished job again, and a server with only the stock calls cannot reject the second start.
	maxRan     = 1000
	engineCall = 30 * time.Second
)

// New returns an agent. The agent does nothing until [Agent.Run] is called.
func New(opts Options) (*Agent, error) {
	if opts.JobRetry <= 0 {
		opts.JobRetry = retryFirst
	}
	if opts.FreeSpace == nil {
		opts.FreeSpace = executor.FreeSpace
	}
	if opts.OutputWait <= 0 {
		opts.OutputWait = defaultOutputWait
	}
	if opts.SingleRun {
		opts.MaxConcurrentJobs = 1
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

		largeMasks: make(chan struct{}, 1),
	}
	a.aborting, a.abort = context.WithCancelCause(context.Background())
	a.stopping, a.stop = context.WithCancelCause(a.aborting)
	a.draining, a.drain = context.WithCancel(a.stopping)
	a.engine = &condition{
		test: opts.Executor.Check, pause: 30 * time.Second, log: a.log,
		lost: "the executor cannot run jobs; the agent claims no jobs until it can",
		up:   "the executor can run jobs again",
		changed: func(err error) {
			opts.Monitor.EngineState(err)
			a.wake()
		},
	}
	a.disk = &condition{
		test: a.checkDisk, pause: 5 * time.Second, log: a.log, known: true,
		lost:    "the agent claims no jobs until the disk has space",
		up:      "the disk has space for jobs again",
		changed: func(error) { a.wake() },
	}
	return a, nil
}

// Stop makes the agent accept no more jobs and detach from the running jobs, which continue. It
// returns at once. [Agent.Run] returns when the agent has detached from all jobs.
func (a *Agent) Stop() { a.stop(errStopping) }

// Drain makes the agent accept no more jobs. [Agent.Run] returns when the last job has finished.
func (a *Agent) Drain() { a.drain() }

// Run polls for jobs and runs them. It returns nil after Stop, after Drain, or when the job of a
// single run has finished. If ctx is canceled, Run returns without waiting for jobs. No job is
// lost, because the journal remains.
func (a *Agent) Run(ctx context.Context) error {
	abort := func() { a.abort(errStopping) }
	unlink := context.AfterFunc(ctx, abort)
	defer unlink()
	defer a.loops.Wait()
	defer abort()
	if err := a.reattach(); err != nil {
		return err
	}
	// The first poll requires the result of this check.
	engine := a.engine.check(a.stopping)
	a.loops.Go(func() { a.engine.run(a.stopping, engine) })
	disk := a.disk.check(a.stopping)
	a.loops.Go(func() { a.disk.run(a.stopping, disk) })
	if a.opts.Keeper != nil {
		a.loops.Go(func() { a.opts.Keeper.Run(a.stopping) })
	}
	a.poll()

	if a.stopping.Err() == nil {
		a.log.WithField("jobs", a.busy()).Info("accepting no more jobs; waiting for the running jobs to finish")
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
	case <-a.aborting.Done():
	case <-time.After(detachTime):
		a.log.Warn("detaching from some jobs timed out; the next start resumes them from the journal")
		abort()
	}
	<-done
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

// freeSlot frees the slot of a job that has exited but whose result is not yet delivered, unless
// maxWithoutSlot jobs already wait without a slot.
func (a *Agent) freeSlot(name string) {
	a.mu.Lock()
	without := 0
	for _, slot := range a.active {
		if !slot {
			without++
		}
	}
	if a.active[name] && without < maxWithoutSlot && !a.opts.SingleRun {
		a.active[name] = false
	}
	a.mu.Unlock()
	a.wake()
}

// launch assigns a slot and a goroutine to the job. It returns false if the agent already handles
// the job.
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

func (a *Agent) freeSlots() int { return max(a.opts.MaxConcurrentJobs-a.busy(), 0) }

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

// TokenSource provides the tokens of the agent's pool. It is safe for concurrent use.
type TokenSource interface {
	// Token returns a token that the server has not rejected. It can wait for a new token. It fails
	// only when ctx is canceled.
	Token(ctx context.Context) (string, error)
	// Refused records that the server rejected the token with status 401. It reports whether the
	// source can provide another token; [TokenSource.Token] then waits for that token.
	Refused(token string) bool
	// Values returns every token that may still be valid, including the OIDC tokens that were
	// exchanged for pool tokens. Logs must mask all of them.
	Values() []string
}
