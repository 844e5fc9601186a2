package server

import (
	"time"

	"workflowagent/internal/server/api"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/oidc"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
)

// newDeployments builds the domains of deployments and agent pools.
func newDeployments(c *components) ([]api.Domain, []Subsystem) {
	poolService := pools.New(c.db, c.log.WithField("subsystem", "pools"))
	service := deployments.New(c.db, deployments.Options{
		Log:          c.log.WithField("subsystem", "deployments"),
		Secrets:      c.stacks.Secrets(),
		Updates:      c.stacks,
		Pools:        poolService,
		ExternalURL:  c.cfg.ExternalURL,
		DefaultImage: c.cfg.DefaultImage,
		Cap:          c.cfg.MaxDeployments,
		Lease:        c.cfg.JobLease,
		Lost:         c.cfg.JobLost,
		Sweep:        sweepInterval(c.cfg),
	})
	c.stacks.Follow(stacks.Hooks{
		LinkUpdate: service.LinkUpdate, MayWrite: service.MayWrite, UpdateFinished: service.UpdateFinished, KnownSecrets: service.KnownSecrets,
	})
	domains := []api.Domain{
		api.PoolRoutes(poolService, c.identity),
		api.SettingsRoutes(service),
		api.DeploymentRoutes(service, c.stacks),
		api.AgentRoutes(service, embeddedRunner(), c.cfg.ExternalURL),
		api.JobRoutes(service),
		api.OIDCRoutes(oidc.New(c.db, new(outbound.Client), c.log.WithField("subsystem", "oidc"))),
	}
	if c.cfg.Releases != "" {
		domains = append(domains, api.ReleaseRoutes(c.cfg.Releases))
	}
	return domains, []Subsystem{{Name: "deployments", Run: service.Run}}
}

// sweepInterval is how often timers are checked and the server notes that it is
// up. Timers that are set to seconds need more of it: a pause of three intervals
// is not given back to a lease.
func sweepInterval(cfg Config) time.Duration {
	return min(5*time.Second, max(50*time.Millisecond, min(cfg.JobLease/5, cfg.JobLost/5, cfg.UpdateLease/20)))
}
