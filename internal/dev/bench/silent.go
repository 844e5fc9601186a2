package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// proceed lets a job go on that waits for it.
func (q queuedJob) proceed() error {
	if err := os.WriteFile(q.file+".go", []byte("\n"), 0o600); err != nil {
		return fmt.Errorf("letting a job go on: %w", err)
	}
	return nil
}

// runUntilSilent starts one job on each stack, which prints its lines and then waits.
func (b *bench) runUntilSilent(ctx context.Context, p *product, stacks []string) ([]queuedJob, error) {
	dir, err := b.world()
	if err != nil {
		return nil, err
	}
	var jobs []queuedJob
	for i, stack := range stacks {
		job := queuedJob{site: p.on(stack), file: filepath.Join(dir, fmt.Sprint(i))}
		command := fmt.Sprintf("mkfifo %[1]s.go; %[2]s %[1]s %[3]d; read x <%[1]s.go", job.file, b.stamp(), jobLines)
		if job.id, err = job.site.enqueue(ctx, command, job.file); err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
	}
	for _, job := range jobs {
		if err := appears(ctx, job.file); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// awaitAll waits until all jobs have ended and tells when each of them did. Wrong
// are those with another status than the wanted one, and lines that are missing.
func awaitAll(ctx context.Context, p *product, jobs []queuedJob, want string) (ends []time.Time, wrong int, err error) {
	ends = make([]time.Time, len(jobs))
	statuses := make([]string, len(jobs))
	left := len(jobs)
	err = until(ctx, 5*time.Millisecond, 2*time.Minute, "the end of jobs", func() (bool, error) {
		for i, job := range jobs {
			if !ends[i].IsZero() {
				continue
			}
			status, err := p.status(ctx, job.id)
			if err != nil {
				return false, err
			}
			switch status {
			case "succeeded", "failed", "skipped":
				ends[i], statuses[i] = time.Now(), status
				left--
			}
		}
		return left == 0, nil
	})
	if err != nil {
		return nil, 0, errors.Join(err, fmt.Errorf("of %d jobs %d had not ended", len(jobs), left))
	}
	for i, job := range jobs {
		missing, err := countLines(ctx, job.site, job.id, jobLines)
		if err != nil {
			return nil, 0, err
		}
		if wrong += missing; statuses[i] != want {
			wrong++
		}
	}
	return ends, wrong, nil
}
