package store

import "workflowagent/internal/server/store/database"

// environmentForJob also selects how many grants, and packs of the policy group that the job evaluates, let it open the
// environment.
var environmentForJob = "SELECT " + environments.Expressions() + ", " + grantedOnEnvironment("$1", "''") + ", " + managerOfEnvironment + `,
	(SELECT COUNT(*) FROM deployments d JOIN live_stacks r ON r.id = d.stack_id WHERE d.id = $5 AND r.org_id = e.org_id AND ` + EnvironmentGrants.covers("e") + `)
	+ (SELECT COUNT(*) FROM policy_evaluations v JOIN policy_pack_environments p ON p.group_id = v.group_id WHERE v.id = $6 AND v.org_id = e.org_id AND p.environment_id = e.id)
	FROM environments e JOIN organizations o ON o.id = e.org_id WHERE o.deleted_at = 0 AND e.project = $3 AND e.name = $4 AND e.org_id = ` + named("$2")

// EnvironmentForJob is [Tx.EnvironmentFor] for a job with a user or none. Lent reports whether a grant covers the deployment,
// or the policy evaluation runs a pack with the environment.
func (tx *Tx) EnvironmentForJob(org, project, name, userID, deploymentID, evaluationID string) (GrantedEnvironment, error) {
	return database.One(tx.Tx, func(scan database.Scan) (g GrantedEnvironment, err error) {
		var granted, lent int64
		err = scan(append(environments.Fields(&g.Environment), &granted, &g.ManagedBy, &lent)...)
		g.Granted, g.Lent = EnvironmentPermission(granted), lent > 0
		return g, err
	}, environmentForJob, userID, org, project, name, deploymentID, evaluationID)
}
