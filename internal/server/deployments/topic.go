package deployments

import "workflowagent/internal/server/store"

// Topic is the channel of notifications about changes of deployments: their status, steps, result
// and settings. The payload is the result of [About].
const Topic = "deployment"

// About returns the payload of notifications about a deployment. It begins with the organization's
// id, then the stack's, so that subscribers can select the notifications of either.
func About(st store.Stack, deploymentID string) string {
	return st.OrgID + "/" + st.ID + "/" + deploymentID
}
