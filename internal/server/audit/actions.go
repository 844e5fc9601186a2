package audit

import "slices"

// Action names a kind of change or read.
type Action string

// The actions.
const (
	OrganizationCreated    Action = "organization.created"
	OrganizationRenamed    Action = "organization.renamed"
	OrganizationDeleted    Action = "organization.deleted"
	QuotasSet              Action = "organization.quotas-changed"
	DefaultPermissionSet   Action = "organization.permission-changed"
	PulumiVersionSet       Action = "organization.pulumi-version-changed"
	ProjectReadsSet        Action = "organization.project-reads-changed"
	UserCreated            Action = "user.created"
	UserDisabled           Action = "user.disabled"
	UserEnabled            Action = "user.enabled"
	UserDeleted            Action = "user.deleted"
	UserHandedOver         Action = "user.handed-over"
	MemberAdded            Action = "member.added"
	MemberRoleChanged      Action = "member.role-changed"
	MemberRoleKept         Action = "member.role-kept" // of the last administrator, against an identity provider
	MemberRemoved          Action = "member.removed"
	InvitationMade         Action = "invitation.made"
	InvitationRevoked      Action = "invitation.revoked"
	TeamCreated            Action = "team.created"
	TeamChanged            Action = "team.changed"
	TeamDeleted            Action = "team.deleted"
	TokenCreated           Action = "token.created"
	TokenRevoked           Action = "token.revoked"
	TokenExchanged         Action = "token.exchanged"
	PoolCreated            Action = "pool.created"
	PoolChanged            Action = "pool.changed"
	PoolDeleted            Action = "pool.deleted"
	PoolDefaultSet         Action = "pool.default-changed"
	PoolQueueMoved         Action = "pool.queue-moved"
	AgentDrained           Action = "agent.drained"
	AgentResumed           Action = "agent.resumed"
	IssuerCreated          Action = "issuer.created"
	IssuerChanged          Action = "issuer.changed"
	IssuerPoliciesChanged  Action = "issuer.policies-changed"
	IssuerDeleted          Action = "issuer.deleted"
	WebhookCreated         Action = "webhook.created"
	WebhookChanged         Action = "webhook.changed"
	WebhookDeleted         Action = "webhook.deleted"
	StackCreated           Action = "stack.created"
	StackRenamed           Action = "stack.renamed"
	StackTransferred       Action = "stack.transferred"
	StackDeleted           Action = "stack.deleted"
	StackRestored          Action = "stack.restored"
	StackPurged            Action = "stack.purged"
	StackOwnerChanged      Action = "stack.owner-changed"
	StackPermissionChanged Action = "stack.permission-changed"
	StackGrantAdded        Action = "stack.grant-added"
	StackGrantChanged      Action = "stack.grant-changed"
	StackGrantRemoved      Action = "stack.grant-removed"
	StackTagsChanged       Action = "stack.tags-changed"
	StackConfigChanged     Action = "stack.config-changed"
	StackAnnotated         Action = "stack.annotated"
	StateImported          Action = "stack.imported"
	UpdateCancelled        Action = "update.cancelled"
	PolicyIssueChanged     Action = "policy-issue.changed"
	ExceptionGiven         Action = "policy-exception.given"
	ExceptionRemoved       Action = "policy-exception.removed"
	SettingsChanged        Action = "settings.changed"
	SettingsDeleted        Action = "settings.deleted"
	ScheduleCreated        Action = "schedule.created"
	ScheduleChanged        Action = "schedule.changed"
	SchedulePaused         Action = "schedule.paused"
	ScheduleResumed        Action = "schedule.resumed"
	ScheduleDeleted        Action = "schedule.deleted"
	DeploymentCreated      Action = "deployment.created"
	DeploymentCancelled    Action = "deployment.cancelled"
	DeploymentForced       Action = "deployment.cancel-forced"
	CacheCleared           Action = "deployments.cache-cleared"
	DeploymentsPaused      Action = "deployments.paused"
	DeploymentsResumed     Action = "deployments.resumed"
	IntegrationCreated     Action = "integration.created"
	IntegrationChanged     Action = "integration.changed"
	IntegrationDeleted     Action = "integration.deleted"
	PullRequestApproved    Action = "pull-request.approved"
	PolicyPackCreated      Action = "policy-pack.created" // a version, before its archive has arrived
	PolicyPackPublished    Action = "policy-pack.published"
	PolicyPackRemoved      Action = "policy-pack.removed"
	PolicyGroupCreated     Action = "policy-group.created"
	PolicyGroupChanged     Action = "policy-group.changed"
	PolicyGroupDeleted     Action = "policy-group.deleted"
	EnvironmentCreated     Action = "environment.created"
	EnvironmentChanged     Action = "environment.changed" // a new revision
	EnvironmentRetracted   Action = "environment.revision-retracted"
	EnvironmentVersionSet  Action = "environment.version-tags-changed"
	EnvironmentTagsChanged Action = "environment.tags-changed"
	EnvironmentSettingsSet Action = "environment.settings-changed"
	EnvironmentDeleted     Action = "environment.deleted"
	EnvironmentSourceSet   Action = "environment-source.changed" // the repository from which environments come
	EnvironmentSourceAsked Action = "environment-source.sync-requested"
	EnvironmentSourceEnded Action = "environment-source.removed"
	EnvironmentGrantAdded  Action = "environment.grant-added"
	EnvironmentGrantSet    Action = "environment.grant-changed"
	EnvironmentGrantEnded  Action = "environment.grant-removed"
	DefaultEnvironmentSet  Action = "organization.environment-permission-changed"
	SignedIn               Action = "user.signed-in"
	SignInFailed           Action = "user.sign-in-failed"
	SignInLinkMade         Action = "user.sign-in-link-made"
	SessionEnded           Action = "user.session-ended"
	IdentityConnected      Action = "user.identity-connected"
	IdentityRemoved        Action = "user.identity-removed"
	PasskeyAdded           Action = "user.passkey-added"
	PasskeyRemoved         Action = "user.passkey-removed"
	BackupWritten          Action = "backup.written"
	OrganizationReleased   Action = "organization.released" // from the pause after a restore
)

