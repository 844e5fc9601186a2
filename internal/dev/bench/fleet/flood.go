package fleet

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/dev/lab/postgres"
	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
)

// The clients of a flood. They run on the machine of the server, and share its processors.
const (
	guessers    = 32  // send wrong tokens, one after another
	giants      = 16  // send bodies of giantBody bytes without a token
	slowReaders = 200 // request a large document and do not read it
	slowSenders = 100 // send the beginning of a body and nothing else
	giantBody   = 256 << 20
	largePath   = "/api/openapi/pulumi-spec.json"
)

// between is the pause between two heartbeats of a job. Real jobs pause for 10 s.
const between = 250 * time.Millisecond

// Flood measures the heartbeats of running jobs while clients without valid credentials flood the server.
func Flood(ctx context.Context, run *figures.Run) error {
	err := flooded(ctx, run, "SQLite", site.Options{})
	if reason, ok := postgres.Available(); !ok {
		run.Skip("floods with PostgreSQL", reason)
		return err
	}
	return errors.Join(err, flooded(ctx, run, "PostgreSQL", site.Options{Postgres: true}))
}

func flooded(ctx context.Context, run *figures.Run, name string, o site.Options) error {
	jobs, period := figures.Pick(run, 50, 5), figures.Pick(run, 30*time.Second, 3*time.Second)
	p, err := start(ctx, run, o, jobs)
	if err != nil {
		return err
	}
	defer p.Close()
	running := make(chan *job, jobs)
	agents := p.gather(ctx, jobs, 0, func(ctx context.Context, j *job) error {
		err := j.start(ctx)
		running <- j
		<-ctx.Done() // the agent has no second job
		return err
	})
	err = each(jobs, 8, func(i int) error {
		_, err := p.enqueue(ctx, i)
		return err
	})
	var all []*job
	if err == nil {
		all, err = collect(ctx, agents, running, jobs)
	}
	var calm, during []float64
	if err == nil {
		calm, err = beats(ctx, all, period)
	}
	if err == nil {
		flood := p.flood(ctx)
		during, err = beats(ctx, all, period)
		flood.dismiss()
		run.Say("%d wrong tokens, %d giant bodies, %d documents that were not read and %d bodies that did not arrive in %s", flood.guessed, flood.sent, flood.unread, flood.begun, period)
	}
	if err := errors.Join(err, agents.dismiss()); err != nil {
		return err
	}
	run.Compare(fmt.Sprintf("heartbeats of %d running jobs during a flood, p95, and without it, %s", jobs, name), "ms",
		[]float64{figures.Quantile(during, 0.95)}, []float64{figures.Quantile(calm, 0.95)}, figures.AtMost(250, !run.Quick))
	run.Add("the slowest of them", "ms", []float64{figures.Quantile(during, 1)}, figures.Goal{})
	return nil
}

// beats sends heartbeats of jobs for a period, and returns how long each took. All must succeed.
func beats(ctx context.Context, jobs []*job, period time.Duration) (took []float64, err error) {
	var mu sync.Mutex
	end := time.Now().Add(period)
	err = each(len(jobs), len(jobs), func(i int) error {
		for time.Now().Before(end) {
			sent := time.Now()
			if _, err := jobs[i].next().Heartbeat(ctx, protocol.PhaseRunning); err != nil {
				return fmt.Errorf("a heartbeat: %w", err)
			}
			mu.Lock()
			took = append(took, figures.Milliseconds(time.Since(sent)))
			mu.Unlock()
			if err := retry.Sleep(ctx, retry.Spread(between)); err != nil {
				return err
			}
		}
		return nil
	})
	return took, err
}

// flood is clients without valid credentials. The counters are valid after dismiss.
type flood struct {
	stop                         context.CancelFunc
	done                         sync.WaitGroup
	mu                           sync.Mutex
	guessed, sent, unread, begun int
}

func (p *product) flood(ctx context.Context) *flood {
	ctx, cancel := context.WithCancel(ctx)
	f := &flood{stop: cancel}
	repeat := func(clients int, count *int, do func(ctx context.Context) error) {
		for range clients {
			f.done.Go(func() {
				for ctx.Err() == nil {
					if do(ctx) != nil {
						_ = retry.Sleep(ctx, 10*time.Millisecond) // the server refuses connections
						continue
					}
					f.mu.Lock()
					*count++
					f.mu.Unlock()
				}
			})
		}
	}
	address := strings.TrimPrefix(p.URL, "http://")
	repeat(guessers, &f.guessed, func(ctx context.Context) error {
		return p.strange(ctx, http.MethodGet, "/api/user", "token pul-"+rand.Text(), nil)
	})
	repeat(giants, &f.sent, func(ctx context.Context) error {
		return p.strange(ctx, http.MethodPost, "/api/oauth/token", "", io.LimitReader(zeros{}, giantBody))
	})
	repeat(slowReaders, &f.unread, func(ctx context.Context) error {
		return hang(ctx, address, "GET "+largePath+" HTTP/1.1\r\nHost: x\r\n\r\n")
	})
	repeat(slowSenders, &f.begun, func(ctx context.Context) error {
		return hang(ctx, address, "POST /api/oauth/token HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{")
	})
	return f
}

func (f *flood) dismiss() {
	f.stop()
	f.done.Wait()
}

// strange makes a call of a stranger. Every response is right.
func (p *product) strange(ctx context.Context, method, path, authorization string, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, method, p.URL+path, body)
	if err != nil {
		return err
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	res, err := p.HTTP.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return errors.Join(err, res.Body.Close())
}

// hang sends a request, reads one byte of the response and nothing more until the server closes the connection, or a
// while has passed.
func hang(ctx context.Context, address, request string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	_, _ = bufio.NewReaderSize(conn, 16).ReadByte()
	<-ctx.Done()
	return nil
}

type zeros struct{}

// Read implements [io.Reader].
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
