package server

import (
	"time"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
)

func newDeployments(c *components, poolService *pools.Service) *deployments.Service {
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
	return service
}

// sweepInterval returns the interval of timer checks and beats. Leases of seconds need a short one,
// because a pause of up to three intervals does not extend a lease.
func sweepInterval(cfg Config) time.Duration {
	return min(5*time.Second, max(50*time.Millisecond, min(cfg.JobLease/5, cfg.JobLost/5, cfg.UpdateLease/20)))
}
