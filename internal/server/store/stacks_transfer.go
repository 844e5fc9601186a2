package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// holds are the rows that bind a stack to its organization, with the reason for people.
var holds = []struct{ rows, reason string }{
	{"updates WHERE stack_id = $1 AND status = 'running'", "has a running update or preview; wait until it ends, or cancel it"},
	{
		"jobs WHERE stack_id = $1 AND status IN ('not-started', 'accepted', 'running')",
		"has queued or running deployments; wait until they end, or cancel them",
	},
	{"stack_queues WHERE stack_id = $1 AND blocked_by <> ''", "has a lost deployment whose update might still be running"},
	{"deployment_settings WHERE stack_id = $1 AND pool_id <> ''", "has deployment settings that name an agent pool of its organization; remove agentPoolID from them"},
	{"schedules WHERE stack_id = $1", "has schedules, which act for members of its organization; remove them, and create them again after the transfer"},
	{"vcs_watches WHERE stack_id = $1", "has deployment settings with a repository of one of its organization's integrations; remove gitHub and vcs from them"},
	{
		"review_stacks WHERE (stack_id = $1 OR template_id = $1) AND orphan = 0",
		"is the stack of a pull request, or the template of one; close the pull requests and wait until their stacks are removed",
	},
	{"managed_environments WHERE stack_id = $1", "manages an environment of its organization (pulumi stack init --esc-config)"},
	{"webhooks WHERE stack_id = $1", "has webhooks; remove them, and create them again after the transfer"},
}

// HeldInOrganization returns the reason why a stack cannot move to another organization, such as
// "has webhooks; …", or "".
func (tx *Tx) HeldInOrganization(stackID string) (string, error) {
	for _, h := range holds {
		n, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM "+h.rows, stackID)
		if err != nil {
			return "", err
		}
		if n > 0 {
			return h.reason, nil
		}
	}
	return "", nil
}

// MoveStack moves a stack and its deployments to another organization, or returns [ErrConflict] if
// its name is taken there. It removes the permissions of teams, those of users who are not members
// of the new organization, all grants of the stack and to it, and what belongs to the policy packs and
// environments of the old organization. The stack's resources leave the old organization; the caller records them for
// the new one with [Tx.UpdateStack].
func (tx *Tx) MoveStack(stackID, orgID string) error {
	if err := tx.recordResources("id", stackID, 0); err != nil {
		return err
	}
	if err := tx.ExecOne("UPDATE stacks SET org_id = $2, resource_count = 0 WHERE id = $1", stackID, orgID); err != nil {
		return err
	}
	if err := tx.nameOfEstate(stackID); err != nil {
		return err
	}
	for _, change := range []string{
		"UPDATE stacks SET created_by = '' WHERE id = $1 AND created_by NOT IN (SELECT user_id FROM members WHERE org_id = $2)",
		"UPDATE deployments SET org_id = $2 WHERE stack_id = $1",
		"UPDATE jobs SET org_id = $2 WHERE stack_id = $1",
		"UPDATE updates SET listed_in = $2 WHERE stack_id = $1 AND listed_in <> ''",
		"DELETE FROM team_stacks WHERE stack_id = $1 AND team_id NOT IN (SELECT id FROM teams WHERE org_id = $2)",
		"DELETE FROM collaborators WHERE stack_id = $1 AND user_id NOT IN (SELECT user_id FROM members WHERE org_id = $2)",
		"DELETE FROM policy_group_stacks WHERE stack_id = $1 AND group_id NOT IN (SELECT id FROM policy_groups WHERE org_id = $2)",
		"DELETE FROM stars WHERE stack_id = $1 AND user_id NOT IN (SELECT user_id FROM members WHERE org_id = $2)",
	} {
		if _, err := tx.Exec(change, stackID, orgID); err != nil {
			return err
		}
	}
	for _, table := range []string{"policy_issues", "policy_standings", "policy_exception_stacks", "stack_environments"} { // of the old organization
		if _, err := tx.Exec("DELETE FROM "+table+" WHERE stack_id = $1", stackID); err != nil {
			return err
		}
	}
	if err := tx.ClearGrants(stackID); err != nil {
		return err
	}
	if err := tx.endEvaluations(stackID, orgID); err != nil {
		return err
	}
	// The stack can return, and must not find what it had kept before.
	_, err := tx.Exec("UPDATE stack_queues SET cache_generation = cache_generation + 1 WHERE stack_id = $1", stackID)
	return err
}

// endEvaluations ends the evaluations of a stack in other organizations than its own. Their rows remain until their logs are
// removed. The calls of a runner that still works on one fail.
func (tx *Tx) endEvaluations(stackID, orgID string) error {
	_, err := tx.Exec(`UPDATE policy_evaluations SET status = CASE status WHEN 'not-started' THEN 'skipped' ELSE 'failed' END,
		reason = 'cancelled', message = 'The stack was moved to another organization.', ended_at = $3, modified_at = $3
		WHERE stack_id = $1 AND org_id <> $2 AND ended_at = 0`, stackID, orgID, tx.Now())
	if err != nil {
		return err
	}
	const ofEvaluations = "stack_id = $1 AND org_id <> $2 AND job_id <> '' AND deployment_id = ''"
	if _, err := tx.Exec("DELETE FROM tokens WHERE "+ofEvaluations+" AND kind = 'job'", stackID, orgID); err != nil {
		return err
	}
	_, err = tx.Exec("UPDATE tokens SET expires_at = $3 WHERE "+ofEvaluations+" AND kind = 'runner' AND expires_at = 0", stackID, orgID, tx.Now().Add(time.Hour))
	return err
}
