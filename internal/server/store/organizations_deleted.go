package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// OrganizationContent counts what belongs to an organization.
type OrganizationContent struct {
	Members, Teams, Tokens     int64
	Stacks, Resources, Updates int64
	DeletedStacks              int64 // that can still be restored
	Deployments, Schedules     int64
	Pools                      int64
	// Agents are those of its pools that are online.
	Agents                          int64
	Webhooks, Integrations, Issuers int64
	PolicyPacks, Environments       int64
	// StoredBytes is what the last measurement found.
	StoredBytes int64
	// Queued are waiting jobs. Active are claimed and running jobs, and Updating running updates and previews of the
	// CLI: an organization with them cannot be deleted.
	Queued, Active, Updating int64
}

// stacksOfOrg selects the ids of an organization's stacks, also of deleted ones that remain.
const stacksOfOrg = "SELECT id FROM live_stacks WHERE org_id = $1 UNION ALL SELECT stack_id FROM deleted_stacks WHERE org_id = $1"

// OrganizationContent counts what belongs to an organization. Agents that have been silent since before online are not
// counted.
func (tx *Tx) OrganizationContent(orgID string, online time.Time) (OrganizationContent, error) {
	return database.One(tx.Tx, func(scan database.Scan) (c OrganizationContent, err error) {
		err = scan(&c.Members, &c.Teams, &c.Tokens, &c.Stacks, &c.DeletedStacks, &c.Resources, &c.Updates, &c.Deployments, &c.Schedules, &c.Pools, &c.Agents,
			&c.Webhooks, &c.Integrations, &c.Issuers, &c.PolicyPacks, &c.Environments, &c.StoredBytes, &c.Queued, &c.Active, &c.Updating)
		return c, err
	}, `SELECT
		(SELECT COUNT(*) FROM members WHERE org_id = $1),
		(SELECT COUNT(*) FROM teams WHERE org_id = $1),
		(SELECT COUNT(*) FROM tokens WHERE org_id = $1 AND kind IN ('org', 'team', 'pool')),
		(SELECT COUNT(*) FROM live_stacks WHERE org_id = $1),
		(SELECT COUNT(*) FROM deleted_stacks WHERE org_id = $1 AND purged = 0),
		(SELECT CAST(COALESCE(SUM(resource_count), 0) AS BIGINT) FROM live_stacks WHERE org_id = $1),
		(SELECT COUNT(*) FROM updates WHERE stack_id IN (`+stacksOfOrg+`)),
		(SELECT COUNT(*) FROM deployments WHERE org_id = $1),
		(SELECT COUNT(*) FROM schedules c JOIN live_stacks s ON s.id = c.stack_id WHERE s.org_id = $1 AND c.fired = 0),
		(SELECT COUNT(*) FROM agent_pools WHERE org_id = $1),
		(SELECT COUNT(*) FROM pool_agents a JOIN agent_pools p ON p.id = a.pool_id WHERE p.org_id = $1 AND a.live_until > 0 AND a.last_seen_at > $2),
		(SELECT COUNT(*) FROM webhooks WHERE org_id = $1),
		(SELECT COUNT(*) FROM vcs_integrations WHERE org_id = $1),
		(SELECT COUNT(*) FROM oidc_issuers WHERE org_id = $1),
		(SELECT COUNT(*) FROM policy_packs p WHERE p.org_id = $1 AND EXISTS (SELECT 1 FROM policy_pack_versions v WHERE v.pack_id = p.id AND v.status = 'complete')),
		(SELECT COUNT(*) FROM environments WHERE org_id = $1),
		(SELECT CAST(COALESCE(SUM(measured + imported), 0) AS BIGINT) FROM organization_storage WHERE org_id = $1),
		(SELECT COUNT(*) FROM jobs WHERE org_id = $1 AND status = 'not-started'),
		(SELECT COUNT(*) FROM jobs WHERE org_id = $1 AND status IN ('accepted', 'running')),
		(SELECT COUNT(*) FROM updates u JOIN live_stacks s ON s.id = u.stack_id WHERE s.org_id = $1 AND u.status = 'running')`, orgID, online)
}

