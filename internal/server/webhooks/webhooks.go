// Package webhooks sends the events of stacks and environments to the receivers that users register. [Record] stores
// an event and its deliveries in the transaction in which the event happens. A [Service] manages
// webhooks and sends the deliveries.
package webhooks

import (
	"context"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// The formats of requests.
const (
	FormatRaw         = "raw"
	FormatSlack       = "slack"
	FormatTeams       = "ms_teams"
	FormatDeployments = "pulumi_deployments" // sends no request, but queues an update of another stack
)

// receivers sends requests.
type receivers interface {
	Post(ctx context.Context, address string, header map[string]string, body []byte) (outbound.Answer, error)
	CheckReceiver(address string) error
}

// Options are the options of [New].
type Options struct {
	Log       *logrus.Entry
	Secrets   *keyring.Ring
	Receivers receivers
	// Deploy queues a deployment in the caller's transaction. If it returns an error with a
	// [fault.Kind], it has changed nothing.
	Deploy func(ctx context.Context, tx *store.Tx, p identity.Principal, st store.Stack, r workflow.Request, initiator string) (store.Deployment, error)
	// Again are the pauses between the attempts of a delivery; zero means the default.
	Again retry.Policy
	// Rest are the pauses of a webhook whose receiver does not work; zero means the default.
	Rest retry.Policy
}

// Service manages webhooks and sends their deliveries. Its methods may be called concurrently.
type Service struct {
	db    *store.DB
	opts  Options
	log   *logrus.Entry
	asked asked
}

// New returns a service on a database. The caller must start [Service.Run] to send deliveries.
func New(db *store.DB, o Options) *Service {
	if o.Again.First == 0 {
		o.Again = againDefault
	}
	if o.Rest.First == 0 {
		o.Rest = restDefault
	}
	return &Service{db: db, opts: o, log: o.Log, asked: asked{byOrg: map[string]int{}}}
}

// sealedFor is the encryption scope of a webhook's secret.
func sealedFor(hookID string) string { return "webhooks/" + hookID }
