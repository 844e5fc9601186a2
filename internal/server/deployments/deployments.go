// Package deployments is the heart of the control plane: deployment settings,
// the queue, claims and leases of jobs, their definitions, logs and results.
//
// Every change of a job's status goes through the one transition table in
// package workflow, inside one database transaction.
package deployments

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// secrets encrypts what belongs to a stack. The scope is bound into the
// ciphertext.
type secrets interface {
	Encrypt(ctx context.Context, scope string, plaintext []byte) ([]byte, error)
	Decrypt(ctx context.Context, scope string, ciphertext []byte) ([]byte, error)
}

// updates ends what a dead runner left behind.
type updates interface {
	// FinishOrphanedUpdate ends the updates of a deployment that are still in
	// progress as failed. It is no error if there are none.
	FinishOrphanedUpdate(ctx context.Context, deploymentID, reason string) error
}

// Options of [New]. Durations of 0 mean the defaults.
type Options struct {
	Log     *logrus.Entry
	Secrets secrets
	Updates updates // nil: orphaned updates end when their lease does
	Pools   *pools.Service

	// ExternalURL is what jobs use to reach the server, without a trailing slash.
	ExternalURL string
	// DefaultImage is for deployments whose settings name no image.
	DefaultImage string
	// Cap bounds the claimed and running jobs of an organization; 0 means 150.
	Cap int64

	Lease        time.Duration // silence before leave that gives a job back; 1 min
	Lost         time.Duration // silence after leave that ends a job; 10 min
	Evidence     time.Duration // how long a lost job may still be corrected; 24 h
	QueueTimeout time.Duration // longest time in the queue; 7 days
	Sweep        time.Duration // interval of the checks of all timers; 5 s
	LogSync      time.Duration // longest time that log stays only in memory; 200 ms
	LogLimit     int64         // bytes of log per step; 1 GiB
}

// Default values of [Options].
const (
	DefaultImage = "pulumi/pulumi:latest"
	DefaultCap   = 150

	defaultLogLimit = 1 << 30
)

func (o *Options) fill() {
	d := func(v *time.Duration, def time.Duration) {
		if *v <= 0 {
			*v = def
		}
	}
	d(&o.Lease, time.Minute)
	d(&o.Lost, 10*time.Minute)
	d(&o.Evidence, 24*time.Hour)
	d(&o.QueueTimeout, 7*24*time.Hour)
	d(&o.Sweep, 5*time.Second)
	d(&o.LogSync, 200*time.Millisecond)
	if o.Cap <= 0 {
		o.Cap = DefaultCap
	}
	if o.LogLimit <= 0 {
		o.LogLimit = defaultLogLimit
	}
	if o.DefaultImage == "" {
		o.DefaultImage = DefaultImage
	}
}

// Service runs the queue. Methods may be called concurrently.
type Service struct {
	db         *store.DB
	opts       Options
	log        *logrus.Entry
	logs       *joblog.Store
	dispatcher *dispatcher
	claims     recent
	active     atMost
	held       wakers
	results    keyLocks
	unwatch    []func()
	nudge      chan struct{} // asks the sweeper to look now; capacity 1
	stopping   chan struct{} // closed when held polls are to end
	stop       sync.Once
}

// New returns a service on a database. It does its work while [Service.Run]
// runs.
func New(db *store.DB, o Options) *Service {
	o.fill()
	s := &Service{
		db: db, opts: o, log: o.Log,
		logs:  joblog.New(db.Blobs(), db.Shared(), o.LogLimit, o.LogSync, o.Log),
		nudge: make(chan struct{}, 1), stopping: make(chan struct{}), claims: recent{last: map[string]time.Time{}}, active: atMost{n: map[string]int64{}}, held: wakers{polls: map[chan struct{}]string{}},
	}
	s.dispatcher = newDispatcher(s.claim, s.handBack)
	s.unwatch = []func(){
		db.Subscribe(pools.QueueTopic, s.dispatcher.note),
		db.Subscribe(identity.PoolTokenTopic, s.held.note),
	}
	return s
}

// shutdown answers all held polls, lets no new one be held, and waits for the
// goroutines that serve them.
func (s *Service) shutdown() {
	s.stop.Do(func() {
		for _, unwatch := range s.unwatch {
			unwatch()
		}
		close(s.stopping)
	})
	s.dispatcher.close()
}

// addNote adds a line of the server to the job's log.
func addNote(j *store.Job, at time.Time, text string) {
	j.Notes = append(j.Notes, store.Note{At: at, Text: termtext.OneLine(text, maxMessage)})
}

// apply moves a job by an event. Where the event ends the job, finish does the
// rest.
func apply(j *store.Job, e workflow.Event, at time.Time) error {
	next, err := workflow.Next(j.Status, j.Reason, e)
	if err != nil {
		return err
	}
	j.Status, j.ModifiedAt = next, at
	return nil
}

// maxMessage bounds messages that come from agents and runners, in bytes.
const maxMessage = 2000

// find returns a deployment of a stack by id or, as users type it, by number:
// the stock CLI resolves numbers only for some of its commands.
func find(tx *store.Tx, st store.Stack, id string) (store.DeploymentJob, error) {
	if version, err := strconv.ParseInt(strings.TrimPrefix(id, "#"), 10, 64); err == nil {
		d, err := tx.DeploymentByVersion(st.ID, version)
		if err == nil {
			id = d.ID
		} else if !errors.Is(err, store.ErrNotFound) {
			return store.DeploymentJob{}, err
		}
	}
	dj, err := tx.DeploymentJob(id)
	if errors.Is(err, store.ErrNotFound) || err == nil && dj.StackID != st.ID {
		return store.DeploymentJob{}, fault.NotFound("Not Found: Deployment '%s' not found", termtext.OneLine(id, maxMessage))
	}
	return dj, err
}

// scope is what the secrets of a stack's deployments are bound to. It differs
// from what pulumi's own secrets of the stack are bound to, so that a client that may
// decrypt those cannot decrypt these.
func scope(stackID string) string { return "deployments/" + stackID }
