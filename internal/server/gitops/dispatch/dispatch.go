// Package dispatch turns what forges say into deployments. Deliveries and polls become durable
// events. A worker asks the forge what is true now, decides for each stack that watches the
// repository, and records the decisions in the transaction that creates the deployments, so that an
// event is neither lost nor processed twice when a server stops.
package dispatch

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/gitops/review"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

// Topic is the notification channel for new events, and Processed for those that were processed or
// postponed. The payload is the integration's id.
const (
	Topic     = "vcs-event"
	Processed = "vcs-event-processed"
)

// The sources of events.
const (
	SourceWebhook   = "webhook"
	SourcePoll      = "poll"
	SourceRecovered = "recovered" // a delivery that the forge could not hand over
	SourceAPI       = "api"
)

// Options are the options of [New].
type Options struct {
	Log          *logrus.Entry
	Integrations *integrations.Service
	Queue        *deployments.Service
	// Reviewed is called in the transaction that records the decisions about a pull request; nil if
	// the server has no review stacks.
	Reviewed func(ctx context.Context, tx *store.Tx, c review.Change) error
	// Heard is called in the transaction that stores a delivery, for each event about a repository. It reports whether the
	// event matters for something else than stacks; nil if there is nothing else.
	Heard func(tx *store.Tx, i store.VCSIntegration, e vcs.Event) (bool, error)
	// Interval is the time between the polls of a repository whose forge sends no deliveries; zero
	// means a minute.
	Interval time.Duration
}

// Service receives, polls for and processes events. Its methods may be called concurrently.
type Service struct {
	db   *store.DB
	opts Options
	log  *logrus.Entry
}

// New returns a service on a database. The caller must start [Service.Run] and [Service.Poll], each
// on only one of the servers that share the database.
func New(db *store.DB, o Options) *Service {
	if o.Interval <= 0 {
		o.Interval = time.Minute
	}
	return &Service{db: db, opts: o, log: o.Log}
}

// watchOf returns the domain's form of a watch.
func watchOf(w store.VCSWatch, r store.VCSRepo) vcs.Watch {
	return vcs.Watch{
		StackID: w.StackID, OrgID: w.OrgID, Project: w.Project, Stack: w.Stack, IntegrationID: w.IntegrationID, Repo: repoID(r), Branch: w.Branch,
		DeployCommits: w.DeployCommits, PreviewPulls: w.PreviewPulls, Template: w.Template, DeployTags: w.DeployTags, DeployPull: int(w.DeployPull),
		Paths: w.Paths, TagFilters: w.TagFilters, Labels: w.Labels,
	}
}

func repoID(r store.VCSRepo) vcs.RepoID { return vcs.RepoID{ID: r.RemoteID, Name: r.Name} }
