package activity

import (
	"strings"

	"workflowagent/internal/server/audit"
)

// phrases say what an entry of the audit log records, after the name of who did it.
var phrases = map[audit.Action]string{
	audit.OrganizationCreated:    "created the organization",
	audit.OrganizationRenamed:    "renamed the organization",
	audit.OrganizationDeleted:    "deleted the organization",
	audit.OrganizationReleased:   "released deployments after the restore",
	audit.QuotasSet:              "changed quotas",
	audit.DefaultPermissionSet:   "changed the default permission",
	audit.PulumiVersionSet:       "changed the version of pulumi",
	audit.MemberAdded:            "added the member",
	audit.MemberRoleChanged:      "changed the role of",
	audit.MemberRoleKept:         "kept the role of",
	audit.MemberRemoved:          "removed the member",
	audit.InvitationMade:         "invited",
	audit.InvitationRevoked:      "revoked the invitation of",
	audit.TeamCreated:            "created the team",
	audit.TeamChanged:            "changed the team",
	audit.TeamDeleted:            "deleted the team",
	audit.TokenCreated:           "made a token",
	audit.TokenRevoked:           "revoked the token",
	audit.TokenExchanged:         "exchanged an identity token",
	audit.PoolCreated:            "created the pool",
	audit.PoolChanged:            "changed the pool",
	audit.PoolDeleted:            "deleted the pool",
	audit.PoolDefaultSet:         "changed the default pool",
	audit.AgentDrained:           "drained the agent",
	audit.AgentResumed:           "resumed the agent",
	audit.IssuerCreated:          "registered the issuer",
	audit.IssuerChanged:          "changed the issuer",
	audit.IssuerPoliciesChanged:  "changed the rules of the issuer",
	audit.IssuerDeleted:          "deleted the issuer",
	audit.WebhookCreated:         "created the webhook",
	audit.WebhookChanged:         "changed the webhook",
	audit.WebhookDeleted:         "deleted the webhook",
	audit.StackCreated:           "created the stack",
	audit.StackRenamed:           "renamed the stack",
	audit.StackTransferred:       "transferred the stack",
	audit.StackDeleted:           "deleted the stack",
	audit.StackRestored:          "restored the stack",
	audit.StackPurged:            "removed the deleted stack for good",
	audit.StackOwnerChanged:      "changed the owner",
	audit.StackPermissionChanged: "changed permissions",
	audit.StackTagsChanged:       "changed tags",
	audit.StackConfigChanged:     "changed the configuration",
	audit.StackAnnotated:         "annotated the stack",
	audit.StateImported:          "imported a state",
	audit.UpdateCancelled:        "cancelled an update",
	audit.SettingsChanged:        "changed deploy settings",
	audit.SettingsDeleted:        "deleted deploy settings",
	audit.ScheduleCreated:        "created a schedule",
	audit.ScheduleChanged:        "changed a schedule",
	audit.SchedulePaused:         "paused a schedule",
	audit.ScheduleResumed:        "resumed a schedule",
	audit.ScheduleDeleted:        "deleted a schedule",
	audit.DeploymentCreated:      "requested a deployment",
	audit.DeploymentCancelled:    "cancelled a deployment",
	audit.DeploymentForced:       "forced the end of a deployment",
	audit.CacheCleared:           "cleared the cache",
	audit.DeploymentsPaused:      "paused deployments",
	audit.DeploymentsResumed:     "resumed deployments",
	audit.IntegrationCreated:     "created the integration",
	audit.IntegrationChanged:     "changed the integration",
	audit.IntegrationDeleted:     "deleted the integration",
	audit.PullRequestApproved:    "approved a pull request",
	audit.SecretsDecrypted:       "decrypted secrets",
	audit.DecryptionReported:     "decrypted secrets without the server",
	audit.StateExported:          "exported the state",
	audit.SecretsSent:            "received the secrets of a deployment",
}

// did says what an entry of the audit log records. Actions of the server alone have no phrase.
func did(action audit.Action) string {
	if phrase, ok := phrases[action]; ok {
		return phrase
	}
	what, how, _ := strings.Cut(string(action), ".")
	return strings.ReplaceAll(what+": "+how, "-", " ")
}
