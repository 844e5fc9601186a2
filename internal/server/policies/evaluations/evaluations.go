// Package evaluations evaluates the states of stacks with the packs of audit policy groups. An evaluation is a job that
// changes nothing: it reads one version of a state, runs the packs on it and reports what they found. So it is assigned
// again whenever the agent or the runner of a claim is silent, and only the results of the current claim count.
//
// At most one evaluation of a stack and a group waits. It evaluates the newest state at the time of its claim, with the
// packs that the group has then, so later changes need no other one.
package evaluations

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// Locator returns an address from which the archive of a pack can be fetched without a token, for the time that an agent can
// need to start a job.
type Locator interface {
	LocationForJob(ctx context.Context, versionID string) (url string, err error)
}

// Results keeps what evaluations found.
type Results interface {
	// Evaluated records the results of an evaluation in its transaction, which holds the stack.
	Evaluated(tx *store.Tx, st store.Stack, e results.Evaluation) error
}

// Options are the options of [New]. A duration of 0 means the default.
type Options struct {
	Log     *logrus.Entry
	Locator Locator
	Results Results // nil: only the number of violations is kept
	// ExternalURL is the server's URL for jobs, without a trailing slash.
	ExternalURL string
	// Image is the image of the jobs.
	Image string

	Lease        time.Duration // silence that requeues an evaluation; 1 min
	QueueTimeout time.Duration // longest time in the queue; 7 days
	Sweep        time.Duration // interval of timer checks; 5 s
	Evidence     time.Duration // time for which an ended evaluation's log is accepted; 1 h
	Keep         int           // evaluations of a stack and group whose logs are kept; 10
	KeepFor      time.Duration // 30 days
}

func (o *Options) fill() {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&o.Lease, time.Minute},
		{&o.QueueTimeout, 7 * 24 * time.Hour},
		{&o.Sweep, 5 * time.Second},
		{&o.Evidence, time.Hour},
		{&o.KeepFor, 30 * 24 * time.Hour},
	} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	if o.Keep <= 0 {
		o.Keep = 10
	}
	if o.Image == "" {
		o.Image = deployments.DefaultImage
	}
}

const (
	// logLimit bounds the log of a step, in bytes. The runner bounds the output of packs, too.
	logLimit = 4 << 20
	logSync  = 200 * time.Millisecond
	// maxMessage is the maximum size of messages from agents and runners, in bytes.
	maxMessage = 2000
	// maxSilences is the number of claims after which an evaluation is abandoned, if the agent or the runner of each has
	// stopped reporting. The packs themselves may be what stops agents.
	maxSilences = 3
	// maxClaims is the number of claims, also of those that agents hand back, after which an evaluation is abandoned. Each
	// claim can have a log.
	maxClaims = 8
	// reportTime is the time after the limit of a job in which its runner must report the result.
	reportTime = 15 * time.Minute
)

// Service runs the queue of evaluations. Its methods may be called concurrently.
type Service struct {
	db   *store.DB
	opts Options
	log  *logrus.Entry
	logs *joblog.Store

	superseded superseded
}

// New returns a service on a database. The caller must start [Service.Run] for the background work.
func New(db *store.DB, o Options) *Service {
	o.fill()
	return &Service{db: db, opts: o, log: o.Log, logs: joblog.New(db.Blobs(), db.Shared(), logLimit, logSync, o.Log)}
}

// Topic is the channel of notifications about evaluations. Their payloads begin with that of [About].
const Topic = "policy-evaluations"

// About returns the payload of notifications about an evaluation, or about all of an organization if id is "".
func About(orgID, id string) string { return orgID + "/" + id }

// save stores the named columns of an evaluation. If none is named, it stores all columns and notifies pages.
func save(tx *store.Tx, e store.Evaluation, columns ...string) error {
	if len(columns) == 0 {
		tx.Notify(Topic, About(e.OrgID, e.ID))
	}
	return tx.SaveEvaluation(e, columns...)
}

// apply changes an evaluation's status in response to an event.
func apply(e *store.Evaluation, event workflow.Event, at time.Time) error {
	next, err := workflow.Next(workflow.TypePolicyEvaluation, e.Status, e.Reason, event)
	if err != nil {
		return err
	}
	e.Status, e.ModifiedAt = next, at
	return nil
}

