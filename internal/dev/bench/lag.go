package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"workflowagent/internal/dev/bench/figures"
)

const lagInterval = 5 * time.Millisecond

// lag measures the time from when a job writes a line until the server returns the line. The
// product and the baseline run concurrently, because neither needs much CPU time.
func (b *bench) lag(ctx context.Context) error {
	p, err := b.startProduct(ctx, "")
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.startAgent(ctx, p.server.URL, nil); err != nil {
		return err
	}
	y, err := b.startYardstick(ctx, true)
	if err != nil {
		return err
	}
	defer y.close()
	return b.lagBetween(ctx, p, y, b.stamp(), figures.RatioAtMost(1.5, false))
}

// lagBetween measures the lag of two sites concurrently. stamp is the path of the program stamp for
// their jobs, and the goal that of the 95th percentile.
func (b *bench) lagBetween(ctx context.Context, product, yardstick jobs, stamp string, goal figures.Goal) error {
	sites := []jobs{product, yardstick}
	for _, load := range []struct{ rate, lines int }{
		{10, pick(b, 100, 30)},
		{1000, pick(b, 5000, 2000)},
	} {
		var sides [2]lagFigures
		for round := range b.rounds {
			var both sync.WaitGroup
			var errs [2]error
			for i, s := range sites {
				both.Go(func() { errs[i] = measureLag(ctx, s, stamp, load.rate, load.lines, &sides[i]) })
			}
			both.Wait()
			if err := errors.Join(errs[:]...); err != nil {
				return err
			}
			b.say("  round %d, %d lines/s: p95 %.0f and %.0f ms", round+1, load.rate, last(sides[0].high), last(sides[1].high))
		}
		what := fmt.Sprintf("line at %d/s written to visible", load.rate)
		b.add(what+", p50", "ms", sides[0].middle, sides[1].middle, figures.Goal{})
		b.add(what+", p95", "ms", sides[0].high, sides[1].high, goal)
		b.add(fmt.Sprintf("lines at %d/s not seen once and in order", load.rate), "lines", sides[0].wrong, sides[1].wrong, figures.AtMost(0, true))
	}
	return nil
}

// lagFigures are the samples of one side, with one value per round in each.
type lagFigures struct{ middle, high, wrong []float64 }

func measureLag(ctx context.Context, s jobs, stamp string, rate, n int, f *lagFigures) error {
	job, err := s.enqueue(ctx, fmt.Sprintf("%s - %d 100 %d", stamp, n, rate), "-")
	if err != nil {
		return err
	}
	var lags []float64
	next, wrong := 0, 0
	token, begun := "", ""
	patience := jobPatience + time.Duration(n/rate)*time.Second
	err = until(ctx, lagInterval, patience, "the last line of a job", func() (bool, error) {
		text, to, err := s.page(ctx, job, token)
		if err != nil {
			return false, err
		}
		now := time.Now()
		if to != "" {
			token = to
		}
		begun = eachLine(begun+text, func(line string) {
			i, ok := lineNumber(line)
			if !ok {
				return
			}
			if i != next {
				wrong++
			}
			next = i + 1
			if written, ok := writtenAt(line); ok {
				lags = append(lags, milliseconds(now.Sub(written)))
			}
		})
		return next >= n, nil
	})
	if err != nil {
		return err
	}
	f.middle = append(f.middle, figures.Median(lags))
	f.high = append(f.high, figures.Quantile(lags, 0.95))
	f.wrong = append(f.wrong, float64(wrong+abs(n-len(lags))))
	return until(ctx, 10*time.Millisecond, jobPatience, "the job's exit", func() (bool, error) { return s.finished(ctx, job) })
}

func writtenAt(line string) (time.Time, bool) {
	_, text, ok := strings.Cut(line, " @")
	n, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(0, n), ok && err == nil
}

func abs(n int) int { return max(n, -n) }
