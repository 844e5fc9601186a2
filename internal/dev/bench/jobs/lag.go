package jobs

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/dev/bench/figures"
)

const lagInterval = 5 * time.Millisecond

// lagFigures are milliseconds, with one value per round in each, and numbers of lines.
type lagFigures struct{ middle, high, wrong []float64 }

// Lag measures the time from when a job writes a line until the server returns the line.
func Lag(ctx context.Context, run *figures.Run) error {
	p, err := start(ctx, run, nil)
	if err != nil {
		return err
	}
	defer p.close()
	for _, load := range []struct{ rate, lines int }{
		{10, figures.Pick(run, 100, 30)},
		{1000, figures.Pick(run, 5000, 2000)},
	} {
		var f lagFigures
		for range run.Rounds {
			if err := p.lag(ctx, load.rate, load.lines, &f); err != nil {
				return err
			}
		}
		what := fmt.Sprintf("line at %d/s written to visible", load.rate)
		run.Add(what+", p50", "ms", f.middle, figures.Goal{})
		run.Add(what+", p95", "ms", f.high, figures.AtMost(150, false))
		run.Add(fmt.Sprintf("lines at %d/s not seen once and in order", load.rate), "lines", f.wrong, figures.AtMost(0, true))
	}
	return nil
}

func (p *product) lag(ctx context.Context, rate, n int, f *lagFigures) error {
	job, err := p.enqueue(ctx, fmt.Sprintf("%s - %d 100 %d", p.run.Stamp, n, rate), "-")
	if err != nil {
		return err
	}
	var lags []float64
	next, wrong := 0, 0
	token, begun := "", ""
	page := p.pages(job)
	patience := jobPatience + time.Duration(n/rate)*time.Second
	err = until(ctx, lagInterval, patience, "the last line of a job", func() (bool, error) {
		text, to, err := page(ctx, token)
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
				lags = append(lags, figures.Milliseconds(now.Sub(written)))
			}
		})
		return next >= n, nil
	})
	if err != nil {
		return err
	}
	f.middle = append(f.middle, figures.Median(lags))
	f.high = append(f.high, figures.Quantile(lags, 0.95))
	f.wrong = append(f.wrong, float64(wrong+max(n-len(lags), len(lags)-n)))
	return until(ctx, 10*time.Millisecond, jobPatience, "the job's exit", func() (bool, error) { return p.finished(ctx, job) })
}

func writtenAt(line string) (time.Time, bool) {
	_, text, ok := strings.Cut(line, " @")
	n, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(0, n), ok && err == nil
}
