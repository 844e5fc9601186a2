// Package evaluator runs the program workflow-esc, which evaluates environments. Each request gets its own process, which
// starts ahead of the request. A process can have been taken over by what it evaluates, so this package bounds its messages
// and its lifetime, and leaves every decision about rights to the caller.
package evaluator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/memlimit"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
)

const (
	// Static is the time limit of a request that opens no provider.
	Static = 10 * time.Second
	// WithProviders is the time limit of all other requests.
	WithProviders = 60 * time.Second
	// grace is the time after the limit for the program's own error.
	grace = time.Second
	// startLimit is the time limit of the start of a process, on a loaded machine.
	startLimit = 30 * time.Second
	// resultMemory is what the lines and the values of a process need of the request's memory, in bytes.
	resultMemory = 32 << 20
	// idle is the time without requests after which no process waits for one.
	idle = 5 * time.Minute
	// failed is the time for which a failed start is remembered, so that a broken installation does not start a process for each
	// request.
	failed = 5 * time.Second
)

// Host answers what a process asks during one request. An error ends the request; what concerns the definition is an answer
// with an error.
type Host interface {
	Environment(ctx context.Context, ask wire.EnvironmentAsk) (wire.Answer, error)
	Encrypt(ctx context.Context, ask wire.EncryptAsk) (wire.Answer, error)
	Decrypt(ctx context.Context, ask wire.DecryptAsk) (wire.Answer, error)
	Provider(ctx context.Context, ask wire.ProviderAsk) (wire.Answer, error)
	Open(ctx context.Context, ask wire.OpenAsk) (wire.Answer, error)
}

// Options are the options of [New].
type Options struct {
	Log *logrus.Entry
	// Program is the path of workflow-esc.
	Program string
	// Concurrent is the number of requests at the same time (default: by the number of processors).
	Concurrent int
	// Static and WithProviders are the time limits (default: the constants).
	Static, WithProviders time.Duration
	// Failed is the time for which no process starts after one that failed (default: the constant).
	Failed time.Duration
}

// Pool runs requests. Its methods may be called concurrently.
type Pool struct {
	opts Options
	gate *gate

	mu      sync.Mutex
	spare   chan *process // the next process, which may still be starting; nil for none
	retire  *time.Timer
	failure error     // of the last start, or nil
	retry   time.Time // when a process may start again after the failure
	closed  bool
	warned  sync.Once
	starts  sync.WaitGroup
	running sync.WaitGroup
}

// New returns a pool. It starts no process before the first request.
func New(o Options) *Pool {
	if o.Concurrent <= 0 {
		o.Concurrent = min(8, 2*max(2, runtime.GOMAXPROCS(0)))
	}
	if o.Static <= 0 {
		o.Static = Static
	}
	if o.WithProviders <= 0 {
		o.WithProviders = WithProviders
	}
	if o.Failed <= 0 {
		o.Failed = failed
	}
	return &Pool{opts: o, gate: newGate(o.Concurrent)}
}

// Available reports whether the program exists.
func (p *Pool) Available() bool {
	info, err := os.Stat(p.opts.Program)
	return err == nil && info.Mode().IsRegular()
}

// errMissing is the error for a server without the program.
func errMissing(err error) error {
	return fault.Wrap(fault.KindUnavailable, err, "this server cannot evaluate environments, because its program workflow-esc is missing or does not run; "+
		"its operator must install it next to workflow-server")
}

// Run evaluates for an owner. A result without an error can still have diagnostics that are errors.
func (p *Pool) Run(ctx context.Context, owner Owner, req wire.Request, host Host) (*wire.Result, error) {
	if len(req.Definition) > wire.MaxDefinition {
		return nil, fault.New(fault.KindTooLarge, "the definition of the environment is larger than %d KiB", wire.MaxDefinition>>10)
	}
	leave, err := p.gate.enter(ctx, owner)
	if err != nil {
		return nil, err
	}
	defer leave()
	share := budget.Of(ctx)
	if err := share.Take(ctx, resultMemory); err != nil {
		return nil, err
	}
	defer share.Give(resultMemory)
	if !p.begin() {
		return nil, fault.New(fault.KindUnavailable, "the server is stopping; try again")
	}
	defer p.running.Done()
	defer memlimit.Reserve(wire.Memory)()
	result, err := p.attempt(ctx, req, host)
	if errors.Is(err, errUnsent) { // the kernel ends processes that wait when it needs memory
		result, err = p.attempt(ctx, req, host)
	}
	return result, err
}

// attempt lets a process serve a request.
func (p *Pool) attempt(ctx context.Context, req wire.Request, host Host) (*wire.Result, error) {
	proc, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	defer proc.end()
	return p.serve(ctx, proc, req, host)
}

// begin counts a request, unless the pool is closed.
func (p *Pool) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.running.Add(1)
	}
	return !p.closed
}

