package podspec

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
)

// Names of a pod's containers. Templates and scripts refer to them.
const (
	MainContainer  = "pulumi-workflow"      // runs the job; always the first container
	InitContainer  = "copy-workflow-runner" // copies the runner and the launch document
	SpoolContainer = "workflow-spool"       // a native sidecar that prints the unsent log after the job
)

// Names of a pod's volumes.
const (
	RunnerVolume = "workflow-runner-volume" // the runner and the job's directory
	LaunchVolume = "workflow-launch-volume" // the launch document, in memory
	SecretVolume = "workflow-secret-volume" // the job's Secret

	WorkspaceVolume = "workflow-workspace-volume" // all workspaces; the main container sees only the job's
)

// Paths in a pod.
const (
	RunnerDir  = "/mnt/pulumi/workflow" // where RunnerVolume is mounted
	RunnerPath = RunnerDir + "/" + executor.RunnerName
	JobDir     = RunnerDir + "/job"
	LaunchDir  = "/mnt/pulumi/launch" // where LaunchVolume is mounted
	LaunchPath = LaunchDir + "/" + LaunchKey
	SecretDir  = "/mnt/pulumi/secret" // where SecretVolume is mounted
	SecretPath = SecretDir + "/" + LaunchKey
	// WorkspaceDir is where the job's part of WorkspaceVolume is mounted.
	WorkspaceDir = "/mnt/pulumi/workspace"
	// ResultPath is the file from which the cluster reads the message of the main container's end.
	ResultPath = protocol.FileTermination
	// AgentRunnerPath is the runner's path in the agent's image.
	AgentRunnerPath = "/usr/local/bin/" + executor.RunnerName
)

// LaunchKey is the key of the launch document in a job's Secret. The pod waits until the key exists,
// so a node with an outdated copy of the Secret does not start it without the document.
const LaunchKey = "launch.json"

// SpentLaunch replaces the launch document in the Secret once the runner has started. Unlike a Secret
// without the key, it lets the cluster mount the volume again, and in a copy of the pod for debugging
// too, whose runner then finds nothing to run.
const SpentLaunch = "{}\n"

// HolderEnv is the variable with the pod's unique ID in the main container.
const HolderEnv = "WORKFLOW_POD_UID"

// Labels and annotations of the pod and the Secret. A value that is no label value is replaced by
// its digest in a label; the annotation of the same name has the value itself.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelComponent = "app.kubernetes.io/component"
	NameValue      = "workflow-runner"
	ComponentValue = "pulumi-workflow"

	prefix     = "workflowagent/"
	LabelOwner = prefix + "owner" // the agent's stable ID
	LabelJob   = prefix + "job"
	LabelEpoch = prefix + "epoch"
	LabelDebug = prefix + "debug" // "true" on a pod that remains after its job
)

const namePrefix = "pulumi-workflow-runner-"

// Name returns the name of a job's pod and of its Secret. The name depends only on the arguments,
// and different owners get different names.
func Name(owner, jobID string, epoch int64) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(owner)) + ":" + owner + jobID))
	return namePrefix + hex.EncodeToString(sum[:8]) + "-" + strconv.FormatInt(epoch, 10)
}

// LabelValue returns s, or its digest if s is not a label value.
func LabelValue(s string) string {
	if len(validation.IsValidLabelValue(s)) == 0 {
		return s
	}
	return executor.Digest(s)
}

// Labels returns the labels of a job's objects.
func Labels(spec executor.Spec) map[string]string {
	labels := Annotations(spec)
	maps.DeleteFunc(labels, func(_, v string) bool { return len(validation.IsValidLabelValue(v)) > 0 })
	labels[LabelName] = NameValue
	labels[LabelComponent] = ComponentValue
	labels[LabelOwner] = LabelValue(spec.Owner)
	labels[LabelJob] = LabelValue(spec.JobID)
	return labels
}

// Annotations returns the annotations of a job's objects: the exact values of [Labels].
func Annotations(spec executor.Spec) map[string]string {
	annotations := map[string]string{}
	for k, v := range spec.Labels {
		if len(validation.IsQualifiedName(prefix+k)) == 0 {
			annotations[prefix+k] = v
		}
	}
	annotations[LabelOwner] = spec.Owner
	annotations[LabelJob] = spec.JobID
	annotations[LabelEpoch] = strconv.FormatInt(spec.Epoch, 10)
	return annotations
}

// Selector returns the label selector of all jobs of an owner.
func Selector(owner string) string { return LabelOwner + "=" + LabelValue(owner) }
