package policies

import "workflowagent/internal/server/store"

// PacksOfGroup returns the packs of a group, by name.
func PacksOfGroup(tx *store.Tx, groupID string) ([]Required, error) {
	rows, err := tx.EnabledPacks(groupID)
	if err != nil {
		return nil, err
	}
	var out []Required
	for _, row := range rows {
		r, err := required(row)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}
