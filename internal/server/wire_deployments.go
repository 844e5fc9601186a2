package server

import "workflowagent/internal/server/api"

// newDeployments builds the domains of deployments and agent pools.
func newDeployments(*components) ([]api.Domain, []Subsystem, error) {
	return nil, nil, nil
}
