package server

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/config"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/store"
)

// newPolicies returns the service of policy packs.
func newPolicies(cfg config.Config, db *store.DB, secrets *keyring.Ring, limit *quota.Quota, log *logrus.Entry) (*policies.Service, error) {
	key, err := secrets.Derive(policies.AddressPurpose)
	return policies.New(db, policies.Options{Log: log, Key: key, ExternalURL: cfg.ExternalURL, MaxBytes: cfg.PolicyPackSize, Quota: limit}), err
}

// newEvaluations returns the queue of policy evaluations, which follows changes of groups.
func (s *Server) newEvaluations(packs *policies.Service) *evaluations.Service {
	service := evaluations.New(s.db, evaluations.Options{
		Log: s.logOf("policy-evaluations"), Locator: packs, Results: s.results, ExternalURL: s.cfg.ExternalURL, Image: s.cfg.DefaultImage,
		Lease: s.cfg.JobLease, Sweep: min(5*time.Second, max(50*time.Millisecond, s.cfg.JobLease/5)),
	})
	packs.Follow(policies.Hooks{
		Except:       exceptions.Apply,
		GroupChanged: func(_ context.Context, tx *store.Tx, g store.PolicyGroup) error { return service.GroupChanged(tx, g) },
	})
	return service
}