// RunningInOrganization returns the numbers of an organization's claimed and running jobs, and of its running updates.
func (tx *Tx) RunningInOrganization(orgID string) (active, updating int64, err error) {
	_, err = database.One(tx.Tx, func(scan database.Scan) (struct{}, error) { return struct{}{}, scan(&active, &updating) }, `SELECT
		(SELECT COUNT(*) FROM jobs WHERE org_id = $1 AND status IN ('accepted', 'running')),
		(SELECT COUNT(*) FROM updates u JOIN live_stacks s ON s.id = u.stack_id WHERE s.org_id = $1 AND u.status = 'running')`, orgID)
	return active, updating, err
}

// DeleteOrganization ends the existence of an organization: no name finds it, no user belongs to it, no token is valid
// for it, and nothing of it starts any more. No other organization can have its names, because cloud providers can still
// trust identity tokens with them; see [Tx.FreeName]. What it stores remains for [Tx.PurgeOrganization]. Users who belong to no
// other organization are signed out.
func (tx *Tx) DeleteOrganization(o Organization, at time.Time) error {
	if err := tx.ExecOne("UPDATE organizations SET name = '/deleted-' || id, display_name = '', deleted_at = $2 WHERE id = $1 AND deleted_at = 0", o.ID, at); err != nil {
		return err
	}
	if err := tx.keepName(o, deletedOrg, at); err != nil {
		return err
	}
	if _, err := tx.Exec("UPDATE former_names SET org_id = $2 WHERE org_id = $1", o.ID, deletedOrg); err != nil {
		return err
	}
	if _, err := tx.Exec("UPDATE users SET default_org = '' WHERE default_org = $1", o.Name); err != nil {
		return err
	}
	if _, err := tx.Exec(`DELETE FROM sessions WHERE user_id IN (SELECT user_id FROM members WHERE org_id = $1)
		AND user_id NOT IN (SELECT user_id FROM members WHERE org_id <> $1) AND user_id NOT IN (SELECT id FROM users WHERE site_admin <> 0)`, o.ID); err != nil {
		return err
	}
	return tx.clearOrganization(o.ID)
}

// clearOrganization removes what gives access to an organization and what starts or sends something for it.
func (tx *Tx) clearOrganization(id string) error {
	for _, rows := range []string{
		"former_names WHERE org_id = $1",
		"tokens WHERE org_id = $1",
		"members WHERE org_id = $1",
		"teams WHERE org_id = $1",
		"schedules WHERE stack_id IN (" + stacksOfOrg + ")",
		"review_stacks WHERE org_id = $1",
		"vcs_integrations WHERE org_id = $1",
		"environment_webhooks WHERE hook_id IN (SELECT id FROM webhooks WHERE org_id = $1)",
		"webhooks WHERE org_id = $1",
		"webhook_events WHERE org_id = $1",
		"oidc_issuers WHERE org_id = $1",
		"jobs WHERE org_id = $1 AND status = 'not-started'",
		"agent_pools WHERE org_id = $1",
		"org_queues WHERE org_id = $1",
		"policy_groups WHERE org_id = $1",
	} {
		if _, err := tx.Exec("DELETE FROM "+rows, id); err != nil {
			return err
		}
	}
	return nil
}

// DeletedOrganizations returns the ids of deleted organizations whose rows remain.
func (tx *Tx) DeletedOrganizations() ([]string, error) {
	return database.Scalars[string](tx.Tx, "SELECT id FROM organizations WHERE deleted_at > 0 ORDER BY deleted_at, id")
}

// StacksOfOrganization returns the ids of up to limit stacks of a deleted organization.
func (tx *Tx) StacksOfOrganization(orgID string, limit int) ([]string, error) {
	return database.Scalars[string](tx.Tx, stacksOfOrg+fmt.Sprintf(" LIMIT %d", limit), orgID)
}

// RemoveStack removes the row of a stack of a deleted organization, whose updates and blobs the caller has removed.
func (tx *Tx) RemoveStack(id string) error {
	_, err := tx.Exec("DELETE FROM stacks WHERE id = $1", id)
	return err
}