func note(e *store.Evaluation, at time.Time, text string) {
	text = termtext.OneLine(text, maxMessage)
	if !slices.ContainsFunc(e.Notes, func(n store.Note) bool { return n.Text == text }) {
		e.Notes = append(e.Notes, store.Note{At: at, Text: text})
	}
}

// end ends an evaluation. The caller saves it in the same transaction, which must hold the stack.
func (s *Service) end(tx *store.Tx, e *store.Evaluation, event workflow.Event, reason workflow.Reason, message string, now time.Time) error {
	if err := apply(e, event, now); err != nil {
		return err
	}
	e.EndedAt, e.Reason, e.Message = now, reason, termtext.OneLine(message, maxMessage)
	if err := tx.ExpireJobTokens(e.ID, store.RunnerToken, now.Add(s.opts.Evidence)); err != nil {
		return err
	}
	if err := tx.DeleteJobTokens(e.ID, store.JobToken); err != nil {
		return err
	}
	log := s.log.WithFields(logrus.Fields{"job_id": e.ID, "status": e.Status, "reason": e.Reason})
	tx.OnCommit(func() { log.Info("policy evaluation ended") })
	tx.Notify(pools.QueueTopic, pools.OrgPayload(e.OrgID)) // another one of the stack and group may wait
	return nil
}

// requeue returns an evaluation to the queue, with the next epoch. If another one waits, which will evaluate the same
// state, the evaluation is not needed and ends.
func (s *Service) requeue(tx *store.Tx, e *store.Evaluation, now time.Time) error {
	again, err := tx.WaitsAgain(*e)
	if err != nil {
		return err
	}
	if again {
		const text = "A later evaluation of the stack waits, so this one is not tried again."
		note(e, now, text)
		if err := s.end(tx, e, workflow.EventFail, workflow.ReasonSuperseded, text, now); err != nil {
			return err
		}
		return save(tx, *e)
	}
	if e.Epoch >= maxClaims {
		text := fmt.Sprintf("%d agents claimed the evaluation, but none ended it. It is not tried again: check the agents' logs.", e.Epoch)
		note(e, now, text)
		if err := s.end(tx, e, workflow.EventAbandon, workflow.ReasonAbandoned, text, now); err != nil {
			return err
		}
		return save(tx, *e)
	}
	if err := apply(e, workflow.EventRequeue, now); err != nil {
		return err
	}
	for i, step := range e.Steps {
		e.Steps[i] = store.StepState{Name: step.Name, Status: workflow.StepNotStarted}
	}
	old := joblog.Claim(e.ID, e.Epoch)
	tx.OnCommit(func() { s.superseded.add(old) })
	e.Epoch++
	e.Version, e.Packs, e.Message = 0, nil, ""
	e.PollID, e.Stock, e.PoolID, e.Holder = "", false, "", ""
	e.AgentID, e.AgentHostname, e.AgentVersion, e.AgentPlatform = "", "", "", ""
	e.ClaimedAt, e.StartedAt, e.LastSeenAt = time.Time{}, time.Time{}, time.Time{}
	if err := tx.DeleteJobTokens(e.ID, store.JobToken); err != nil {
		return err
	}
	tx.Notify(pools.QueueTopic, pools.OrgPayload(e.OrgID))
	return save(tx, *e)
}

// current returns the evaluation to which a runner's token belongs. The token must match the evaluation in the path and
// its current epoch.
func current(tx *store.Tx, p identity.Principal, id string) (store.Evaluation, error) {
	if p.Kind != identity.KindRunner && p.Kind != identity.KindJob || p.JobID != id {
		return store.Evaluation{}, fault.New(fault.KindUnauthenticated, "this token is not for this job")
	}
	e, err := tx.Evaluation(id)
	if err != nil {
		return store.Evaluation{}, store.IfMissing(err, fault.New(fault.KindGone, "the policy evaluation no longer exists"))
	}
	if p.Epoch != e.Epoch {
		return store.Evaluation{}, fault.New(fault.KindGone, "the policy evaluation was requeued; this claim (epoch %d) is superseded by epoch %d", p.Epoch, e.Epoch)
	}
	return e, nil
}

func ended(e store.Evaluation) error {
	because := ""
	if e.Reason != workflow.ReasonNone {
		because = fmt.Sprintf(" (%s)", e.Reason)
	}
	return fault.New(fault.KindGone, "the policy evaluation has ended: %s%s", e.Status, because)
}
