// Package deployments runs deployments: their settings, queue, job claims and leases, definitions,
// logs and results. Every change to a job's status follows the transition table of package
// workflow, inside one database transaction.
package deployments

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/recent"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// Options are the options of [New]. A duration of 0 means the default.
type Options struct {
	Log         *logrus.Entry
	Secrets     *keyring.Ring
	Updates     *stacks.Service // nil: orphaned updates end with their leases
	Pools       *pools.Service
	Quota       *quota.Quota    // nil means no limit
	Issuer      *issuer.Service // issues the jobs' identity tokens; nil: jobs get none
	Evaluations Evaluations     // the queue of policy evaluations; nil: the server has none
	// Repositories are those of integrations; nil: the server has none.
	Repositories repositories

	// ExternalURL is the server's URL for jobs, without a trailing slash.
	ExternalURL string
	Console     links.Console // by default, the console of ExternalURL
	// DefaultImage is the image of jobs whose settings name none.
	DefaultImage string
	// Cap bounds the claimed and running jobs of an organization without its own quota; 0 means 150.
	Cap int64

	Lease        time.Duration // silence before the start that requeues a job; 1 min
	Lost         time.Duration // silence after the start that ends a job; 10 min
	Evidence     time.Duration // time for which a lost job's result can be corrected; 24 h
	QueueTimeout time.Duration // longest time in the queue; 7 days
	Sweep        time.Duration // interval of timer checks; 5 s
	LogSync      time.Duration // shortest interval of syncs of log to disk; 200 ms
	LogLimit     int64         // bytes of log per step; 1 GiB
}

// Default values of [Options].
const (
	DefaultImage = "pulumi/pulumi:latest"
	DefaultCap   = 150

	defaultLogLimit = 1 << 30
)

func (o *Options) fill() {
	o.Console = cmp.Or(o.Console, links.Of(o.ExternalURL))
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

// Service runs the queue. Its methods may be called concurrently.
type Service struct {
	db         *store.DB
	opts       Options
	log        *logrus.Entry
	logs       *joblog.Store
	dispatcher *dispatcher
	loads      recent.Map[*knownLoad] // by pool
	held       wakers                 // polls whose tokens might have become invalid
	readers    wakers                 // readers of logs
	writers    writers
	results    keyLocks
	uses       *prometheus.CounterVec // of workspaces
	unwatch    []func()
	nudge      chan struct{} // requests a sweep; capacity 1
	stopping   chan struct{} // closed to end held polls
	stop       sync.Once
}

// New returns a service on a database. The caller must start [Service.Run] for the background work.
func New(db *store.DB, o Options) *Service {
	o.fill()
	s := &Service{
		db: db, opts: o, log: o.Log,
		logs:  joblog.New(db.Blobs(), db.Shared(), o.LogLimit, o.LogSync, o.Log),
		nudge: make(chan struct{}, 1), stopping: make(chan struct{}),
		loads: recent.Map[*knownLoad]{Age: loadKept}, writers: writers{recent.Map[writer]{Age: writerAge}}, uses: newUses(),
	}
	s.dispatcher = newDispatcher(s.claim)
	s.unwatch = []func(){
		db.Subscribe(pools.QueueTopic, s.dispatcher.note),
		db.Subscribe(identity.PoolTokenTopic, s.held.note),
	}
	return s
}

// shutdown ends all held polls, makes the service hold no new ones, and waits for the goroutines
// that serve polls.
func (s *Service) shutdown() {
	s.stop.Do(func() {
		for _, unwatch := range s.unwatch {
			unwatch()
		}
		close(s.stopping)
	})
	s.dispatcher.close()
}

func addNote(j *store.Job, at time.Time, text string) {
	j.Notes = append(j.Notes, store.Note{At: at, Text: termtext.OneLine(text, maxMessage)})
}

// apply changes a job's status in response to an event. If the event ends the job, the caller must
// also call finish.
func apply(j *store.Job, e workflow.Event, at time.Time) error {
	next, err := workflow.Next(workflow.TypeDeployment, j.Status, j.Reason, e)
	if err != nil {
		return err
	}
	j.Status, j.ModifiedAt = next, at
	return nil
}

// maxMessage is the maximum size of messages from agents and runners, in bytes.
const maxMessage = 2000

// find returns a deployment by its id or version, because the stock CLI resolves versions only for
// some commands.
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
		return store.DeploymentJob{}, fault.NotFound("Deployment '%s' not found", termtext.OneLine(id, maxMessage))
	}
	return dj, err
}

// sealedFor returns the encryption scope of a stack's deployment secrets. It differs from the scope of
// pulumi's own stack secrets, so that a client that may decrypt stack secrets cannot decrypt
// deployment secrets.
func sealedFor(stackID string) string { return "deployments/" + stackID }
