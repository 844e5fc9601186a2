package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

const token = "agent: {token: pul-REPLACE-ME}\n"

// TestProgram compiles the Pulumi program and compares its objects with those of manifests and chart.
func TestProgram(t *testing.T) {
	built := buildProgram(t, podTypes)
	t.Run("objects", built.testSameObjects)
	t.Run("values", built.testSameValues)
}

// testSameObjects checks that manifests, chart and Pulumi program create the same objects.
func (p program) testSameObjects(t *testing.T) {
	for _, tt := range []struct {
		name       string
		components []string
		values     string
		config     map[string]string
	}{
		{name: "default"},
		{
			"one namespace",
			[]string{"one-namespace"},
			"jobs: {namespace: workflow-agent}",
			map[string]string{"jobNamespace": "workflow-agent"},
		},
		{
			"every option",
			[]string{"service-monitor", "network-policy", "ca-certificates"},
			"serviceMonitor: {enabled: true}\njobs: {networkPolicy: true}\ncaCertificateSecretName: agent-ca-certificates",
			map[string]string{"enableServiceMonitor": "true", "enableNetworkPolicy": "true", "caCertificateSecretName": "agent-ca-certificates"},
		},
		{
			"service account's token",
			[]string{"oidc"},
			"agent: {oidc: {organization: ORGANIZATION, poolID: POOL-ID}}",
			map[string]string{"agentOIDC": `{"organization": "ORGANIZATION", "poolID": "POOL-ID"}`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			manifests := normal(kustomized(t, tt.components...))
			chart := normal(charted(t, "agent", withToken(tt.values)))
			// "helm install --create-namespace" creates the agent's namespace.
			const namespace = "Namespace /workflow-agent"
			chart[namespace] = manifests[namespace]
			if diff := gocmp.Diff(manifests, chart); diff != "" {
				t.Errorf("the chart differs (-manifests +chart):\n%s", diff)
			}
			config := map[string]string{
				"agentNamespace": "workflow-agent", "selfHostedAgentsAccessToken": "pul-REPLACE-ME",
				"agentImage":           "registry.example.com/pulumi/customer-managed-workflow-agent:v1.2.3",
				"selfHostedServiceURL": "https://deployments.example.com",
			}
			maps.Copy(config, tt.config)
			if diff := gocmp.Diff(manifests, normal(p.evaluate(t, config))); diff != "" {
				t.Errorf("the program differs (-manifests +program):\n%s", diff)
			}
		})
	}
}