// The actions that only read; see [RecordRead].
const (
	SecretsDecrypted   Action = "stack.secrets-decrypted"
	DecryptionReported Action = "stack.decryption-reported" // a client has decrypted secrets without the server
	StateExported      Action = "stack.state-exported"
	SecretsSent        Action = "deployment.secrets-sent" // to the runner of the deployment
	// EnvironmentDecrypted is a read of a definition with its secrets, EnvironmentOpened one of values.
	EnvironmentDecrypted Action = "environment.decrypted"
	EnvironmentOpened    Action = "environment.opened"
	EnvironmentToken     Action = "environment.identity-token-issued" // for a provider of an environment
)

var actions = []Action{
	OrganizationCreated, OrganizationRenamed, OrganizationDeleted, QuotasSet, DefaultPermissionSet, PulumiVersionSet, ProjectReadsSet, UserCreated, UserDisabled, UserEnabled, UserDeleted, UserHandedOver, MemberAdded, MemberRoleChanged, MemberRoleKept, MemberRemoved,
	InvitationMade, InvitationRevoked, TeamCreated, TeamChanged, TeamDeleted, TokenCreated, TokenRevoked, TokenExchanged,
	PoolCreated, PoolChanged, PoolDeleted, PoolDefaultSet, PoolQueueMoved, AgentDrained, AgentResumed, IssuerCreated, IssuerChanged, IssuerPoliciesChanged, IssuerDeleted,
	WebhookCreated, WebhookChanged, WebhookDeleted, StackCreated, StackRenamed, StackTransferred, StackDeleted, StackRestored, StackPurged,
	StackOwnerChanged, StackPermissionChanged, StackGrantAdded, StackGrantChanged, StackGrantRemoved, StackTagsChanged, StackConfigChanged, StackAnnotated, StateImported, UpdateCancelled,
	PolicyIssueChanged, ExceptionGiven, ExceptionRemoved,
	SettingsChanged, SettingsDeleted, ScheduleCreated, ScheduleChanged, SchedulePaused, ScheduleResumed, ScheduleDeleted,
	DeploymentCreated, DeploymentCancelled, DeploymentForced, CacheCleared, DeploymentsPaused, DeploymentsResumed,
	IntegrationCreated, IntegrationChanged, IntegrationDeleted, PullRequestApproved,
	PolicyPackCreated, PolicyPackPublished, PolicyPackRemoved, PolicyGroupCreated, PolicyGroupChanged, PolicyGroupDeleted,
	EnvironmentCreated, EnvironmentChanged, EnvironmentRetracted, EnvironmentVersionSet, EnvironmentTagsChanged, EnvironmentSettingsSet, EnvironmentDeleted, EnvironmentSourceSet, EnvironmentSourceAsked, EnvironmentSourceEnded, DefaultEnvironmentSet,
	EnvironmentGrantAdded, EnvironmentGrantSet, EnvironmentGrantEnded,
	SignedIn, SignInFailed, SignInLinkMade, SessionEnded, IdentityConnected, IdentityRemoved, PasskeyAdded, PasskeyRemoved, BackupWritten, OrganizationReleased,
	SecretsDecrypted, DecryptionReported, StateExported, SecretsSent, EnvironmentDecrypted, EnvironmentOpened, EnvironmentToken,
}

// Actions returns all actions.
func Actions() []Action { return slices.Clone(actions) }
