package store

import "workflowagent/internal/server/store/database"

// PackName names a pack in a policy group.
type PackName struct {
	Group string `json:"policyGroup"`
	Pack  string `json:"policyPack"`
}

// SetPackEnvironments replaces the environments that evaluations of a group open for an enabled pack.
func (tx *Tx) SetPackEnvironments(groupID, packID string, environmentIDs []string) error {
	if _, err := tx.Exec("DELETE FROM policy_pack_environments WHERE group_id = $1 AND pack_id = $2", groupID, packID); err != nil {
		return err
	}
	for _, id := range environmentIDs {
		_, err := tx.Exec("INSERT INTO policy_pack_environments (group_id, pack_id, environment_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", groupID, packID, id)
		if err != nil {
			return err
		}
	}
	return nil
}

// PackEnvironments returns the ids of the environments that evaluations of a group open for a pack, in their order.
func (tx *Tx) PackEnvironments(groupID, packID string) ([]string, error) {
	return database.Scalars[string](tx.Tx, "SELECT environment_id FROM policy_pack_environments WHERE group_id = $1 AND pack_id = $2 ORDER BY environment_id", groupID, packID)
}

// PacksWithEnvironment returns the packs for which evaluations open an environment, by the names of the group and the pack.
func (tx *Tx) PacksWithEnvironment(environmentID string) ([]PackName, error) {
	return database.Collect(tx.Tx, func(scan database.Scan) (n PackName, err error) {
		err = scan(&n.Group, &n.Pack)
		return n, err
	}, `SELECT g.name, p.name FROM policy_pack_environments e JOIN policy_groups g ON g.id = e.group_id JOIN policy_packs p ON p.id = e.pack_id
		WHERE e.environment_id = $1 ORDER BY g.name, p.name`, environmentID)
}
