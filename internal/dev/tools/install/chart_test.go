package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

const (
	serverURL = "externalUrl: https://deployments.example.com\n"
	postgres  = serverURL + "database: {existingSecretName: database}\nmasterKey: {existingSecretName: key}\n"
)

func TestLint(t *testing.T) {
	for chart, values := range map[string]map[string]any{
		"agent":  {"agent": map[string]any{"token": "pul-REPLACE-ME"}},
		"server": {"externalUrl": "https://deployments.example.com"},
	} {
		linter := lint.All(filepath.Join(packaging, "helm", chart), values, "workflow", true)
		for _, message := range linter.Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("%s: %s", chart, message)
			}
		}
	}
}

func TestServerObjects(t *testing.T) {
	for _, tt := range []struct {
		name, values string
		want         []string
	}{
		{"sqlite", serverURL, []string{
			"PodDisruptionBudget workflow-agent/workflow-server", "Service workflow-agent/workflow-server", "StatefulSet workflow-agent/workflow-server",
		}},
		{"postgres", postgres + "replicaCount: 3", []string{
			"Deployment workflow-agent/workflow-server", "PodDisruptionBudget workflow-agent/workflow-server", "Service workflow-agent/workflow-server",
		}},
		{
			"every option",
			postgres + `
autoscaling: {enabled: true}
ingress: {enabled: true, host: deployments.example.com, className: nginx, tlsSecretName: tls, annotations: {a: b}}
metrics: {existingSecretName: metrics, serviceMonitor: {enabled: true}}
grafanaDashboard: {enabled: true}
settings: {WORKFLOW_SERVER_LOG_FORMAT: json}
imagePullSecrets: [registry]
nodeSelector: {disk: ssd}
tolerations: [{operator: Exists}]
affinity: {podAntiAffinity: {}}
priorityClassName: high
image: {digest: "sha256:` + strings.Repeat("0", 64) + `"}
`,
			[]string{
				"ConfigMap workflow-agent/workflow-server-dashboard", "Deployment workflow-agent/workflow-server",
				"HorizontalPodAutoscaler workflow-agent/workflow-server", "Ingress workflow-agent/workflow-server",
				"PodDisruptionBudget workflow-agent/workflow-server", "Service workflow-agent/workflow-server",
				"ServiceMonitor workflow-agent/workflow-server",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := gocmp.Diff(tt.want, charted(t, "server", tt.values).keys()); diff != "" {
				t.Errorf("the objects (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAgentOptions checks that every option of the agent's pods results in valid objects.
func TestAgentOptions(t *testing.T) {
	all := charted(t, "agent", `
agent: {existingSecretName: pool}
imagePullSecrets: [registry]
grafanaDashboard: {enabled: true}
nodeSelector: {disk: ssd}
tolerations: [{operator: Exists}]
affinity: {podAntiAffinity: {}}
priorityClassName: high
terminationGracePeriodSeconds: 3600
image: {digest: "sha256:`+strings.Repeat("0", 64)+`"}
`)
	if all["Secret workflow-agent/agent-secret"] != nil || all["ConfigMap workflow-agent/agent-dashboard"] == nil {
		t.Errorf("the objects are %v", all.keys())
	}
	text := jsonOf(all["Deployment workflow-agent/workflow-agent-pool"])
	for _, want := range []string{`"secretKeyRef":{"key":"PULUMI_AGENT_TOKEN","name":"pool"}`, `"3540s"`, `customer-managed-workflow-agent@sha256:0000`} {
		if !strings.Contains(text, want) {
			t.Errorf("the Deployment does not contain %s:\n%s", want, text)
		}
	}
}

// TestAgentVariables checks that the chart accepts every variable that the documentation advises.
func TestAgentVariables(t *testing.T) {
	const names = "PULUMI_DEPLOY_OVERRIDE_IMAGE_REFERENCE HTTPS_PROXY HTTP_PROXY NO_PROXY https_proxy http_proxy no_proxy PULUMI_AGENT_PULL_IMAGE"
	settings := map[string]any{}
	var values strings.Builder
	for name := range strings.FieldsSeq(names) {
		settings[name] = "value"
		values.WriteString("    " + name + ": value\n")
	}
	settings["PULUMI_AGENT_MAX_CONCURRENT_JOBS"] = "1"
	all := charted(t, "agent", "agent:\n  token: t\n  settings:\n"+values.String())
	if diff := gocmp.Diff(settings, all["ConfigMap workflow-agent/agent-settings"]["data"]); diff != "" {
		t.Errorf("the settings (-want +got):\n%s", diff)
	}
}

// TestPoolsInOneNamespace checks that releases for two pools share no object, and that no selector of
// one selects pods of the other, whether their jobs share a namespace or not.
func TestPoolsInOneNamespace(t *testing.T) {
	both := map[string][2]objects{"manifests": {kustomized(t, "service-monitor"), kustomized(t, "another-pool", "service-monitor")}}
	for name, jobs := range map[string]string{
		"chart": "", "chart, common jobs' namespace": "jobs: {namespace: shared, createNamespace: false, networkPolicy: true}\n",
	} {
		values := token + jobs + "serviceMonitor: {enabled: true}\ngrafanaDashboard: {enabled: true}"
		both[name] = [2]objects{charted(t, "agent", values), charted(t, "agent", values+"\npool: gpu")}
	}
	for way, pools := range both {
		first, second := pools[0], pools[1]
		if len(second) < 8 {
			t.Errorf("%s: the second pool has only %v", way, second.keys())
		}
		for key := range first {
			if second[key] != nil {
				t.Errorf("%s: both pools contain %s", way, key)
			}
		}
		const label = "app.kubernetes.io/name"
		for key, o := range second {
			text := jsonOf(o)
			if strings.Contains(text, `"`+label+`":"customer-managed-workflow-agent"`) {
				t.Errorf("%s: %s has the label of the first pool: %s", way, key, text)
			}
			for name := range strings.FieldsSeq("agent-config agent-settings agent-secret workflow-agent workflow-agent-pool workflow-runner") {
				text := strings.ReplaceAll(text, `"name":"agent-config","readOnly"`, "") // a volume's name
				text = strings.ReplaceAll(text, `},"name":"agent-config"}`, "")
				if strings.Contains(text, `"name":"`+name+`"`) {
					t.Errorf("%s: %s refers to %s of the first pool: %s", way, key, name, text)
				}
			}
		}
	}
}

func TestBadValues(t *testing.T) {
	for _, tt := range []struct{ chart, values, want string }{
		{"agent", "", "set agent.token to the token of the agent pool"},
		{"agent", token + "replicas: 2", "replicas"},
		{"agent", token + "image: {pullPolicy: Sometimes}", "pullPolicy"},
		{"agent", "agent: {token: t, settings: {PULUMI_AGENT_TOKEN: t}}", "PULUMI_AGENT_TOKEN"},
		{"agent", "agent: {oidc: {poolID: id}}", "organization"},
		{"agent", "agent: {oidc: {organization: acme}}", "organization"},
		{"agent", token + "pool: Not_A_Name", "pool"},
		{"agent", token + "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds"},
		{"server", "", "set externalUrl"},
		{"server", serverURL + "replicaCount: 2", "replicaCount must be 1 without database.existingSecretName"},
		{"server", serverURL + "autoscaling: {enabled: true}", "autoscaling.enabled requires"},
		{"server", serverURL + "database: {existingSecretName: database}", "set masterKey.existingSecretName"},
		{"server", serverURL + "metrics: {serviceMonitor: {enabled: true}}", "set metrics.existingSecretName"},
		{"server", serverURL + "ingress: {enabled: true}", "set ingress.host"},
		{"server", serverURL + "settings: {LOG_FORMAT: json}", "LOG_FORMAT"},
	} {
		if _, err := template(tt.chart, "workflow", tt.values); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %q: error %v, want %q", tt.chart, tt.values, err, tt.want)
		}
	}
}

// TestDashboards checks that the documentation lists every metric of the dashboards.
func TestDashboards(t *testing.T) {
	for chart, page := range map[string]string{"agent": "operations.md", "server": "server-monitoring.md"} {
		var dashboard struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		text := read(t, filepath.Join(packaging, "helm", chart, "files", "dashboard.json"))
		if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
			t.Fatal(err)
		}
		documented, names := read(t, filepath.Join("../../../../docs", page)), 0
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				for _, name := range regexp.MustCompile(`workflow_(agent|server)_[a-z_]+`).FindAllString(target.Expr, -1) {
					names++
					if name = strings.TrimSuffix(name, "_bucket"); !strings.Contains(documented, "`"+name) {
						t.Errorf("%s, panel %q: %s does not list %s", chart, panel.Title, page, name)
					}
				}
			}
		}
		if names < 8 {
			t.Errorf("%s: the dashboard has only %d metrics", chart, names)
		}
	}
}
