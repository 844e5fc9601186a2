package webhooks

import (
	"maps"
	"slices"
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
)

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
)

// group is a set of events that a webhook can select with one name.
type group struct {
	kinds   map[Name]string
	orgOnly bool // only webhooks of organizations can select the group
}

// orgOnly lists events of the group "stacks" that only webhooks of organizations receive. When they
// occur, the stack has no webhooks yet, or is no longer there to have any.
var orgOnly = []Name{StackCreated, StackDeleted}

// groups lists all events that a webhook can select, and the kind of their payloads. Some never
// occur on this server: those of features that it does not have. Clients select them by default.
var groups = map[string]group{
	"stacks": {kinds: map[Name]string{
		"update_succeeded": kindUpdate, "update_failed": kindUpdate,
		"preview_succeeded": kindPreview, "preview_failed": kindPreview,
		"destroy_succeeded": kindUpdate, "destroy_failed": kindUpdate,
		"refresh_succeeded": kindUpdate, "refresh_failed": kindUpdate,
		"import_succeeded": kindUpdate, "import_failed": kindUpdate,
		StackCreated: kindStack, StackDeleted: kindStack,
	}},
	"deployments": {kinds: map[Name]string{
		DeploymentQueued: kindDeployment, DeploymentStarted: kindDeployment,
		DeploymentSucceeded: kindDeployment, DeploymentFailed: kindDeployment,
		DriftDetected: kindDriftDetection, DriftDetectionSucceeded: kindDriftDetection, DriftDetectionFailed: kindDriftDetection,
		DriftRemediationSucceeded: kindDriftRemediation, DriftRemediationFailed: kindDriftRemediation,
		"deployment_file_ingestion_failed": kindDeployment,
	}},
	"policies": {kinds: map[Name]string{
		"policy_violation_mandatory": "policy_violation_mandatory", "policy_violation_advisory": "policy_violation_advisory",
	}},
	"environments": {orgOnly: true, kinds: func() map[Name]string {
		out := map[Name]string{}
		for _, n := range []Name{
			"environment_created", "environment_deleted", "environment_revision_created", "environment_revision_retracted",
			"environment_revision_tag_created", "environment_revision_tag_deleted", "environment_revision_tag_updated",
			"environment_tag_created", "environment_tag_deleted", "environment_tag_updated", "imported_environment_changed",
			"environment_rotation_succeeded", "environment_rotation_failed",
		} {
			out[n] = "environment"
		}
		return out
	}()},
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

// groupNames returns the names of the groups that a webhook can select, in alphabetical order.
func groupNames(ofStack bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(groups)), func(name string) bool { return ofStack && groups[name].orgOnly })
}
