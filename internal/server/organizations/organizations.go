// Package organizations contains what administrators of the server do with organizations as a whole: see how much
// belongs to them, limit them and delete them. It reads nothing that is in them.
package organizations

import (
	"context"
	"slices"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/words"
)

// Service describes, limits and deletes organizations.
type Service struct {
	db          *store.DB
	log         *logrus.Entry
	quota       *quota.Quota
	deployments int64
}

// New returns a service. storage and deployments are the limits of organizations without their own.
func New(db *store.DB, log *logrus.Entry, storage *quota.Quota, deployments int64) *Service {
	return &Service{db: db, log: log, quota: storage, deployments: deployments}
}

// Summary is an organization with the numbers of what belongs to it.
type Summary struct {
	store.Organization
	// Former are the former names, newest first.
	Former  []string
	Content store.OrganizationContent
	// StorageLimit in bytes and DeploymentLimit apply to the organization: its own, or the server's. 0 means no limit.
	StorageLimit, DeploymentLimit int64
}

// List returns all organizations, oldest first.
func (s *Service) List(ctx context.Context) ([]Summary, error) {
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]Summary, error) {
		orgs, err := tx.Organizations()
		if err != nil {
			return nil, err
		}
		former, err := tx.FormerNames()
		if err != nil {
			return nil, err
		}
		list := make([]Summary, len(orgs))
		for i, o := range orgs {
			if list[i], err = s.describe(tx, o, former[o.ID]); err != nil {
				return nil, err
			}
		}
		return list, nil
	})
	return list, fault.While(err, "listing organizations")
}

// Get returns an organization by its name, or by a former one.
func (s *Service) Get(ctx context.Context, name string) (Summary, error) {
	found, err := store.Read(ctx, s.db, func(tx *store.Tx) (found Summary, err error) {
		o, err := tx.OrganizationByName(name)
		if err != nil {
			return found, store.IfMissing(err, missing(name))
		}
		former, err := tx.FormerNames()
		if err != nil {
			return found, err
		}
		return s.describe(tx, o, former[o.ID])
	})
	return found, fault.While(err, "describing an organization")
}

func missing(name string) error {
	return fault.NotFound("the organization %q does not exist", name)
}

func (s *Service) describe(tx *store.Tx, o store.Organization, former []string) (Summary, error) {
	content, err := tx.OrganizationContent(o.ID, tx.Now().Add(-pools.Silence))
	limit := s.deployments
	if o.DeploymentQuota > 0 {
		limit = o.DeploymentQuota
	}
	return Summary{Organization: o, Former: former, Content: content, StorageLimit: s.quota.Of(o.StorageQuota), DeploymentLimit: limit}, err
}

// Quotas are an organization's own limits. nil leaves a limit as it is, and 0 is the server's.
type Quotas struct {
	Storage     *int64 // bytes; [store.NoQuota] is none
	Deployments *int64 // at the same time
}

const (
	maxStorage     = 1 << 60
	maxDeployments = 100_000
)

// SetQuotas changes the limits of an organization. More deployments than a new limit continue; the next one waits.
func (s *Service) SetQuotas(ctx context.Context, name string, q Quotas) (Summary, error) {
	if q.Storage != nil && (*q.Storage < store.NoQuota || *q.Storage > maxStorage) {
		return Summary{}, fault.Invalid("the quota of storage must be a number of bytes, 0 for the server's, or -1 for none")
	}
	if q.Deployments != nil && (*q.Deployments < 0 || *q.Deployments > maxDeployments) {
		return Summary{}, fault.Invalid("the quota of deployments must be from 1 to %d, or 0 for the server's", maxDeployments)
	}
	found, err := s.Get(ctx, name)
	if err != nil {
		return found, err
	}
	err = s.db.Write(ctx, scope.Organization(found.ID), func(tx *store.Tx) error {
		o, err := tx.Organization(found.ID)
		if err != nil {
			return store.IfMissing(err, missing(name))
		}
		detail := map[string]any{}
		if q.Storage != nil && *q.Storage != o.StorageQuota {
			detail["storage"], o.StorageQuota = *q.Storage, *q.Storage
		}
		if q.Deployments != nil && *q.Deployments != o.DeploymentQuota {
			detail["deployments"], o.DeploymentQuota = *q.Deployments, *q.Deployments
		}
		if len(detail) == 0 {
			return nil
		}
		if err := tx.SetQuotas(o.ID, o.StorageQuota, o.DeploymentQuota); err != nil {
			return err
		}
		tx.Notify(pools.QueueTopic, pools.OrgPayload(o.ID)) // more deployments can start
		return audit.Record(ctx, tx, audit.Entry{OrgID: o.ID, Action: audit.QuotasSet, Subject: subject(o), Detail: detail})
	})
	if err != nil {
		return found, fault.While(err, "setting the quotas of an organization")
	}
	return s.Get(ctx, found.Name)
}

