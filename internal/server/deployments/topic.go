package deployments

import "workflowagent/internal/server/store"

// Topic is the channel of notifications about changes of deployments: their status, steps, result
// and settings, and the pauses of queues. The payload is the result of [About]. A pause of all queues of
// an organization has the payload ORG/ with the organization's id.
const Topic = "deployment"

// About returns the payload of notifications about a deployment. It begins with the organization's
// id, then the stack's, so that subscribers can select the notifications of either. The deployment "" means the stack's queue
// and settings.
func About(st store.Stack, deploymentID string) string {
	return st.OrgID + "/" + st.ID + "/" + deploymentID
}
