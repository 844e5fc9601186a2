package activity

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/console/auditlog"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
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
	audit.PoolQueueMoved:         "moved the queue of the pool",
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

// detail says what an entry of the audit log changed: settings and schedules in words, and of others all that it records.
func detail(e store.AuditEntry) string {
	var d struct {
		Keys             []string
		Kind, Cron, Once string
	}
	switch what, _, _ := strings.Cut(e.Action, "."); {
	case json.Unmarshal([]byte(e.Detail), &d) != nil:
	case audit.Action(e.Action) == audit.SettingsChanged && len(d.Keys) > 0:
		return settings(d.Keys)
	case what == "schedule" && scheduleKinds[d.Kind] != "" && d.Cron+d.Once != "":
		return scheduleKinds[d.Kind] + ", " + cmp.Or(d.Cron, "once, "+d.Once)
	}
	return auditlog.Detail(e)
}

// scheduleKinds are the words for the kinds of schedules.
var scheduleKinds = map[string]string{
	string(store.CustomSchedule): "deployment", string(store.DriftSchedule): "drift detection", string(store.TTLSchedule): "time to live",
}

// named are the words for keys of deploy settings.
var named = map[string]string{
	"branch": "branch", "repoUrl": "repository", "repoURL": "repository", "repoDir": "folder", "commit": "commit", "preRunCommands": "pre-run commands",
	"executorContext": "image", "executorImage": "image", "agentPoolID": "pool", "gitHub": "pull requests",
}

// settings names the settings that changed.
func settings(keys []string) string {
	var list []string
	variables := 0
	for _, key := range keys {
		if strings.Contains(key, "environmentVariables") {
			variables++
			continue
		}
		word := ""
		for part := range strings.SplitSeq(key, ".") {
			word = cmp.Or(named[part], word)
		}
		if word = cmp.Or(word, key[strings.LastIndex(key, ".")+1:]); !slices.Contains(list, word) {
			list = append(list, word)
		}
	}
	if variables > 0 {
		list = append(list, words.Count(variables, "variable"))
	}
	if n := len(list); n > 1 {
		return strings.Join(list[:n-1], ", ") + " and " + list[n-1]
	}
	return strings.Join(list, "")
}

// did says what an entry of the audit log records. Actions of the server alone have no phrase.
func did(action audit.Action) string {
	if phrase, ok := phrases[action]; ok {
		return phrase
	}
	what, how, _ := strings.Cut(string(action), ".")
	return strings.ReplaceAll(what+": "+how, "-", " ")
}