func subject(o store.Organization) audit.Subject {
	return audit.Subject{Kind: "organization", ID: o.ID, Name: o.Name}
}

// Delete removes an organization with all that belongs to it. typed must be its name. Its access ends at
// once. [Service.Purge] removes what it stored.
func (s *Service) Delete(ctx context.Context, id, typed string) (deleted store.Organization, lost store.OrganizationContent, err error) {
	// What is lost is counted before the write, for which all others wait.
	err = s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if deleted, err = deletable(tx, id); err != nil {
			return err
		}
		if lost, err = tx.OrganizationContent(id, tx.Now().Add(-pools.Silence)); err == nil && typed != deleted.Name {
			err = fault.Invalid("nothing was deleted: to delete the organization %q with %s, name it once more, exactly like this", deleted.Name, Sum(lost))
		}
		return err
	})
	if err != nil {
		return deleted, lost, fault.While(err, "deleting an organization")
	}
	err = s.db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		if deleted, err = deletable(tx, id); err != nil {
			return err
		}
		if typed != deleted.Name {
			return fault.Conflict("nothing was deleted: the organization has the name %q now", deleted.Name)
		}
		if err := tx.DeleteOrganization(deleted, tx.Now()); err != nil {
			return err
		}
		tx.Notify(identity.PoolTokenTopic, id) // held polls of its agents end
		tx.Notify(identity.SessionTopic, "")   // open pages of its members end
		// The organization's own audit log ends with it.
		return audit.Record(ctx, tx, audit.Entry{Action: audit.OrganizationDeleted, Subject: subject(deleted), Detail: map[string]any{
			"members": lost.Members, "stacks": lost.Stacks, "resources": lost.Resources, "deployments": lost.Deployments, "pools": lost.Pools, "bytes": lost.StoredBytes,
		}})
	})
	return deleted, lost, fault.While(err, "deleting an organization")
}

// deletable returns an organization, or an error if it cannot be deleted.
func deletable(tx *store.Tx, id string) (store.Organization, error) {
	orgs, err := tx.Organizations()
	if err != nil {
		return store.Organization{}, err
	}
	i := slices.IndexFunc(orgs, func(o store.Organization) bool { return o.ID == id })
	if i < 0 {
		return store.Organization{}, fault.NotFound("the organization does not exist any more")
	}
	o := orgs[i]
	active, updating, err := tx.RunningInOrganization(id)
	switch {
	case err != nil:
		return o, err
	case active+updating > 0:
		return o, fault.Conflict("the organization %q has %s and %s; wait until they end, or cancel them",
			o.Name, words.Count(active, "running deployment"), words.Count(updating, "running update"))
	case len(orgs) == 1:
		return o, fault.Conflict("%q is the last organization of the server; create another one first: workflow-server org create NAME --admin LOGIN", o.Name)
	}
	return o, nil
}

// Part is one kind of what is lost with an organization.
type Part struct {
	Text string // such as "3 stacks"
	Note string
}

// Parts describes what is lost with an organization.
func Parts(c store.OrganizationContent) []Part {
	return []Part{
		{words.Count(c.Stacks, "stack"), "with their states, secrets, configuration and history"},
		{words.Count(c.DeletedStacks, "deleted stack"), "which could still be restored"},
		{words.Count(c.Resources, "resource"), "in these states. They continue to exist at the cloud providers, where pulumi does not know them any more"},
		{words.Count(c.Updates, "update"), ""},
		{words.Count(c.Deployments, "deployment"), "with their logs; " + words.Number(c.Queued) + " of them are queued and never run"},
		{words.Count(c.Schedules, "schedule"), ""},
		{words.Count(c.Pools, "agent pool"), "with " + words.Count(c.Agents, "connected agent") + ", which cannot connect any more"},
		{words.Count(c.Tokens, "token"), "of the organization, its teams and its pools"},
		{words.Count(c.Webhooks, "webhook"), ""},
		{words.Count(c.Integrations, "integration"), "with git hosts"},
		{words.Count(c.Issuers, "issuer"), "of identity tokens that the organization trusts"},
		{words.Count(c.PolicyPacks, "policy pack"), ""},
		{words.Count(c.Environments, "environment"), ""},
		{words.Count(c.Teams, "team"), ""},
		{words.Count(c.Members, "member"), "whose users remain. Those without another organization cannot sign in"},
		{words.Bytes(c.StoredBytes), "of states, events, logs, policy packs and long texts"},
	}
}

// Sum returns [Parts] without notes, in one line.
func Sum(c store.OrganizationContent) string {
	parts := Parts(c)
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.Text
	}
	return words.And(texts)
}
