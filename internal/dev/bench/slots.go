package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// slotCount is how many jobs an agent runs at a time here.
const slotCount = 10

// slots has agents with several slots empty a queue of small jobs.
func (b *bench) slots(ctx context.Context) error {
	n := pick(b, 100, 40)
	var product, floor slotFigures
	for round := range b.rounds {
		if err := b.slotsOfProduct(ctx, n, &product); err != nil {
			return err
		}
		if err := b.slotsOfYardstick(ctx, n, &floor); err != nil {
			return err
		}
		b.say("  round %d: %.0f and %.0f jobs/s, %.0f and %.0f ms of CPU a job", round+1,
			last(product.rate), last(floor.rate), last(product.cpu), last(floor.cpu))
	}
	b.add(fmt.Sprintf("%d small jobs, %d at a time", n, slotCount), "jobs/s", product.rate, floor.rate, goal{ratioAtLeast, 0.4, false})
	b.add("CPU of the agent side per job", "ms", product.cpu, floor.cpu, goal{})
	b.add("log lines missing", "lines", product.missing, floor.missing, goal{atMost, 0, true})
	return nil
}

// slotFigures are those of one side, one of each a round.
type slotFigures struct{ rate, cpu, missing []float64 }

// queuedJob is a job in the queue of a site.
type queuedJob struct {
	site     site
	id, file string
}

func (b *bench) slotsOfProduct(ctx context.Context, n int, f *slotFigures) error {
	p, err := b.startProduct(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	stacks, err := p.newStacks(ctx, n)
	if err != nil {
		return err
	}
	jobs, err := b.fill(ctx, n, func(i int) site { return p.on(stacks[i]) })
	if err != nil {
		return err
	}
	if err := p.launchAgent(ctx, p.server.URL, "process", map[string]string{"max_concurrent_jobs": fmt.Sprint(slotCount)}); err != nil {
		return err
	}
	return f.empty(ctx, jobs, p)
}

func (b *bench) slotsOfYardstick(ctx context.Context, n int, f *slotFigures) error {
	y, err := b.startYardstick(ctx, false)
	if err != nil {
		return err
	}
	defer y.close()
	jobs, err := b.fill(ctx, n, func(int) site { return y })
	if err != nil {
		return err
	}
	if y.agent, err = b.startMinAgent(ctx, y.url, y.dir, slotCount); err != nil {
		return err
	}
	return f.empty(ctx, jobs, y)
}

// fill puts small jobs into a queue.
func (b *bench) fill(ctx context.Context, n int, on func(i int) site) ([]queuedJob, error) {
	dir, err := b.world()
	if err != nil {
		return nil, err
	}
	var jobs []queuedJob
	for i := range n {
		job := queuedJob{site: on(i), file: filepath.Join(dir, fmt.Sprint(i))}
		if job.id, err = job.site.enqueue(ctx, fmt.Sprintf("%s %s %d", b.stamp(), job.file, jobLines), job.file); err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// empty waits for the end of the jobs. The rate is that from the first instruction
// of the first job to the last of the last.
func (f *slotFigures) empty(ctx context.Context, jobs []queuedJob, agent site) error {
	for _, job := range jobs {
		err := until(ctx, 10*time.Millisecond, claimsPatience, "the end of a job", func() (bool, error) { return agent.finished(ctx, job.id) })
		if err != nil {
			return err
		}
	}
	if err := alone(ctx, agent.agentPID()); err != nil {
		return err
	}
	used, err := cpu(agent.agentPID())
	if err != nil {
		return err
	}
	var whole times
	missing := 0
	for _, job := range jobs {
		first, err := readTimes(job.file)
		if err != nil {
			return err
		}
		end, err := readTimes(job.site.last(job.file))
		if err != nil {
			return err
		}
		if whole.began.IsZero() || first.began.Before(whole.began) {
			whole.began = first.began
		}
		if end.ended.After(whole.ended) {
			whole.ended = end.ended
		}
		wrong, err := countLines(ctx, job.site, job.id, jobLines)
		if err != nil {
			return err
		}
		missing += wrong
	}
	f.rate = append(f.rate, float64(len(jobs))/whole.ended.Sub(whole.began).Seconds())
	f.cpu = append(f.cpu, milliseconds(used)/float64(len(jobs)))
	f.missing = append(f.missing, float64(missing))
	return nil
}
