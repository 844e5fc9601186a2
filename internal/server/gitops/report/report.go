// Package report shows the state of deployments in forges: as statuses or checks of commits, and as
// comments on pull requests. Package outbox records what is to be shown. A failure of a forge never
// affects a deployment; reports are repeated until the forge has their newest state.
package report

import (
	"cmp"
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/redact"
	"workflowagent/internal/retry"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/due"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/outbox"
)

const (
	// maxSenders is the maximum number of integrations to which a server reports at the same time.
	maxSenders = 8
	// poll is the interval of checks for due reports.
	poll = outbox.Delay
	// gather is the minimum time between two checks.
	gather = 100 * time.Millisecond
	// maxTurn is the maximum number of reports of an integration that are sent in a row while other
	// integrations might wait.
	maxTurn = 30
	// keep is the time after which an unchanged report is removed.
	keep = 90 * 24 * time.Hour
)

// Integration is a connection to a forge, and what its administrators want to see there.
type Integration struct {
	// Client shows reports if it implements [vcs.Reporter] or [vcs.Commenter].
	Client vcs.Repository
	// Folds reports whether the forge's Markdown can fold text.
	Folds bool
	// NoComments, NoDraftComments and NoDiff leave out comments, comments on drafts, and the changes
	// of single resources.
	NoComments, NoDraftComments, NoDiff bool
}

// stacks reads the results of updates.
type stacks interface {
	Changes(ctx context.Context, p identity.Principal, st store.Stack, u store.Update) (changes.Tree, error)
	ExportOutputs(ctx context.Context, stackID string) (*states.State, error)
}

// Options are the options of [New]. A duration of 0 means the default.
type Options struct {
	Log     *logrus.Entry
	Stacks  stacks
	Memory  *budget.Budget
	Console links.Console
	// Connect returns an integration, or an error that wraps [store.ErrNotFound] if it was removed.
	Connect func(ctx context.Context, integrationID string) (Integration, error)
	// Secrets returns the secrets of a deployment.
	Secrets func(ctx context.Context, deploymentID string) ([]redact.Secret, error)

	Spacing time.Duration // between two reports of an integration; 1 s
	Rewrite time.Duration // between two versions of a comment; 5 s
	Again   retry.Policy  // pauses after failures; from 5 s to 10 min
	GiveUp  time.Duration // after the last change of a report; 24 h
}

// Service sends reports. Its methods may be called concurrently.
type Service struct {
	db   *store.DB
	opts Options
	log  *logrus.Entry
}

// New returns a service on a database.
func New(db *store.DB, o Options) *Service {
	o.Spacing = cmp.Or(o.Spacing, time.Second)
	o.Rewrite = cmp.Or(o.Rewrite, 5*time.Second)
	o.GiveUp = cmp.Or(o.GiveUp, 24*time.Hour)
	if o.Again.First == 0 {
		o.Again = retry.Policy{First: 5 * time.Second, Max: 10 * time.Minute}
	}
	return &Service{db: db, opts: o, log: o.Log}
}

// Run sends due reports until ctx is canceled. Only one server may run it on a database, because it
// limits the number of requests to a forge.
func (s *Service) Run(ctx context.Context) error {
	return (&due.Loop{
		Log: s.log, Name: "reports to forges", KeyName: "integration", Notices: s.db, Topic: outbox.Topic,
		Every: min(poll, s.opts.Rewrite), Gather: gather, Most: maxSenders, Check: s.due,
	}).Run(ctx)
}

// due returns the integrations with due reports.
func (s *Service) due(ctx context.Context, _ []string) ([]due.Work, error) {
	ids, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]string, error) { return tx.DueVCSIntegrations(tx.Now()) })
	if err != nil {
		return nil, err
	}
	work := make([]due.Work, len(ids))
	for n, id := range ids {
		work[n] = due.Work{Key: id, Do: func(ctx context.Context) error { return s.send(ctx, id) }}
	}
	return work, nil
}

// Sweep removes old records.
func (s *Service) Sweep(ctx context.Context) error {
	err := s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) {
		return tx.DeleteOldVCSReports(tx.Now().Add(-keep), limit)
	})
	return fault.While(err, "removing old reports")
}
