package server

import (
	"context"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/guard"
	"workflowagent/internal/retry"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/storage/retention"
	"workflowagent/internal/server/store"
)

// Subsystem is named background work.
type Subsystem struct {
	Name string
	// Run works until ctx is canceled. If it returns or panics earlier, it is restarted after a
	// delay.
	Run func(ctx context.Context) error
	// Exclusive work runs on only one of the servers that share a database.
	Exclusive bool
}

// Only omits background work, except the named one. Tests call it before [Server.Run], so that nothing happens that
// they do not expect.
func (s *Server) Only(names ...string) {
	s.subsystems = slices.DeleteFunc(s.subsystems, func(sub Subsystem) bool { return !slices.Contains(names, sub.Name) })
}

// held are the subsystems that start deployments or change something outside of the server, and the one that removes what
// has become old since the backup. A restored server does not run them before its release.
var held = []string{"schedules", "webhooks", "forge-events", "forge-polls", "forge-reports", "review-stacks", "environment-sources", "retention"}

func (s *Server) hold(r *recovery.Service) {
	for i, sub := range s.subsystems {
		if slices.Contains(held, sub.Name) {
			s.subsystems[i].Run = r.Hold(sub.Run)
		}
	}
}

var restart = retry.Policy{First: time.Second, Max: time.Minute}

func supervise(ctx context.Context, log *logrus.Entry, db *store.DB, sub Subsystem) {
	run := sub.Run
	if sub.Exclusive {
		run = func(ctx context.Context) error { return db.Exclusive(ctx, sub.Name, sub.Run) }
	}
	for failures := 0; ; failures++ {
		began := time.Now()
		err := guard.Run(func() error { return run(ctx) })
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > restart.Max {
			failures = 0
		}
		pause := restart.Pause(failures, nil)
		log.WithError(err).WithField("again_in", pause.Round(time.Millisecond).String()).Error("background work stopped; restarting it")
		if retry.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// every calls work at an interval, jittered by a tenth, until ctx is canceled.
func every(ctx context.Context, interval time.Duration, work func(context.Context) error) error {
	for {
		if err := work(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		if retry.Sleep(ctx, retry.Spread(interval)) != nil {
			return nil //nolint:nilerr // the end of ctx is not an error
		}
	}
}

func (s *Server) ownSubsystems() []Subsystem {
	sweep := min(30*time.Second, max(100*time.Millisecond, s.cfg.UpdateLease/10))
	keep := retention.New(s.db, s.logOf("retention"), s.stacks, retention.Policy{
		States: s.cfg.KeepStates, StatesFor: s.cfg.KeepStatesFor, LogsFor: s.cfg.KeepLogsFor, DeletedFor: s.cfg.KeepDeletedStacks,
	})
	own := []Subsystem{
		// Every server runs this, so that a hung server does not block the others.
		{Name: "update-leases", Run: func(ctx context.Context) error {
			return every(ctx, sweep, func(ctx context.Context) error {
				n, err := s.stacks.ExpireLeases(ctx)
				if n > 0 {
					s.log.WithField("updates", n).Info("ended updates whose clients are gone")
				}
				return err
			})
		}},
		// Every server runs this, to fold the journals of the updates that it finished.
		{Name: "journals", Run: s.stacks.FoldJournals},
		{Name: "references", Exclusive: true, Run: s.stacks.FollowReferences},
		{Name: "unnamed-states", Exclusive: true, Run: func(ctx context.Context) error {
			return every(ctx, time.Hour, func(ctx context.Context) error {
				n, err := s.stacks.SweepStates(ctx)
				if n > 0 {
					s.log.WithField("states", n).Info("removed unreferenced states")
				}
				return err
			})
		}},
		{Name: "retention", Exclusive: true, Run: func(ctx context.Context) error { return every(ctx, time.Hour, keep.Sweep) }},
		{Name: "storage", Exclusive: true, Run: func(ctx context.Context) error { return every(ctx, time.Minute, s.quota.Measure) }},
		{Name: "deleted-organizations", Exclusive: true, Run: func(ctx context.Context) error { return every(ctx, time.Minute, s.organizations.Purge) }},
		{Name: "schedules", Exclusive: true, Run: s.triggers.Run},
		{Name: "schedule-events", Exclusive: true, Run: func(ctx context.Context) error { return every(ctx, time.Hour, s.triggers.Forget) }},
		{Name: "signing-keys", Exclusive: true, Run: func(ctx context.Context) error { return every(ctx, time.Hour, s.issuer.Maintain) }},
		{Name: "expired-tokens", Exclusive: true, Run: func(ctx context.Context) error {
			return every(ctx, time.Hour, s.identity.DeleteExpired)
		}},
	}
	if s.db.Shared() {
		own = append(own, newSkewWatch(s.db, s.logOf("clock"), s.metrics).subsystem())
	}
	return own
}