// take returns a process that is ready, and starts the next one.
func (p *Pool) take(ctx context.Context) (*process, error) {
	for {
		mine, waited, err := p.next()
		if err != nil {
			return nil, err
		}
		select {
		case proc := <-mine:
			if proc.err == nil {
				p.checkSandbox(proc)
				return proc, nil
			}
			proc.end()
			if waited { // its start can have failed a while ago
				p.dismiss()
				continue
			}
			p.fail(proc.err)
			return nil, errMissing(proc.err)
		case <-ctx.Done():
			p.starts.Go(func() { (<-mine).end() })
			return nil, context.Cause(ctx)
		}
	}
}

// next returns the process for a request, and starts the one for the following request. waited reports whether the process was
// started for an earlier request.
func (p *Pool) next() (mine chan *process, waited bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil && time.Now().Before(p.retry) {
		return nil, false, errMissing(p.failure)
	}
	p.failure = nil
	mine, waited = p.spare, p.spare != nil
	if !waited {
		mine = p.start()
	}
	p.spare = p.start()
	if p.retire != nil {
		p.retire.Stop()
	}
	p.retire = time.AfterFunc(idle, p.dismiss)
	return mine, waited, nil
}

// fail remembers that a process could not start, and ends the one that waits, which would fail, too.
func (p *Pool) fail(err error) {
	p.mu.Lock()
	p.failure, p.retry = err, time.Now().Add(p.opts.Failed)
	p.mu.Unlock()
	p.dismiss()
}

func (p *Pool) checkSandbox(proc *process) {
	if !proc.hello.Sandbox {
		p.warned.Do(func() {
			p.opts.Log.Warn("this system has no sandbox for workflow-esc: a definition that exploits an error in it has the rights of this server")
		})
	}
}

// start starts a process in the background. The caller holds the lock, and must receive the process and end it.
func (p *Pool) start() chan *process {
	out := make(chan *process, 1)
	p.starts.Go(func() { out <- start(p.opts.Program, startLimit) })
	return out
}

// dismiss ends the process that waits for a request.
func (p *Pool) dismiss() {
	p.mu.Lock()
	spare := p.spare
	p.spare = nil
	p.mu.Unlock()
	if spare != nil {
		(<-spare).end()
	}
}

// Close ends all processes, after their requests.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	if p.retire != nil {
		p.retire.Stop()
	}
	p.mu.Unlock()
	p.running.Wait()
	p.dismiss()
	p.starts.Wait()
}

// serve has a conversation with a process about a request, within its limits.
func (p *Pool) serve(ctx context.Context, proc *process, req wire.Request, host Host) (*wire.Result, error) {
	limit := p.opts.Static
	if req.Op == wire.Open {
		limit = p.opts.WithProviders // the server ends it earlier if it opens no provider
	}
	req.Milliseconds = limit.Milliseconds()
	ctx, cancel := context.WithCancelCause(ctx) // also of the calls of providers
	defer cancel(nil)
	c := &conversation{proc: proc, host: host, started: time.Now(), limit: p.opts.WithProviders + grace, starved: p.gate.starved}
	ready := make(chan struct{})
	c.timer = time.AfterFunc(p.opts.Static+grace, func() {
		<-ready
		c.expire(cancel)
	})
	close(ready)
	defer c.timer.Stop()
	stop := context.AfterFunc(ctx, func() { proc.kill(context.Cause(ctx)) })
	defer stop()
	defer proc.watchMemory()()
	result, err := c.run(ctx, req)
	if err == nil {
		return result, nil
	}
	if cause := cmp.Or(proc.cause(), context.Cause(ctx)); cause != nil {
		err = cause
	}
	if errors.Is(err, errProgram) {
		p.opts.Log.WithField("exit", proc.exit()).WithError(err).Warn("workflow-esc ended without a result")
	}
	return nil, err
}

var (
	// errProgram means that a process broke the rules or ended without a result.
	errProgram = errors.New("evaluating the environment failed")
	// errUnsent means that a process ended before it got its request.
	errUnsent    = errors.New("the process ended before its request")
	errSlow      = fault.Invalid("evaluating the environment took too long: it may take %s, and %s if it opens providers; make it smaller", Static, WithProviders)
	errContended = fault.New(fault.KindUnavailable, "the providers of the environment took more than %s, and other requests needed the server's place for evaluations; try again", Static)
	errMemory    = fault.Invalid("evaluating the environment needs more than %d MiB of memory; make it smaller", wire.Memory>>20)
)

// broken is the error for a process that broke the rules or died.
func broken(err error) error {
	return &fault.Error{
		Kind:  fault.KindInvalid,
		Cause: fmt.Errorf("%w: %w", errProgram, err),
		Message: fmt.Sprintf("evaluating the environment failed: the evaluator ended without a result, "+
			"because the environment needs more than %d MiB of memory or %d s of processor time, or because of an error in the evaluator; make it smaller", wire.Memory>>20, wire.CPUSeconds),
	}
}
