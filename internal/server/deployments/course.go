package deployments

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

// The numbers of earlier deployments that a deployment is compared with.
const (
	usualRuns  = 20 // from which the usual time is known
	leastRuns  = 5
	comparable = 50 // among which the last good one is searched
)

// Usual is how long the last good deployments of an operation ran; zero if there are fewer than five.
type Usual struct {
	Runs int // number of the deployments
	// Median is the usual time; of ten deployments, one took less than Low, and one more than High.
	Median, Low, High time.Duration
	// Steps are the usual times of the steps, by name.
	Steps map[string]time.Duration
}

// Run is an earlier deployment of a stack, or an update that no deployment ran.
type Run struct {
	Deployment int64 // version, or 0
	Update     int64 // version of the update that no deployment ran, or 0
	Version    int64 // version of the stack that the run made, or 0
	EndedAt    time.Time
	By         string
	Commit     string
	Operation  workflow.Operation
}

// Course is what a deployment is compared with: the other deployments of its stack.
type Course struct {
	Previous, Next int64 // versions of the neighbours, or 0
	Usual          Usual
	// Good is the last good run before the deployment that wrote to the stack; nil if none is known, or if the deployment
	// does not write itself.
	Good *Run
	// Failures is the number of failed runs since, and Goods the number of good ones in a row up to it.
	Failures, Goods int
	// Behind is the number of queued deployments of the stack that are newer.
	Behind int
	// Commit is the commit, Message its message or the first line of it, Author its author, as far as they are known.
	Commit, Message, Author string
	Pull                    *store.VCSPull        // nil without a pull request
	Integration             *store.VCSIntegration // of the repository; nil without one
}

// Course returns what a deployment is compared with.
func (s *Service) Course(ctx context.Context, st store.Stack, d Details) (Course, error) {
	c := Course{Commit: commitOf(d.Job)}
	if g := d.Settings.Git(); c.Commit == "" && g != nil {
		c.Commit = g.Commit
	}
	if d.Version > 1 {
		c.Previous = d.Version - 1
	}
	if d.LatestVersion > d.Version {
		c.Next = d.Version + 1
	}
	return c, s.db.Read(ctx, func(tx *store.Tx) error {
		good, err := tx.GoodCourses(st.ID, d.Version, d.Operation, usualRuns)
		if err != nil {
			return err
		}
		c.Usual = usual(good)
		if d.Job.Status.Final() && d.Operation.Changes() {
			if err := c.compare(tx, st, d); err != nil {
				return err
			}
		}
		if d.Job.Status == workflow.StatusNotStarted {
			queued, err := tx.QueuedJobsOfStack(st.ID)
			if err != nil {
				return err
			}
			for _, q := range queued {
				if q.Version > d.Version {
					c.Behind++
				}
			}
		}
		return c.source(tx, st, d)
	})
}

// usual returns the usual time of runs, of which there must be at least five.
func usual(good []store.Course) Usual {
	if len(good) < leastRuns {
		return Usual{}
	}
	var all []time.Duration
	steps := map[string][]time.Duration{}
	for _, g := range good {
		all = append(all, g.EndedAt.Sub(g.StartedAt))
		for _, step := range g.Steps {
			if !step.StartedAt.IsZero() && !step.FinishedAt.IsZero() {
				steps[step.Name] = append(steps[step.Name], step.FinishedAt.Sub(step.StartedAt))
			}
		}
	}
	u := Usual{Runs: len(good), Median: part(all, 50), Low: part(all, 10), High: part(all, 90), Steps: map[string]time.Duration{}}
	for name, times := range steps {
		u.Steps[name] = part(times, 50)
	}
	return u
}

// part returns the value below which a percentage of values lies. It sorts them.
func part(values []time.Duration, percent int) time.Duration {
	slices.Sort(values)
	return max(0, values[(len(values)-1)*percent/100])
}

// compare finds the last good run before a deployment.
func (c *Course) compare(tx *store.Tx, st store.Stack, d Details) error {
	list, err := tx.WritingCourses(st.ID, d.Version, comparable)
	if err != nil {
		return err
	}
	direct, err := tx.LastDirectUpdate(st.ID, d.Job.QueuedAt)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if at := slices.IndexFunc(list, func(e store.Course) bool { return e.Status == workflow.StatusSucceeded }); at >= 0 {
		e := list[at]
		c.Failures = at
		c.Good = &Run{Deployment: e.Version, EndedAt: e.EndedAt, By: e.Requester, Operation: e.Operation, Commit: commitOf(store.Job{Steps: e.Steps})}
		if c.Good.Version, err = versionOf(tx, e.DeploymentID); err != nil {
			return err
		}
		for _, e := range list[at:] {
			if e.Status != workflow.StatusSucceeded {
				break
			}
			c.Goods++
		}
	}
	if direct.Status != string(workflow.StatusSucceeded) || c.Good != nil && c.Good.EndedAt.After(direct.FinishedAt) {
		return nil
	}
	c.Good, c.Goods, c.Failures = &Run{Update: direct.Version, Version: direct.Version, EndedAt: direct.FinishedAt, Operation: workflow.Operation(direct.Kind)}, 1, 0
	for _, e := range list {
		if e.EndedAt.After(direct.FinishedAt) {
			c.Failures++
		}
	}
	if direct.RequestedBy != "" {
		by, err := tx.User(direct.RequestedBy)
		c.Good.By = cmp.Or(by.Name, by.Login)
		return store.IgnoreMissing(err)
	}
	return nil
}

// versionOf returns the newest version of the stack that a deployment made, or 0.
func versionOf(tx *store.Tx, deploymentID string) (int64, error) {
	list, err := tx.UpdatesOfDeployment(deploymentID, shownUpdates)
	for _, u := range list {
		if err == nil && !u.Preview {
			return u.Version, nil
		}
	}
	return 0, err
}

// source finds out what is known about the commit of a deployment.
func (c *Course) source(tx *store.Tx, st store.Stack, d Details) error {
	checkout, err := tx.Checkout(d.ID)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return err
	default:
		if err := c.host(tx, checkout); err != nil {
			return err
		}
	}
	event, err := tx.EventOfDeployment(st.ID, d.ID)
	if err == nil {
		var e vcs.Event
		if json.Unmarshal([]byte(event.Document), &e) == nil {
			c.Message = e.Message
		}
	}
	if err = store.IgnoreMissing(err); err != nil || len(d.Updates) == 0 {
		return err
	}
	var program struct {
		Metadata struct {
			Message     string
			Environment map[string]string
		}
	}
	text := d.Updates[0].Program // "" if it is long
	if text != "" && json.Unmarshal([]byte(text), &program) == nil {
		if c.Message == "" {
			c.Message = program.Metadata.Message
		}
		c.Author = program.Metadata.Environment["git.author"]
		if c.Commit == "" {
			c.Commit = program.Metadata.Environment["git.head"]
		}
	}
	return nil
}

// host finds the repository of a checkout at its host, and the pull request.
func (c *Course) host(tx *store.Tx, checkout store.VCSCheckout) error {
	if c.Commit == "" {
		c.Commit = checkout.CommitID
	}
	if checkout.IntegrationID != "" {
		i, err := tx.Integration(checkout.IntegrationID)
		if err = store.IgnoreMissing(err); err != nil {
			return err
		}
		if i.ID != "" {
			c.Integration = &i
		}
	}
	if checkout.Pull == 0 || checkout.RepoID == "" {
		return nil
	}
	pull, err := tx.PullByNumber(checkout.RepoID, checkout.Pull)
	if err == nil {
		c.Pull = &pull
	}
	return store.IgnoreMissing(err)
}
