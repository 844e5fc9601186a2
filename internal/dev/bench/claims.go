package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// pollers claim at once, enqueuers fill the queue before.
	pollers, enqueuers = 32, 16
	// claimsPatience bounds emptying or filling the queue.
	claimsPatience = 2 * time.Minute
)

// claims has many clients empty a queue that was filled before. The product has
// one running deployment a stack, so every job has a stack of its own. It also
// counts an organization's running deployments at each claim; the queue is not much
// longer than the cap of that count is by default, so that the count costs as much
// here as it does in use.
func (b *bench) claims(ctx context.Context) error {
	n := pick(b, 400, 200)
	var product, floor, wrong []float64
	for round := range b.rounds {
		rate, bad, err := b.claimProduct(ctx, n)
		if err != nil {
			return err
		}
		floorRate, floorBad, err := b.claimFloor(ctx, n)
		if err != nil {
			return err
		}
		product, floor, wrong = append(product, rate), append(floor, floorRate), append(wrong, float64(bad+floorBad))
		b.say("  round %d: %.0f and %.0f claims/s", round+1, rate, floorRate)
	}
	b.add(fmt.Sprintf("%d jobs, %d pollers, SQLite FULL", n, pollers), "claims/s", product, floor, goal{ratioAtLeast, 0.5, false})
	b.add("jobs not claimed exactly once", "jobs", wrong, nil, goal{atMost, 0, true})
	return nil
}

func (b *bench) claimFloor(ctx context.Context, n int) (rate float64, wrong int, err error) {
	y, err := b.startYardstick(ctx, false)
	if err != nil {
		return 0, 0, err
	}
	defer y.close()
	err = inParallel(ctx, enqueuers, n, func(ctx context.Context, _ int) error {
		_, err := y.enqueue(ctx, "true", "-")
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	return drain(ctx, n, func(ctx context.Context, _ int) (string, error) { return y.claim(ctx) })
}

func (b *bench) claimProduct(ctx context.Context, n int) (rate float64, wrong int, err error) {
	p, err := b.startProduct(ctx, "--max-deployments", strconv.Itoa(n))
	if err != nil {
		return 0, 0, err
	}
	defer p.close()
	err = inParallel(ctx, enqueuers, n, func(ctx context.Context, i int) error {
		stack, err := p.newStack(ctx, fmt.Sprintf("claim%d", i))
		if err != nil {
			return err
		}
		return p.server.Call(ctx, http.MethodPost, "/api/stacks/"+stack+"/deployments", map[string]any{"operation": "update"}, nil)
	})
	if err != nil {
		return 0, 0, err
	}
	return drain(ctx, n, p.claim)
}

// claim polls once as one of many agents; "" is an empty queue.
func (p *product) claim(ctx context.Context, poller int) (string, error) {
	header := http.Header{"Authorization": {"token " + p.poolToken}}
	for name, value := range map[string]string{
		"X-Workflow-Agent-Id":         fmt.Sprintf("bench-%d", poller),
		"X-Workflow-Agent-Session":    fmt.Sprintf("session-%d", poller),
		"X-Workflow-Agent-Hostname":   "bench",
		"X-Workflow-Agent-Free-Slots": "1",
		"X-Workflow-Agent-Interval":   "60",
		"X-Workflow-Agent-Poll-Id":    fmt.Sprintf("%d-%d", poller, time.Now().UnixNano()),
	} {
		header.Set(name, value)
	}
	body, err := call(ctx, p.http, http.MethodGet, p.server.URL+"/api/deployments/poll", header, nil)
	if err != nil || body == nil {
		return "", err
	}
	var answer struct {
		JobID string `json:"jobID"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", fmt.Errorf("reading a poll's answer: %w", err)
	}
	return answer.JobID, nil
}

// drain has all pollers claim until the queue is empty. Wrong are the jobs that
// were not claimed, or more than once.
func drain(ctx context.Context, n int, claim func(ctx context.Context, poller int) (string, error)) (rate float64, wrong int, err error) {
	var mu sync.Mutex
	seen := map[string]int{}
	began := time.Now()
	var lastClaim time.Time
	err = inParallel(ctx, pollers, pollers, func(ctx context.Context, poller int) error {
		for {
			job, err := claim(ctx, poller)
			if err != nil || job == "" {
				return err
			}
			mu.Lock()
			seen[job]++
			lastClaim = time.Now()
			mu.Unlock()
		}
	})
	if err != nil {
		return 0, 0, err
	}
	wrong = n - len(seen)
	for _, times := range seen {
		wrong += times - 1
	}
	return float64(len(seen)) / lastClaim.Sub(began).Seconds(), wrong, nil
}

// inParallel calls f for 0 to n-1 from so many goroutines and returns the first
// error.
func inParallel(ctx context.Context, goroutines, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, claimsPatience, fmt.Errorf("the queue was not filled or emptied within %s", claimsPatience))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	next := make(chan int)
	var workers sync.WaitGroup
	for range goroutines {
		workers.Go(func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					fail(err)
				}
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	workers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