// JobsOfOrganization returns the ids of up to limit jobs of a deleted organization.
func (tx *Tx) JobsOfOrganization(orgID string, limit int) ([]string, error) {
	return database.Scalars[string](tx.Tx, fmt.Sprintf("SELECT id FROM jobs WHERE org_id = $1 ORDER BY id LIMIT %d", limit), orgID)
}

// PacksOfOrganization returns the ids of up to limit policy packs of a deleted organization.
func (tx *Tx) PacksOfOrganization(orgID string, limit int) ([]string, error) {
	return database.Scalars[string](tx.Tx, fmt.Sprintf("SELECT id FROM policy_packs WHERE org_id = $1 ORDER BY id LIMIT %d", limit), orgID)
}

// BlobsOfPack returns the keys of a policy pack's archives.
func (tx *Tx) BlobsOfPack(packID string) ([]string, error) {
	return database.Scalars[string](tx.Tx, "SELECT blob FROM policy_pack_versions WHERE pack_id = $1 AND blob <> ''", packID)
}

// PurgePolicyPack removes a policy pack, whose archives the caller has removed.
func (tx *Tx) PurgePolicyPack(id string) error {
	_, err := tx.Exec("DELETE FROM policy_packs WHERE id = $1", id)
	return err
}

// EnvironmentsOfOrganization returns the ids of up to limit environments of a deleted organization.
func (tx *Tx) EnvironmentsOfOrganization(orgID string, limit int) ([]string, error) {
	return database.Scalars[string](tx.Tx, fmt.Sprintf("SELECT id FROM environments WHERE org_id = $1 ORDER BY id LIMIT %d", limit), orgID)
}

// PurgeEnvironment removes up to limit revisions of an environment of a deleted organization. done reports whether the
// environment itself is removed.
func (tx *Tx) PurgeEnvironment(id string, limit int) (done bool, err error) {
	n, err := tx.Exec(fmt.Sprintf("DELETE FROM environment_revisions WHERE environment_id = $1 AND number IN (SELECT number FROM environment_revisions WHERE environment_id = $1 LIMIT %d)", limit), id)
	if err != nil || n >= int64(limit) {
		return false, err
	}
	_, err = tx.Exec("DELETE FROM environments WHERE id = $1", id)
	return err == nil, err
}

// PurgeJobs removes jobs, whose logs the caller has removed, with their deployments.
func (tx *Tx) PurgeJobs(ids []string) error {
	where, args := among("id", ids, nil)
	deployments, err := database.Scalars[string](tx.Tx, "SELECT deployment_id FROM jobs WHERE "+where, args...)
	if err == nil {
		_, err = tx.Exec("DELETE FROM jobs WHERE "+where, args...)
	}
	if err != nil || len(deployments) == 0 {
		return err
	}
	where, args = among("id", deployments, nil)
	_, err = tx.Exec("DELETE FROM deployments WHERE "+where, args...)
	return err
}

// PurgeOrganization removes up to limit rows of what remains of a deleted organization without stacks and jobs. done
// reports whether the organization itself is removed.
func (tx *Tx) PurgeOrganization(id string, limit int) (done bool, err error) {
	n, err := tx.Exec(fmt.Sprintf("DELETE FROM deployments WHERE id IN (SELECT id FROM deployments WHERE org_id = $1 LIMIT %d)", limit), id)
	if err != nil || n >= int64(limit) {
		return false, err
	}
	n, err = tx.Exec(fmt.Sprintf(`DELETE FROM resource_changes WHERE org_id = $1 AND changed_at <= COALESCE(
		(SELECT changed_at FROM resource_changes WHERE org_id = $1 ORDER BY changed_at LIMIT 1 OFFSET %d), 9223372036854775807)`, limit), id)
	if err != nil || n >= int64(limit) {
		return false, err
	}
	// A server of an earlier version, or a write without an owner, can have added what the deletion removed.
	if err := tx.clearOrganization(id); err != nil {
		return false, err
	}
	if _, err := tx.Exec("DELETE FROM organization_storage WHERE org_id = $1", id); err != nil {
		return false, err
	}
	_, err = tx.Exec("DELETE FROM organizations WHERE id = $1 AND deleted_at > 0", id)
	return err == nil, err
}
