package webhooks

import (
	"maps"
	"slices"

	"workflowagent/internal/server/store"
)

// Name is the name of an event, by which webhooks select it.
type Name string

// The events that the server records.
const (
	StackCreated Name = "stack_created"
	StackDeleted Name = "stack_deleted"

	DeploymentQueued    Name = "deployment_queued"
	DeploymentStarted   Name = "deployment_started"
	DeploymentSucceeded Name = "deployment_succeeded"
	DeploymentFailed    Name = "deployment_failed"

	DriftDetected             Name = "drift_detected"
	DriftDetectionSucceeded   Name = "drift_detection_succeeded"
	DriftDetectionFailed      Name = "drift_detection_failed"
	DriftRemediationSucceeded Name = "drift_remediation_succeeded"
	DriftRemediationFailed    Name = "drift_remediation_failed"

	PolicyMandatory    Name = "policy_violation_mandatory"
	PolicyAdvisory     Name = "policy_violation_advisory"
	PolicyNotEvaluated Name = "policy_not_evaluated" // a required pack did not run; not in the public API

	EnvironmentCreated         Name = "environment_created"
	EnvironmentDeleted         Name = "environment_deleted"
	RevisionCreated            Name = "environment_revision_created"
	RevisionRetracted          Name = "environment_revision_retracted"
	RevisionTagCreated         Name = "environment_revision_tag_created"
	RevisionTagUpdated         Name = "environment_revision_tag_updated"
	RevisionTagDeleted         Name = "environment_revision_tag_deleted"
	EnvironmentTagCreated      Name = "environment_tag_created"
	EnvironmentTagUpdated      Name = "environment_tag_updated"
	EnvironmentTagDeleted      Name = "environment_tag_deleted"
	ImportedEnvironmentChanged Name = "imported_environment_changed"
)

// Failures are the events of what has failed.
var Failures = []Name{"update_failed", "destroy_failed", "refresh_failed", DeploymentFailed, DriftDetectionFailed, DriftRemediationFailed}

// UpdateEnded returns the name of the event of an ended update of a kind, such as "refresh".
func UpdateEnded(kind string, succeeded bool) Name {
	if succeeded {
		return Name(kind + "_succeeded")
	}
	return Name(kind + "_failed")
}

// The kinds of payloads.
const (
	kindPing    = "ping"
	kindStack   = "stack"
	kindUpdate  = "stack_update"
	kindPreview = "stack_preview"

	kindDeployment       = "deployment"
	kindDriftDetection   = "drift_detection"
	kindDriftRemediation = "drift_remediation"

	kindMandatory    = "policy_violation_mandatory"
	kindAdvisory     = "policy_violation_advisory"
	kindNotEvaluated = "policy_not_evaluated"

	kindEnvironment    = "environment"
	kindRevision       = "environment_revision"
	kindRevisionTag    = "environment_revision_tag"
	kindEnvironmentTag = "environment_tag"
	kindImported       = "imported_environment_changed"
	kindRotation       = "environment_rotation"
	kindChangeRequest  = "change_request"
)

// group is a set of events that a webhook can select with one name.
type group struct {
	kinds map[Name]string
	of    []ownerKind // those besides organizations whose webhooks can select the group
}

// ownerKind is a kind of what has webhooks.
type ownerKind string

const (
	ofOrganization ownerKind = "organization"
	ofStack        ownerKind = "stack"
	ofEnvironment  ownerKind = "environment"
)

func (k ownerKind) mayHave(g group) bool { return k == ofOrganization || slices.Contains(g.of, k) }

func ownerKindOf(h store.Webhook) ownerKind {
	switch {
	case h.OfEnvironment:
		return ofEnvironment
	case h.OwnerID != "":
		return ofStack
	default:
		return ofOrganization
	}
}

// orgOnly lists events of the groups "stacks" and "environments" that only webhooks of organizations receive. When they
// occur, the stack or environment has no webhooks yet, or no longer exists.
var orgOnly = []Name{StackCreated, StackDeleted, EnvironmentCreated, EnvironmentDeleted}

// groups lists all events that a webhook can select, and the kind of their payloads. Some never
// occur on this server: those of features that it does not have. Clients select them by default.
var groups = map[string]group{
	"stacks": {of: []ownerKind{ofStack}, kinds: map[Name]string{
		"update_succeeded": kindUpdate, "update_failed": kindUpdate,
		"preview_succeeded": kindPreview, "preview_failed": kindPreview,
		"destroy_succeeded": kindUpdate, "destroy_failed": kindUpdate,
		"refresh_succeeded": kindUpdate, "refresh_failed": kindUpdate,
		"import_succeeded": kindUpdate, "import_failed": kindUpdate,
		StackCreated: kindStack, StackDeleted: kindStack,
	}},
	"deployments": {of: []ownerKind{ofStack}, kinds: map[Name]string{
		DeploymentQueued: kindDeployment, DeploymentStarted: kindDeployment,
		DeploymentSucceeded: kindDeployment, DeploymentFailed: kindDeployment,
		DriftDetected: kindDriftDetection, DriftDetectionSucceeded: kindDriftDetection, DriftDetectionFailed: kindDriftDetection,
		DriftRemediationSucceeded: kindDriftRemediation, DriftRemediationFailed: kindDriftRemediation,
		"deployment_file_ingestion_failed": kindDeployment,
	}},
	"policies": {of: []ownerKind{ofStack}, kinds: map[Name]string{
		PolicyMandatory: kindMandatory, PolicyAdvisory: kindAdvisory, PolicyNotEvaluated: kindNotEvaluated,
	}},
	"environments": {of: []ownerKind{ofEnvironment}, kinds: map[Name]string{
		EnvironmentCreated: kindEnvironment, EnvironmentDeleted: kindEnvironment,
		RevisionCreated: kindRevision, RevisionRetracted: kindRevision,
		RevisionTagCreated: kindRevisionTag, RevisionTagUpdated: kindRevisionTag, RevisionTagDeleted: kindRevisionTag,
		EnvironmentTagCreated: kindEnvironmentTag, EnvironmentTagUpdated: kindEnvironmentTag, EnvironmentTagDeleted: kindEnvironmentTag,
		ImportedEnvironmentChanged:       kindImported,
		"environment_rotation_succeeded": kindRotation, "environment_rotation_failed": kindRotation,
	}},
	"change_requests": {of: []ownerKind{ofEnvironment}, kinds: map[Name]string{
		"change_request_created": kindChangeRequest, "change_request_updated": kindChangeRequest, "change_request_submitted": kindChangeRequest,
		"change_request_approved": kindChangeRequest, "change_request_unapproved": kindChangeRequest,
		"change_request_applied": kindChangeRequest, "change_request_closed": kindChangeRequest,
	}},
}

// kindOf returns the kind of an event's payload and the event's group, or "" for an unknown event.
func kindOf(n Name) (kind, inGroup string) {
	for name, g := range groups {
		if kind, ok := g.kinds[n]; ok {
			return kind, name
		}
	}
	return "", ""
}

// groupNames returns the names of the groups that the webhooks of an owner can select, in alphabetical order.
func groupNames(of ownerKind) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(groups)), func(name string) bool { return !of.mayHave(groups[name]) })
}
