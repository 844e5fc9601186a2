package page

import (
	"slices"

	"workflowagent/internal/server/pools"
)

// OwnPools returns the named ones of an organization's pools, without their agents, for visitors who
// may not see the others.
func OwnPools(list []pools.Overview, ids ...string) []pools.Overview {
	var own []pools.Overview
	for _, o := range list {
		if slices.Contains(ids, o.ID) {
			o.Agents = nil
			own = append(own, o)
		}
	}
	return own
}
