package podspec

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"workflowagent/internal/workflow"
)

// TestCopyHasNoSecrets copies a pod that gets secrets in every way, as a cluster returns it.
func TestCopyHasNoSecrets(t *testing.T) {
	const template = `
metadata: {labels: {team: a}}
spec:
  serviceAccountName: powerful
  automountServiceAccountToken: true
  imagePullSecrets: [{name: registry}]
  initContainers:
    - {name: fetch, image: i, env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: leak}}}]}
  containers:
    - name: pulumi-workflow
      env:
        - {name: PLAIN, value: kept}
        - {name: PULUMI_ACCESS_TOKEN, value: leak}
        - {name: HIDDEN, valueFrom: {secretKeyRef: {name: s, key: leak}}}
      envFrom: [{secretRef: {name: leak}}, {configMapRef: {name: settings}}]
      lifecycle: null
      volumeMounts: [{name: certs, mountPath: /certs}, {name: csi, mountPath: /csi}, {name: mixed, mountPath: /mixed}]
    - {name: proxy, image: i}
  volumes:
    - {name: certs, secret: {secretName: leak}}
    - {name: csi, csi: {driver: leak.example.com}}
    - name: mixed
      projected: {sources: [{secret: {name: leak}}, {serviceAccountToken: {path: leak}}, {configMap: {name: settings}}]}
`
	spec := testSpec()
	spec.Image.Credentials = &workflow.ImageCredentials{}
	c := testOptions()
	c.Template, c.DebugPod = template, true
	c.WorkspaceClaim, spec.Workspace = "leak", strings.Repeat("0", 64)
	pod := build(t, c, spec)
	pod.UID, pod.ResourceVersion, pod.Spec.NodeName, pod.Spec.Priority = "leak", "1", "node", new(int32(1))
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "leak"}}}},
	}})
	before := pod.DeepCopy()

	got := Copy(pod, time.Hour)
	if pod.String() != before.String() {
		t.Error("Copy changed the original")
	}
	text, err := YAML(got)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"leak", "powerful", "secretKeyRef", "secretRef", "secretName", LabelOwner, LabelJob, LabelDebug, SpoolContainer, "kind: Secret"} {
		if strings.Contains(string(text), word) {
			t.Errorf("the copy contains %s:\n%s", word, text)
		}
	}
	main := got.Spec.Containers[0]
	if main.Name != MainContainer || main.Command[1] != "keep" || len(main.Env) != 5 {
		t.Errorf("the main container is %+v", main)
	}
	env := map[string]string{}
	for _, e := range main.Env {
		env[e.Name] = e.Value
	}
	if env["PLAIN"] != "kept" || env["HIDDEN"] != dummy || env["PULUMI_ACCESS_TOKEN"] != dummy {
		t.Errorf("the variables are %v", env)
	}
	if got.Name != pod.Name+"-debug" || got.Namespace != pod.Namespace || got.Labels[LabelCopy] != pod.Name || got.Labels["team"] != "a" || got.Labels[LabelName] != NameValue || got.UID != "" {
		t.Errorf("the metadata are %+v", got.ObjectMeta)
	}
	s := got.Spec
	if *s.ActiveDeadlineSeconds != 3600 || *s.AutomountServiceAccountToken || s.NodeName != "" || len(s.Containers) != 2 || len(s.InitContainers) != 2 ||
		len(s.ImagePullSecrets) != 1 || s.ImagePullSecrets[0].Name != "registry" || len(main.EnvFrom) != 1 {
		t.Errorf("the copy is\n%s", text)
	}
	for _, v := range s.Volumes {
		switch v.Name {
		case SecretVolume:
			if v.DownwardAPI == nil || got.Annotations[launchAnnotation] != SpentLaunch {
				t.Errorf("the launch document comes from %+v", v)
			}
		case "mixed":
			if v.Projected == nil || len(v.Projected.Sources) != 1 || v.Projected.Sources[0].ConfigMap == nil {
				t.Errorf("the projected volume is %+v", v)
			}
		default:
			if v.EmptyDir == nil {
				t.Errorf("the volume %s is %+v", v.Name, v.VolumeSource)
			}
		}
	}
}
