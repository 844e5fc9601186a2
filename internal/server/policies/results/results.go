// Package results keeps what policy packs find in stacks: the results of updates and evaluations, the issues that stay
// open until they are fixed, and the newest result of each pack for each stack.
//
// The client runs the packs of an update and reports their results in its events. [Service.Begin] records which packs it
// must run, in the transaction that creates the update; [Service.Recorded] reads the events in the transaction that
// stores them; [Service.Ended] closes issues, in the transaction that ends the update, with a fixed number of statements.
// So results cost no transaction. A client that lies about its results cannot be found out here.
package results

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// Bounds of what is kept of an update.
const (
	maxRows  = 1000 // violations
	maxPacks = 100
	// maxIssues bounds the issues of a stack that updates, and that evaluations, open: those that are not fixed, and also
	// the fixed ones.
	maxIssues = 5000
	// keepFixed is the time for which fixed issues are kept.
	keepFixed = 90 * 24 * time.Hour
)

// Options are the options of [New].
type Options struct {
	Log     *logrus.Entry
	Console links.Console
}

// Service keeps results. Its methods may be called concurrently.
type Service struct {
	db          *store.DB
	log         *logrus.Entry
	console     links.Console
	violations  *prometheus.CounterVec
	unevaluated prometheus.Counter
}

// New returns a service on a database.
func New(db *store.DB, o Options) *Service {
	return &Service{
		db: db, log: o.Log, console: o.Console,
		violations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "workflow_server_policy_violations_total", Help: "Violations of policies that updates and previews have reported to this server at their ends, by level: mandatory, advisory, or excepted if an exception applies.",
		}, []string{"level"}),
		unevaluated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "workflow_server_policy_unevaluated_total", Help: "Updates and previews that ended on this server without a required policy pack.",
		}),
	}
}

// Metrics returns the collectors of the metrics.
func (s *Service) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.violations, s.unevaluated}
}

// Begin returns the packs that an update must obey, with the exceptions that apply, and records them. Call it in the
// transaction that creates the update. Only previews and updates run packs: what destroys or refreshes a stack is never
// blocked, and needs no pack.
func (s *Service) Begin(tx *store.Tx, st store.Stack, u store.Update) ([]policies.Required, error) {
	if u.Kind != string(stacks.KindUpdate) && u.Kind != string(stacks.KindPreview) {
		return nil, nil
	}
	required, err := policies.PacksOf(tx, st, policies.Preventative)
	if err != nil {
		return nil, err
	}
	if err := exceptions.Apply(tx, st, required); err != nil {
		return nil, err
	}
	for _, r := range required {
		err := tx.SavePolicyRun(store.PolicyRun{
			UpdateID: u.ID, Pack: r.PackName, PackID: r.PackID, Number: r.Number, Tag: r.Tag, Group: r.GroupName, Levels: r.Policies, Covered: r.Covered,
		})
		if err != nil {
			return nil, err
		}
	}
	return required, nil
}

// Sweep removes issues that were fixed long ago.
func (s *Service) Sweep(ctx context.Context) error {
	err := s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) {
		return tx.DeleteOldIssues(tx.Now().Add(-keepFixed), limit)
	})
	return fault.While(err, "removing fixed policy issues")
}

// hashOf returns the part of an issue's key that stands for its message.
func hashOf(message string) string {
	sum := sha256.Sum256([]byte(message))
	return hex.EncodeToString(sum[:16])
}
