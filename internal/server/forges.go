package server

import (
	"context"
	"time"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/environments/source"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/gitops/report"
	"workflowagent/internal/server/gitops/review"
	"workflowagent/internal/server/gitops/sources"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/catalog"
	"workflowagent/internal/server/vcs/integrations"
)

// newIntegrations returns the service that connects organizations to forges.
func (s *Server) newIntegrations(secrets *keyring.Ring) *integrations.Service {
	return integrations.New(s.db, integrations.Options{Log: s.logOf("integrations"), Secrets: secrets, Forges: catalog.Forges(), ExternalURL: s.cfg.ExternalURL, Reach: s.cfg.Reach()})
}

// newDispatch returns the service that deploys what forges report, and adds its background work.
func (s *Server) newDispatch(forges *integrations.Service, service *deployments.Service, memory *budget.Budget, synced *sources.Service) *dispatch.Service {
	reviews := review.New(s.db, review.Options{Log: s.logOf("review-stacks"), Queue: service, Stacks: s.stacks})
	events := dispatch.New(s.db, dispatch.Options{
		Log: s.logOf("forges"), Integrations: forges, Queue: service, Interval: s.cfg.ForgePoll,
		Reviewed: reviews.Reviewed, Heard: synced.Heard,
	})
	reports := report.New(s.db, report.Options{
		Log: s.logOf("reports"), Stacks: s.stacks, Memory: memory, Console: s.cfg.Console(), Secrets: s.knownSecrets(service),
		Connect: func(ctx context.Context, id string) (report.Integration, error) {
			return connect(ctx, s.db, forges, id)
		},
	})
	s.subsystems = append(
		s.subsystems,
		Subsystem{Name: "forge-events", Exclusive: true, Run: events.Run},
		Subsystem{Name: "forge-polls", Exclusive: true, Run: events.Poll},
		Subsystem{Name: "forge-reports", Exclusive: true, Run: reports.Run},
		Subsystem{Name: "review-stacks", Exclusive: true, Run: reviews.Run},
		Subsystem{Name: "forge-records", Exclusive: true, Run: func(ctx context.Context) error {
			return every(ctx, time.Hour, func(ctx context.Context) error {
				if err := events.Sweep(ctx); err != nil {
					return err
				}
				return reports.Sweep(ctx)
			})
		}},
	)
	return events
}

// newSources returns the service that synchronizes environments with repositories, and adds its background work.
func (s *Server) newSources(forges *integrations.Service, definitions *source.Service, memory *budget.Budget) *sources.Service {
	service := sources.New(s.db, sources.Options{
		Log: s.logOf("environment-sources"), Integrations: forges, Sources: definitions, Memory: memory, Console: s.cfg.Console(), Interval: s.cfg.ForgePoll,
	})
	s.subsystems = append(s.subsystems, Subsystem{Name: "environment-sources", Exclusive: true, Run: service.Run})
	return service
}

// connect returns an integration as reports use it.
func connect(ctx context.Context, db *store.DB, forges *integrations.Service, id string) (to report.Integration, err error) {
	i, err := store.Read(ctx, db, func(tx *store.Tx) (store.VCSIntegration, error) { return tx.Integration(id) })
	if err != nil {
		return to, err
	}
	set, err := integrations.SettingsOf(i)
	if err != nil {
		return to, err
	}
	to = report.Integration{
		Folds: i.Provider != vcs.ProviderBitbucket, NoComments: set.DisableComments, NoDraftComments: set.DisableDraftComments, NoDiff: set.DisableDiff,
	}
	to.Client, err = forges.Client(ctx, i)
	return to, err
}
