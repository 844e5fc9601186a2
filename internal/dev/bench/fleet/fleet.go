// Package fleet measures a server that has many agents. The agents and their jobs are goroutines
// that make the calls of an agent and a runner, so that the figures are the server's. The baseline
// is minserver with the same store.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/retry"
)

// Bench configures and runs the measurements.
type Bench struct {
	Dir     string // directory for everything except programs
	Server  string // path of workflow-server
	Bare    string // path of minserver
	Service string // path of the example restful-infrastructure
	Example string // directory of that example
	Rounds  int
	Quick   bool
	Say     func(format string, args ...any)
	// Add adds a row to the report.
	Add func(figure, unit string, product, yardstick []float64, g figures.Goal)
	// Skip adds a row for a figure that could not be measured.
	Skip func(figure, why string)
}

const stopPatience = 15 * time.Second

// hold is the time for which agents ask a server to hold a poll.
const hold = 25 * time.Second

// site is a server: the product or the baseline.
type site interface {
	// enqueue starts a job. The number selects one of the stacks, which run one job at a time.
	enqueue(ctx context.Context, stack int) error
	// poll makes one poll of an agent and returns its job, or nil.
	poll(ctx context.Context, agent int) (job, error)
	// settle waits until the server holds no poll of a dismissed agent, which would take a job.
	settle(ctx context.Context) error
	pid() int
	close()
}

// job is a claimed job.
type job interface {
	// start makes the calls before the first step.
	start(ctx context.Context) error
	// write appends text, which ends with a newline, to the log.
	write(ctx context.Context, text []byte) error
	finish(ctx context.Context) error
	// read returns the number of bytes of text in the finished job's log.
	read(ctx context.Context) (int64, error)
}

// pair is the product and the baseline, with the same store.
type pair struct {
	name          string // of the store
	product, bare site
	release       func()
}

func (p *pair) close() {
	for _, s := range []site{p.product, p.bare} {
		if s != nil {
			s.close()
		}
	}
	if p.release != nil {
		p.release()
	}
}

// startPair starts both servers. The product has the given number of stacks.
func (b *Bench) startPair(ctx context.Context, postgres bool, stacks int) (_ *pair, err error) {
	p := &pair{name: "SQLite"}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	var databases [2]string
	if postgres {
		p.name = "PostgreSQL"
		var stops []func()
		p.release = func() {
			for _, stop := range stops {
				stop()
			}
		}
		for i := range databases {
			dir, err := b.newDir()
			if err != nil {
				return nil, err
			}
			// SQLite, with which PostgreSQL is compared, also syncs its writes.
			dsn, stop, err := lab.StartPostgres(ctx, dir, "fsync=on")
			if err != nil {
				return nil, err
			}
			databases[i], stops = dsn, append(stops, stop)
		}
	}
	product, err := b.startProduct(ctx, databases[0], stacks)
	if err != nil {
		return nil, err
	}
	p.product = product
	bare, err := b.startBare(ctx, databases[1])
	if err != nil {
		return nil, err
	}
	p.bare = bare
	return p, nil
}

func (b *Bench) newDir() (string, error) {
	dir, err := os.MkdirTemp(b.Dir, "f")
	if err != nil {
		return "", fmt.Errorf("creating a directory for a measurement: %w", err)
	}
	return dir, nil
}

// pick returns the load for a full run, or for a quick one.
func pick[T any](b *Bench, full, quick T) T {
	if b.Quick {
		return quick
	}
	return full
}

// newHTTP returns a client that keeps all of its connections open.
func newHTTP() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1 << 14
	transport.MaxIdleConns = 0
	transport.IdleConnTimeout = 5 * time.Minute
	transport.Proxy = nil
	return &http.Client{Transport: transport}
}

// each calls do for the numbers from 0 to n in parallel, and returns the errors.
func each(n, workers int, do func(i int) error) error {
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				errs[w] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// crew are agents that poll until they are stopped.
type crew struct {
	site site
	stop context.CancelFunc
	done sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

// gather starts n agents within a time, each of which passes its jobs to work.
func gather(ctx context.Context, s site, n int, within time.Duration, work func(ctx context.Context, j job) error) *crew {
	ctx, cancel := context.WithCancel(ctx)
	c := &crew{site: s, stop: cancel}
	for agent := range n {
		c.done.Go(func() {
			if within > 0 && retry.Sleep(ctx, rand.N(within)) != nil {
				return // dismissed
			}
			for ctx.Err() == nil {
				j, err := s.poll(ctx, agent)
				if err == nil && j != nil {
					err = work(ctx, j)
				}
				if err != nil && ctx.Err() == nil {
					c.mu.Lock()
					c.errs = append(c.errs, err)
					c.mu.Unlock()
					return
				}
			}
		})
	}
	return c
}

// dismiss stops the agents and returns the errors of those that had failed.
func (c *crew) dismiss() error {
	c.stop()
	c.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(append(c.errs, c.site.settle(ctx))...)
}

// failed returns the agents' errors so far.
func (c *crew) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.errs...)
}

// collect receives n values, or returns an error if that takes too long or an agent fails.
func collect[T any](ctx context.Context, c *crew, from <-chan T, n int) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	check := time.NewTicker(time.Second)
	defer check.Stop()
	values := make([]T, 0, n)
	for len(values) < n {
		select {
		case v := <-from:
			values = append(values, v)
		case <-check.C:
			if err := c.failed(); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("only %d of %d jobs have finished: %w", len(values), n, context.Cause(ctx))
		}
	}
	return values, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