// testSameValues checks that values have the same effect in the chart and in the Pulumi program.
func (p program) testSameValues(t *testing.T) {
	chart := normal(charted(t, "agent", `
image: {pullPolicy: IfNotPresent}
replicaCount: 7
agent:
  token: pul-REPLACE-ME
  serviceUrl: https://api.pulumi.com
  numCpus: 500m
  memQuantity: "4"
  settings: {PULUMI_AGENT_MAX_CONCURRENT_JOBS: "8"}
podTemplate: {spec: {nodeSelector: {disk: ssd}}}
workerServiceAccount: {annotations: {role: deployer}}
pool: gpu
extraEnv: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
extraEnvFrom: [{secretRef: {name: proxy}}]
extraVolumes: [{name: extra, emptyDir: {}}]
extraVolumeMounts: [{name: extra, mountPath: /extra}]
`))
	got := normal(p.evaluate(t, map[string]string{
		"agentNamespace": "workflow-agent", "selfHostedAgentsAccessToken": "pul-REPLACE-ME",
		"agentImage":           "registry.example.com/pulumi/customer-managed-workflow-agent:v1.2.3",
		"agentImagePullPolicy": "IfNotPresent", "agentReplicas": "7", "agentNumCpus": "500m", "agentMemQuantity": "4",
		"agentSettings":                   `{"PULUMI_AGENT_MAX_CONCURRENT_JOBS": "8"}`,
		"podTemplate":                     `{"spec": {"nodeSelector": {"disk": "ssd"}}}`,
		"workerServiceAccountAnnotations": `{"role": "deployer"}`,
		"agentPool":                       "gpu",
		"agentExtraEnv":                   `[{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]`,
		"agentExtraEnvFrom":               `[{"secretRef": {"name": "proxy"}}]`,
		"agentExtraVolumes":               `[{"name": "extra", "emptyDir": {}}]`,
		"agentExtraVolumeMounts":          `[{"name": "extra", "mountPath": "/extra"}]`,
	}))
	delete(got, "Namespace /workflow-agent")
	// Helm labels the namespace of the jobs with the pool, which the program does not.
	delete(got, "Namespace /workflow-agent-gpu-jobs")
	delete(chart, "Namespace /workflow-agent-gpu-jobs")
	if diff := gocmp.Diff(chart, got); diff != "" {
		t.Errorf("the program differs (-chart +program):\n%s", diff)
	}
	for path, want := range map[string]any{
		"ConfigMap workflow-agent/agent-settings-gpu": map[string]any{
			"PULUMI_AGENT_MAX_CONCURRENT_JOBS": "8", "PULUMI_AGENT_NUM_CPUS": "500m", "PULUMI_AGENT_MEM_QUANTITY": "4",
		},
		"ConfigMap workflow-agent/agent-config-gpu": map[string]any{
			"PULUMI_AGENT_SERVICE_URL": "https://api.pulumi.com", "PULUMI_AGENT_IMAGE_PULL_POLICY": "IfNotPresent",
			"PULUMI_AGENT_IMAGE": "registry.example.com/pulumi/customer-managed-workflow-agent:v1.2.3",
			"worker-pod.json":    `{"spec":{"nodeSelector":{"disk":"ssd"}}}` + "\n",
		},
	} {
		if diff := gocmp.Diff(want, chart[path]["data"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// withToken adds the pool's token to values that contain no credentials.
func withToken(values string) string {
	if strings.Contains(values, "oidc") {
		return values
	}
	return token + values
}

// podTypes passes pods in the types of Kubernetes clients as templates.
const podTypes = `
import * as k8s from "@pulumi/kubernetes";
import { PulumiSelfHostedAgentComponent } from "./agent";

class V1Pod {
    metadata?: { labels?: { [key: string]: string } };
    spec?: { nodeSelector?: { [key: string]: string } };
}
const classPod: V1Pod = { spec: { nodeSelector: { "kubernetes.io/os": "linux" } } };
const typedPod: k8s.types.input.core.v1.Pod = { spec: { containers: [{ name: "pulumi-workflow", env: [{ name: "HELLO", value: "world" }] }] } };
for (const podTemplate of [classPod, typedPod]) {
    new PulumiSelfHostedAgentComponent("agent", { namespace: "cmda", accessToken: "pul-", image: "image", podTemplate });
}
`

// TestSettingsExist checks that every setting in the agent's objects and examples exists.
func TestSettingsExist(t *testing.T) {
	documented := read(t, "../../../../docs/configuration.md")
	names := regexp.MustCompile(`PULUMI_AGENT_[A-Z_]*[A-Z]`)
	for _, dir := range []string{"kubernetes", "helm/agent"} {
		checked := 0
		err := filepath.WalkDir(filepath.Join(packaging, dir), func(path string, entry os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.Name() == "node_modules" {
				return filepath.SkipDir
			}
			if !entry.Type().IsRegular() {
				return nil
			}
			for _, name := range names.FindAllString(read(t, path), -1) {
				checked++
				if !strings.Contains(documented, "`"+name+"`") {
					t.Errorf("%s: the agent has no setting %s", path, name)
				}
			}
			return nil
		})
		if err != nil || checked == 0 {
			t.Errorf("%s: %d names, %v", dir, checked, err)
		}
	}
}

// TestRights checks the agent's rights: the Role is in the jobs' namespace, and no ClusterRole
// exists.
func TestRights(t *testing.T) {
	all := kustomized(t)
	want := map[string][]string{
		"pods": {"create", "delete", "get", "list", "watch"}, "pods/log": {"get"}, "events": {"list"},
		"secrets": {"create", "delete", "patch"},
	}
	got := map[string][]string{}
	role, _ := all["Role workflow-agent-jobs/workflow-agent"]
	rules, _ := role["rules"].([]any)
	for _, r := range rules {
		rule, _ := r.(object)
		resources, _ := rule["resources"].([]any)
		verbs, _ := rule["verbs"].([]any)
		for _, resource := range resources {
			for _, verb := range verbs {
				got[fmt.Sprint(resource)] = append(got[fmt.Sprint(resource)], fmt.Sprint(verb))
			}
			slices.Sort(got[fmt.Sprint(resource)])
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the Role (-want +got):\n%s", diff)
	}
	for key := range all {
		if strings.HasPrefix(key, "Cluster") || strings.HasPrefix(key, "Role workflow-agent/") {
			t.Errorf("the manifests contain %s", key)
		}
	}
}

// normal returns objects without what may differ between ways of installation: labels of Helm, the
// checksum that restarts agents, and the order of lists that are sets.
func normal(all objects) objects {
	for _, o := range all {
		normalize(o)
	}
	return all
}

func normalize(value any) {
	switch value := value.(type) {
	case object:
		if labels, ok := value["labels"].(object); ok {
			delete(labels, "helm.sh/chart")
			delete(labels, "app.kubernetes.io/managed-by")
		}
		if annotations, ok := value["annotations"].(object); ok {
			delete(annotations, "checksum/config")
			if len(annotations) == 0 {
				delete(value, "annotations")
			}
		}
		for key, child := range value {
			normalize(child)
			if list, ok := child.([]any); ok && slices.Contains([]string{"env", "volumes", "volumeMounts"}, key) {
				slices.SortFunc(list, func(a, b any) int { return cmp.Compare(jsonOf(a), jsonOf(b)) })
			}
		}
	case []any:
		for _, child := range value {
			normalize(child)
		}
	}
}

func jsonOf(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
