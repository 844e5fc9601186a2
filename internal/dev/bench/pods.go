package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/bench/pods"
	"workflowagent/internal/dev/lab/cluster"
)

const (
	podInterval = 10 * time.Millisecond
	// podPatience is the time limit of a job in a pod when it is alone.
	podPatience = 2 * time.Minute
)

// pods measures jobs in pods of a real Kubernetes with one node, one at a time. The baselines are pods
// that run the same command without the product.
func (b *bench) pods(ctx context.Context) error {
	return b.inPods(ctx, 1, func(place *pods.Place, p *product) error {
		same, single := barePods{place.Bare(true)}, barePods{place.Bare(false)}
		if err := b.podStarts(ctx, place, p, same, single); err != nil {
			return err
		}
		return b.lagBetween(ctx, p, single, pods.Stamp, figures.RatioAtMost(1.5, false))
	})
}

// inPods calls measure with a cluster, and a server with an agent that runs up to n jobs in its pods.
func (b *bench) inPods(ctx context.Context, n int, measure func(*pods.Place, *product) error) (err error) {
	if reason, ok := cluster.Available(); !ok {
		b.skip("jobs in pods", reason)
		return nil
	}
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	place, err := pods.Start(ctx, pods.Options{Bin: b.bin, Stamp: b.stamp(), Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, place.Close()) }()
	p, err := b.startProduct(ctx, place.Host, "--max-deployments", "1000")
	if err != nil {
		return err
	}
	defer p.close()
	p.target, p.image, p.env = "kubernetes", place.Image, place.AgentEnv()
	settings := place.AgentSettings()
	settings["max_concurrent_jobs"] = strconv.Itoa(n)
	if err := p.startAgent(ctx, p.server.URL, settings); err != nil {
		return err
	}
	return measure(place, p)
}

// podStarts runs small jobs one at a time, alternating between the product and both baselines.
func (b *bench) podStarts(ctx context.Context, place *pods.Place, p *product, same, single barePods) error {
	var product, withHelpers, alone podFigures
	sides := []struct {
		jobs    jobs
		figures *podFigures
	}{{p, &product}, {same, &withHelpers}, {single, &alone}}
	for _, side := range sides { // warm-up
		if err := b.measurePod(ctx, place, side.jobs, &podFigures{}); err != nil {
			return err
		}
	}
	before := place.Calls()
	rounds := b.rounds * pick(b, 7, 2)
	for range rounds {
		for _, side := range sides {
			if err := b.measurePod(ctx, place, side.jobs, side.figures); err != nil {
				return err
			}
		}
	}
	var added []float64
	for i, start := range product.start {
		added = append(added, start-withHelpers.start[i])
	}
	b.say("  queued to running %.0f ms, a pod with the same containers %.0f ms, with one %.0f ms",
		figures.Median(product.start), figures.Median(withHelpers.start), figures.Median(alone.start))
	b.add("queued to process running; create to running of a pod with the same containers", "ms", product.start, withHelpers.start, figures.Goal{})
	b.add("difference of these two", "ms", added, nil, figures.AtMost(150, false))
	b.add("queued to process running; create to running of a pod with one container", "ms", product.start, alone.start, figures.Goal{})
	b.add("process exit to finished, log complete; to the pod's status", "ms", product.end, withHelpers.end, figures.Goal{})
	b.add("whole job; pod with the same containers", "ms", product.whole, withHelpers.whole, figures.Goal{})
	b.add("calls of the cluster's API per job, one job at a time", "calls", []float64{float64(place.Calls()-before) / float64(rounds)}, nil, figures.AtMost(20, true))
	b.add("log lines missing at finished", "lines", product.missing, nil, figures.AtMost(0, true))
	return nil
}

// podFigures are samples in milliseconds, and numbers of lines.
type podFigures struct{ start, end, whole, missing []float64 }

// measurePod runs a job and waits until its pod is gone.
func (b *bench) measurePod(ctx context.Context, place *pods.Place, s jobs, f *podFigures) error {
	job, t, err := waitForJob(ctx, s, fmt.Sprintf("%s - %d", pods.Stamp, jobLines), "-", podInterval, podPatience)
	if err != nil {
		return err
	}
	missing, err := countLines(ctx, s, job, jobLines)
	if err != nil {
		return err
	}
	if t.first, t.last, err = stamps(ctx, s, job); err != nil {
		return err
	}
	f.start = append(f.start, milliseconds(t.first.began.Sub(t.queued)))
	f.end = append(f.end, milliseconds(t.finished.Sub(t.last.ended)))
	f.whole = append(f.whole, milliseconds(t.finished.Sub(t.sent)))
	f.missing = append(f.missing, float64(missing))
	if bare, ok := s.(barePods); ok {
		if err := bare.Remove(ctx, job); err != nil {
			return err
		}
	}
	return podsGone(ctx, place, podPatience)
}

func podsGone(ctx context.Context, place *pods.Place, patience time.Duration) error {
	return until(ctx, 10*podInterval, patience, "the removal of the pods", func() (bool, error) {
		n, err := place.Pods(ctx)
		return n == 0, err
	})
}

// stamps returns the times of a job's first and last process, which are in its log.
func stamps(ctx context.Context, s jobs, job string) (first, last times, err error) {
	found := 0
	var wrong error
	err = lines(ctx, s, job, func(line string) {
		text, ok := strings.CutPrefix(line, "stamp ")
		if !ok {
			return
		}
		if last, err = parseTimes(text); err != nil {
			wrong = err
		}
		if found++; found == 1 {
			first = last
		}
	})
	if err == nil && found == 0 {
		wrong = fmt.Errorf("the log of job %s has no times", job)
	}
	return first, last, errors.Join(err, wrong)
}

// barePods runs jobs in pods without the product.
type barePods struct{ *pods.Bare }

func (p barePods) enqueue(ctx context.Context, command, _ string) (string, error) {
	return p.Create(ctx, command)
}

func (p barePods) finished(ctx context.Context, job string) (bool, error) { return p.Ended(ctx, job) }

func (p barePods) page(ctx context.Context, job, token string) (text, next string, err error) {
	offset := 0
	if token != "" {
		if offset, err = strconv.Atoi(token); err != nil {
			return "", "", err
		}
	}
	text, complete, err := p.Text(ctx, job, offset)
	if complete {
		return text, "", err
	}
	return text, strconv.Itoa(offset + len(text)), err
}
