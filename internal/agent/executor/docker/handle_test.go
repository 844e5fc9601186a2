package docker

import (
	"maps"
	"slices"
	"testing"
	"time"

	"workflowagent/internal/agent/executor"
)

// TestLabelsLeaveNothingToTheImage checks that the executor's labels replace an image's labels,
// which can have any name.
func TestLabelsLeaveNothingToTheImage(t *testing.T) {
	spec := executor.Spec{JobID: "j", Epoch: 1, Owner: "o", Labels: map[string]string{"owner": "other", "shared-directory": "/home"}}
	container := map[string]string{}
	for _, name := range []string{labelOwner, labelKind, labelName, labelJob, labelEpoch, labelJobDir, labelShared, labelCreated} {
		container[name] = "/of the image"
	}
	maps.Copy(container, labels(spec, job{Name: "workflow-j-1-x", JobDir: defaultJobDir}, kindJob, time.Now()))
	if slices.Contains(slices.Collect(maps.Values(container)), "/of the image") {
		t.Errorf("labels of the image remain: %v", container)
	}
	if l := readLabels(container); l.Shared != "" || l.Name != "workflow-j-1-x" || l.JobDir != defaultJobDir || l.id != "j" || l.epoch != 1 {
		t.Errorf("List reads %+v", l)
	}
}
