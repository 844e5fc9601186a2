package org

import (
	"maps"
	"net/http"
	"strings"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/store"
)

// features lists the features of Pulumi Cloud that clients look up, and whether this server has
// them.
var features = func() map[string]bool {
	const missing = `
agentIntegrationCatalogEnabled agentScheduledTasksEnabled aiAgentsEnabled aleEnabled approvalsEnabled
auditLogUIFilteringEnabled auditLogsEnabled bitbucketVCSEnabled bringYourOwnKeyEnabled
cliIntegrationCatalogEnabled crossGuardEnabled customRoleCondition customRolesEnabled customTemplatesEnabled
customVCSEnabled dependencyCachingEnabled discoveredStacksEnabled
environmentSecretRotationEnabled environmentsRestoreEnabled
escEditorRevampEnabled escOnboardingAzureOAuthClientEnabled escOnboardingEnabled
escOnboardingGcpOAuthClientEnabled escOnboardingV2Enabled fixDriftWithNeoEnabled ghAppDetailedDiffEnabled
gitHubEnterpriseIntegrationEnabled iacCloudImportEnabled insightsAutoPolicyPacksEnabled
insightsMonetizationEnabled integrationAssistantEnabled legacyDeploymentsOrgToken neoByokEnabled
neoPlanModeEnabled neoTaskSharingEnabled nlpSearchEnabled pangeaAccountsScanPageEnabled
policyIssueManagementEnabled policyManagementV2Enabled propertySearchUIEnabled resourceExportEnabled
resourceSearchEnabled scimEnabled selfServeIDPRemoval
serviceBackedConfigEnabled themingEnabled`
	out := map[string]bool{
		"agentPoolRegistrationEnabled":   true,
		"deployEnabled":                  true,
		"driftDetectionEnabled":          true,
		"environmentRevisionTagsEnabled": true,
		"environmentsEnabled":            true,
		"restoreStacksEnabled":           true,
		"selfHostedDeploymentsEnabled":   true,
		"teamsEnabled":                   true,
		"webhooksEnabled":                true,
	}
	for name := range strings.FieldsSeq(missing) {
		out[name] = false
	}
	return out
}()

// noFeatures are settings of an organization for features that this server does not have.
var noFeatures = map[string]any{
	"accountCount": 0, "aiEnablement": "", "auditLogsEnabled": false, "defaultAccountPermission": 0,
	"insightsTrialUsingPolicy": false, "membersCanCreateAccounts": false, "membersCanTransferStacks": false,
	"naturalLanguageSearchDisabled": true, "neoAgentDisabled": true, "neoApprovalMode": "manual", "neoCLIExplanationsDisabled": true,
	"neoEnabled": false, "neoTaskSharingMode": "none", "preferredVCS": "none",
}

func (u *userRoutes) metadata(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	members, stacks, err := u.identity.Counts(r.Context(), web.Principal(r), o.ID)
	if err != nil {
		return err
	}
	environments, err := u.identity.CountEnvironments(r.Context(), web.Principal(r), o.ID)
	if err != nil {
		return err
	}
	body := map[string]any{
		"id": o.ID, "kind": "pulumi", "created": web.RFC3339(o.CreatedAt), "userRole": web.Principal(r).Role(o.ID), "features": features,
		"defaultStackPermission": o.StackPermission, "defaultPulumiVersion": o.PulumiVersion, "projectReads": o.ProjectReads,
		"defaultEnvironmentPermission": o.EnvironmentPermission.String(), "environmentCount": environments,
		"memberCount": members, "stackCount": stacks,
		// What members may do is fixed: docs/access.md.
		"membersCanCreateStacks": true, "membersCanCreateTeams": false, "membersCanDeleteStacks": false,
		"webhooksEnabled": true,
	}
	maps.Copy(body, noFeatures)
	return web.WriteJSON(w, r, http.StatusOK, body)
}
