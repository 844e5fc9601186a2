package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
)

// TestWorkspaces checks the objects that keep workspaces, which every way to install uses.
func TestWorkspaces(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(packaging, "kubernetes", "workspaces.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := parse(t, text)
	if all["PersistentVolumeClaim workflow-agent-jobs/workflow-workspaces"] == nil {
		t.Errorf("the objects are %q", all.keys())
	}
	encoded, err := json.Marshal(all["CronJob workflow-agent-jobs/workflow-workspaces"])
	if err != nil {
		t.Fatal(err)
	}
	var job batchv1.CronJob
	if err := json.Unmarshal(encoded, &job); err != nil {
		t.Fatal(err)
	}
	pod := job.Spec.JobTemplate.Spec.Template.Spec
	if len(pod.Containers) != 1 || len(pod.Volumes) != 1 {
		t.Fatalf("the pod is %+v", pod)
	}
	c, volume := pod.Containers[0], pod.Volumes[0]
	if volume.PersistentVolumeClaim == nil || volume.PersistentVolumeClaim.ClaimName != "workflow-workspaces" ||
		len(c.VolumeMounts) != 1 || c.VolumeMounts[0].Name != volume.Name {
		t.Errorf("the volumes are %+v, mounted as %+v", pod.Volumes, c.VolumeMounts)
	}
	if want := []string{"customer-managed-workflow-agent", "cache", "prune", "--directory", c.VolumeMounts[0].MountPath}; !slices.Equal(c.Command, want) {
		t.Errorf("the command is %q, want %q", c.Command, want)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Error("the pod has a token of the cluster")
	}
}
