package podspec

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/agent/executor"
)

// TestBadTemplates checks that a bad template is rejected with its line and path.
func TestBadTemplates(t *testing.T) {
	for _, tt := range []struct{ name, template, want string }{
		// Texts that are no pod.
		{"syntax", "spec:\n  containers: [", "T:"},
		{"tab", "spec:\n\tcontainers: []", "T:2: is not valid YAML or JSON"},
		{"repeated key", "spec: {}\nspec: {}", "is not valid YAML or JSON"},
		{"repeated JSON key", `{"spec": {}, "spec": {}}`, "is not valid YAML or JSON"},
		{"list", "- spec", "T:1: is not a pod"},
		{"text", "pod", "T:1: is not a pod"},
		{"documents", "spec: {}\n---\nspec: {}", "T: contains more than one document"},
		{"deep", "spec: {affinity: " + strings.Repeat("{a: ", 5000) + strings.Repeat("}", 5001), "T: has more than 50 levels"},
		{"aliases", "a: &a [" + strings.Repeat("x, ", 1000) + "]\nb: &b [" + strings.Repeat("*a, ", 1000) + "]\nc: [" + strings.Repeat("*b, ", 1000) + "]", "excessive aliasing"},
		{"unknown field", "spec:\n  containers:\n  - name: pulumi-workflow\n    env:\n    - name: A\n      valeu: b", "T:6: spec.containers[0].env[0].valeu: is not a field"},
		{"case", "spec:\n  nodeselector: {}", "T:2: spec.nodeselector: is not a field"},
		{"pod template", "template:\n  spec: {}", "T:2: template.spec: is not a field"},
		{"unknown directive", "spec:\n  $remove: x", "T:2: spec.$remove: is not a field"},
		{"type", "spec:\n  containers:\n  - name: pulumi-workflow\n    env:\n    - name: A\n      value: 5", "T:6: spec.containers[0].env[0].value: is a number: write a string"},
		{"quantity", "spec:\n  containers:\n  - name: pulumi-workflow\n    resources:\n      limits:\n        memory: lots", "T:6: spec.containers[0].resources.limits.memory: is not a quantity: write one such as 500m or 2Gi"},
		{"second in list", "spec:\n  tolerations:\n  - key: a\n  - kay: b", "T:4: spec.tolerations[1].kay: is not a field"},
		{"JSON", "{\n  \"spec\": {\n    \"hostNetwork\": \"yes\"\n  }\n}", "T:3: spec.hostNetwork: is a string: write a bool"},
		{"directive", "spec:\n  tolerations:\n  - $patch: maybe\n    key: a", "T:3: spec.tolerations[0].$patch: is not one of the directives"},
		{"no name", "spec:\n  containers:\n  - image: x", "cannot be merged"},
		{"kind", "kind: Deployment\nspec: {}", "T:1: kind: the template is not a Pod"},
		{"version", "apiVersion: v2", "is not a Pod of v1"},

		// Changes of what belongs to the agent.
		{"pod name", "metadata:\n  name: mine", "T:2: metadata.name: belongs to the agent"},
		{"namespace", "metadata: {namespace: kube-system}", "metadata.namespace: belongs to the agent"},
		{"generated name", "metadata: {generateName: x}", "metadata.generateName: belongs"},
		{"finalizer", "metadata: {finalizers: [a/b]}", "metadata.finalizers: belongs"},
		{"owner", "metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: x, uid: u}]}", "metadata.ownerReferences: belongs"},
		{"status", "status: {phase: Running}", "status: belongs"},
		{"label", "metadata:\n  labels:\n    a: b\n    app.kubernetes.io/name: mine", "T:4: metadata.labels.app.kubernetes.io/name: belongs"},
		{"no label", "metadata: {labels: {workflowagent/owner: null}}", "metadata.labels.workflowagent/owner: belongs"},
		{"no labels", "metadata: {labels: null}", "belongs to the agent"},
		{"other labels", "metadata: {labels: {$patch: replace, a: b}}", "belongs to the agent"},
		{"reserved label", "metadata: {labels: {workflowagent/debug: 'true'}}", "has the prefix workflowagent/"},
		{"no annotations", "metadata: {annotations: {$patch: delete}}", "belongs to the agent"},
		{"no metadata", "metadata: null", "belongs to the agent"},
		{"other metadata", "metadata: {$patch: replace, labels: {a: b}}", "belongs to the agent"},
		{"restart policy", "spec: {restartPolicy: Always}", "spec.restartPolicy: must be Never"},
		{"no restart policy", "spec: {restartPolicy: null}", "spec.restartPolicy: must be Never"},
		{"system", "spec: {os: {name: windows}}", "spec.os: must be linux"},
		{"restart of all containers", "spec: {containers: [{name: side, image: b, restartPolicy: Never, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [1]}}]}]}", "spec.containers[side].restartPolicyRules: must not restart"},
		{"ephemeral container", "spec: {ephemeralContainers: [{name: a, image: b}]}", "spec.ephemeralContainers: cannot"},
		{"no security context", "spec: {securityContext: null}", "spec.securityContext: must not be removed"},
		{"no spec", "spec: null", "T:1: "},
		{"other spec", "spec: {$patch: replace, containers: [{name: pulumi-workflow, image: sample}]}", "T:1: "},
		{"deleted spec", "spec: {$patch: delete}", "T:1: "},
		{"everything replaced", "$patch: replace", "T:1: "},
		{"everything deleted", "$patch: delete", "T:1: "},
		{"pull secrets", "spec: {imagePullSecrets: [{$patch: replace}, {name: mine}]}", "spec.imagePullSecrets: must not be replaced"},
		{"no pull secrets", "spec: {imagePullSecrets: null}", "spec.imagePullSecrets: must not be replaced"},

		// Changes of our containers.
		{"command", "spec:\n  containers:\n  - name: pulumi-workflow\n    command: [sh]", "T:4: spec.containers[pulumi-workflow].command: belongs"},
		{"no command", "spec: {containers: [{name: pulumi-workflow, command: null}]}", "command: belongs"},
		{"arguments", "spec: {containers: [{name: pulumi-workflow, args: [x]}]}", "args: belongs"},
		{"image", "spec: {containers: [{name: pulumi-workflow, image: mine}]}", "PULUMI_DEPLOY_OVERRIDE_IMAGE_REFERENCE"},
		{"init image", "spec: {initContainers: [{name: copy-workflow-runner, image: mine}]}", "set PULUMI_AGENT_IMAGE"},
		{"init command", "spec: {initContainers: [{name: copy-workflow-runner, command: [cp]}]}", "command: belongs"},
		{"init restarts", "spec: {initContainers: [{name: copy-workflow-runner, restartPolicy: Always}]}", "restartPolicy: belongs"},
		{"sidecar command", "spec: {initContainers: [{name: workflow-spool, command: [cat]}]}", "command: belongs"},
		{"sidecar ends", "spec: {initContainers: [{name: workflow-spool, restartPolicy: null}]}", "restartPolicy: belongs"},
		{"probe", "spec: {containers: [{name: pulumi-workflow, livenessProbe: {exec: {command: [x]}}}]}", "livenessProbe: belongs"},
		{"start probe", "spec: {initContainers: [{name: workflow-spool, startupProbe: {exec: {command: [x]}}}]}", "startupProbe: belongs"},
		{"signal", "spec: {containers: [{name: pulumi-workflow, lifecycle: {stopSignal: SIGKILL}}]}", "lifecycle: belongs"},
		{"message", "spec: {containers: [{name: pulumi-workflow, terminationMessagePath: /tmp/x}]}", "terminationMessagePath: belongs"},
		{"terminal", "spec: {containers: [{name: pulumi-workflow, tty: true}]}", "tty: belongs"},
		{"restarts", "spec: {containers: [{name: pulumi-workflow, restartPolicy: Always}]}", "restartPolicy: belongs"},
		{"no main container", "spec:\n  containers:\n  - name: pulumi-workflow\n    $patch: delete", "T:3: spec.containers[pulumi-workflow]: the pod must have exactly one"},
		{"other main container", "spec: {containers: [{name: pulumi-workflow, $patch: replace, image: sample}]}", "spec.containers[pulumi-workflow]"},
		{"other containers", "spec: {containers: [{$patch: replace}, {name: mine, image: x}]}", "must have exactly one"},
		{"no containers", "spec: {containers: null}", "must have exactly one"},
		{"no init container", "spec: {initContainers: [{name: copy-workflow-runner, $patch: delete}]}", "initContainers[copy-workflow-runner]: the pod must have exactly one"},
		{"no sidecar", "spec: {initContainers: [{name: workflow-spool, $patch: delete}]}", "initContainers[workflow-spool]: the pod must have exactly one"},
		{"other init containers", "spec: {initContainers: [{$patch: replace}, {name: mine, image: x}]}", "must have exactly one"},
		{"main container twice", "spec: {initContainers: [{name: pulumi-workflow, image: x}]}", "must have exactly one"},
		{"sidecar as container", "spec: {containers: [{name: workflow-spool, image: x}]}", "must have exactly one"},
		{"no image", "spec: {containers: [{name: pulumi-workflw, env: [{name: A, value: b}]}]}", "spec.containers[pulumi-workflw]: names no image"},
		{"variable", "spec: {containers: [{name: pulumi-workflow, env: [{name: WORKFLOW_POD_UID, value: x}]}]}", "env[WORKFLOW_POD_UID]: belongs"},
		{"no variable", "spec: {containers: [{name: pulumi-workflow, env: [{name: WORKFLOW_POD_UID, $patch: delete}]}]}", "env[WORKFLOW_POD_UID]: belongs"},
		{"no variables", "spec: {containers: [{name: pulumi-workflow, env: null}]}", "env[WORKFLOW_POD_UID]: belongs"},

		// Changes of our mounts and volumes.
		{"mount", "spec: {containers: [{name: pulumi-workflow, volumeMounts: [{name: mine, mountPath: /mnt/pulumi/workflow}]}], volumes: [{name: mine, emptyDir: {}}]}", "must be mounted at /mnt/pulumi/workflow"},
		{"read-only mount", "spec: {containers: [{name: pulumi-workflow, volumeMounts: [{mountPath: /mnt/pulumi/workflow, readOnly: true}]}]}", "must be mounted"},
		{"no mounts", "spec: {containers: [{name: pulumi-workflow, volumeMounts: null}]}", "must be mounted"},
		{"part of a mount", "spec: {initContainers: [{name: copy-workflow-runner, volumeMounts: [{mountPath: /mnt/pulumi/secret, subPath: x}]}]}", "must be mounted"},
		{"mount with a slash", "spec: {containers: [{name: pulumi-workflow, volumeMounts: [{name: mine, mountPath: /mnt/pulumi/workflow/}]}]}", "would hide /mnt/pulumi/workflow"},
		{"job directory", "spec: {containers: [{name: pulumi-workflow, volumeMounts: [{name: mine, mountPath: /mnt/pulumi/workflow/job/logs}]}]}", "would hide /mnt/pulumi/workflow/job"},
		{"runner", "spec: {initContainers: [{name: workflow-spool, volumeMounts: [{name: mine, mountPath: /mnt/pulumi/../pulumi/workflow/workflow-runner}]}]}", "would hide /mnt/pulumi/workflow/workflow-runner"},
		{"message file", "spec: {containers: [{name: pulumi-workflow, volumeMounts: [{name: mine, mountPath: /dev/termination-log}]}]}", "would hide /dev/termination-log"},
		{"agent's runner", "spec: {initContainers: [{name: copy-workflow-runner, volumeMounts: [{name: mine, mountPath: /usr/local}]}]}", "would hide /usr/local/bin/workflow-runner"},
		{"Secret in main", "spec: {containers: [{name: pulumi-workflow, volumeMounts: [{name: workflow-secret-volume, mountPath: /x}]}]}", "must not mount the volume workflow-secret-volume"},
		{"launch document in sidecar", "spec: {containers: [{name: side, image: x, volumeMounts: [{name: workflow-launch-volume, mountPath: /x}]}]}", "must not mount the volume workflow-launch-volume"},
		{"Secret in init container", "spec: {initContainers: [{name: side, image: x, volumeMounts: [{name: workflow-secret-volume, mountPath: /x}]}]}", "must not mount the volume workflow-secret-volume"},
		{"workspaces in main", "spec: {containers: [{name: pulumi-workflow, volumeMounts: [{name: workflow-workspace-volume, mountPath: /x}]}]}", "must not mount the volume workflow-workspace-volume"},
		{"workspaces in sidecar", "spec: {containers: [{name: side, image: x, volumeMounts: [{name: workflow-workspace-volume, mountPath: /x}]}]}", "must not mount the volume workflow-workspace-volume"},
		{"whole workspace volume", "spec: {containers: [{name: pulumi-workflow, volumeMounts: [{mountPath: /mnt/pulumi/workspace, subPath: null}]}]}", "must be mounted at /mnt/pulumi/workspace"},
		{"workspace", "spec: {containers: [{name: pulumi-workflow, volumeMounts: [{name: mine, mountPath: /mnt/pulumi/workspace/source}]}]}", "would hide /mnt/pulumi/workspace"},
		{"workspace's variable", "spec: {containers: [{name: pulumi-workflow, env: [{name: WORKFLOW_RUNNER_WORKSPACE, value: /x}]}]}", "env[WORKFLOW_RUNNER_WORKSPACE]: belongs"},
		{"workspace volume", "spec: {volumes: [{name: workflow-workspace-volume, hostPath: {path: /}}]}", "volumes[workflow-workspace-volume]: belongs"},
		{"runner volume", "spec: {volumes: [{name: workflow-runner-volume, $patch: replace, hostPath: {path: /}}]}", "volumes[workflow-runner-volume]: belongs"},
		{"two sources", "spec: {volumes: [{name: workflow-runner-volume, hostPath: {path: /}}]}", "volumes[workflow-runner-volume]: belongs"},
		{"retained keys", "spec: {volumes: [{name: workflow-runner-volume, $retainKeys: [name, hostPath], hostPath: {path: /}}]}", "volumes[workflow-runner-volume]: belongs"},
		{"launch volume", "spec: {volumes: [{name: workflow-launch-volume, emptyDir: {medium: ''}}]}", "volumes[workflow-launch-volume]: belongs"},
		{"Secret volume", "spec: {volumes: [{name: workflow-secret-volume, secret: {optional: true}}]}", "volumes[workflow-secret-volume]: belongs"},
		{"no volume", "spec: {volumes: [{name: workflow-launch-volume, $patch: delete}]}", "volumes[workflow-launch-volume]: belongs"},
		{"no volumes", "spec: {volumes: null}", "belongs"},
		{"Secret by name", "spec: {volumes: [{name: a, secret: {secretName: " + Name("sample", "sample", 1) + "}}]}", "must not refer to the job's Secret"},
		{"projected Secret", "spec: {volumes: [{name: a, projected: {sources: [{secret: {name: " + Name("sample", "sample", 1) + "}}]}}]}", "must not refer to the job's Secret"},
		{"Secret in a variable", "spec: {containers: [{name: pulumi-workflow, env: [{name: A, valueFrom: {secretKeyRef: {name: " + Name("sample", "sample", 1) + ", key: x}}}]}]}", "must not refer to the job's Secret"},
		{"Secret in variables", "spec: {containers: [{name: side, image: x, envFrom: [{secretRef: {name: " + Name("sample", "sample", 1) + "}}]}]}", "must not refer to the job's Secret"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testOptions()
			c.Template, c.TemplateOrigin, c.WorkspaceClaim = tt.template, "T", "workspaces"
			_, err := New(c)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "T:") || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %v\nwant one line with %q", err, tt.want)
			}
		})
	}
}

// TestGoodTemplates checks that harmless templates are accepted.
func TestGoodTemplates(t *testing.T) {
	for name, template := range map[string]string{
		"empty":           "",
		"space":           " \n",
		"comment":         "# nothing\n",
		"null":            "null",
		"no fields":       "{}",
		"empty spec":      "spec: {}",
		"same label":      "metadata: {labels: {app.kubernetes.io/name: workflow-runner}}",
		"list as a whole": "spec: {tolerations: [{$patch: replace}, {key: a, operator: Exists}]}",
		"replaced list":   "spec: {hostAliases: [{$patch: replace}, {ip: 10.0.0.1, hostnames: [a]}]}",
		"removed default": "spec: {enableServiceLinks: null, containers: [{name: pulumi-workflow, resources: null}]}",
		"anchors":         "spec:\n  nodeSelector: &a {x: z}\n  containers: [{name: side, image: i, resources: {limits: {cpu: 1}}}]\n",
		"affinity":        "spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}}",
		"helper":          "spec: {initContainers: [{name: copy-workflow-runner, resources: {limits: {cpu: 100m}}, securityContext: {runAsUser: 5}}]}",
		"no context":      "spec: {containers: [{name: pulumi-workflow, securityContext: null}], initContainers: [{name: workflow-spool, securityContext: null}, {name: copy-workflow-runner, securityContext: null}]}",
		"subdirectory":    "spec: {containers: [{name: pulumi-workflow, volumeMounts: [{name: c, mountPath: /mnt/pulumi/workflow/cache}]}], volumes: [{name: c, emptyDir: {}}]}",
	} {
		t.Run(name, func(t *testing.T) {
			c := testOptions()
			c.Template = template
			build(t, c, testSpec())
		})
	}
}

// TestTemplateFile checks the files that are no template, and those that are rejected.
func TestTemplateFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode fs.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good := write("good.json", "\ufeff"+`{"spec": {"nodeSelector": {"a": "b"}}}`, 0o644)
	for _, tt := range []struct{ name, file, fixed, origin, want string }{
		{"fixed and missing", "", filepath.Join(dir, "missing"), "", ""},
		{"fixed below a file", "", filepath.Join(good, "missing"), "", ""},
		{"fixed directory", "", dir, "", ""},
		{"fixed and empty", "", write("empty", "", 0o644), "", ""},
		{"fixed", "", good, good, ""},
		{"fixed and bad", "", write("bad.json", "{\n\"spec\": 5}", 0o644), "", "bad.json:2: spec: is a number"},
		{"configured", good, filepath.Join(dir, "bad.json"), good, ""},
		{"configured and missing", filepath.Join(dir, "missing"), good, "", "no such file or directory: correct pod_template_file"},
		{"configured directory", dir, good, "", "is not a regular file"},
		{"open to all users", write("open.json", "{}", 0o666), "", "", "run chmod o-w"},
		{"large", write("large.json", strings.Repeat("#", maxTemplate+1), 0o644), "", "", "larger than 1 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testOptions()
			c.TemplateFile, c.DefaultTemplateFile = tt.file, tt.fixed
			b, err := New(c)
			if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			if err == nil && b.Origin() != tt.origin {
				t.Errorf("the template is from %q, want %q", b.Origin(), tt.origin)
			}
		})
	}
}

// TestReload checks that a changed file takes effect when the cluster replaces a mounted directory,
// and that a bad change keeps the last valid template.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "data")
	generation := 0
	mount := func(text string) {
		t.Helper()
		generation++
		next := filepath.Join(dir, string(rune('a'+generation)))
		err := errors.Join(
			os.Mkdir(next, 0o755),
			os.WriteFile(filepath.Join(next, "pod.yaml"), []byte(text), 0o644),
			os.Symlink(next, link+".new"),
			os.Rename(link+".new", link),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	mount("spec: {nodeSelector: {v: one}}")
	c := testOptions()
	c.DefaultTemplateFile = filepath.Join(link, "pod.yaml")
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	check := func(want string) {
		t.Helper()
		pod, err := b.Pod(testSpec())
		if err != nil || pod.Spec.NodeSelector["v"] != want {
			t.Errorf("the pod selects %v, %v; want %q", pod.Spec.NodeSelector, err, want)
		}
	}
	check("one")
	mount("spec: {nodeSelector: {v: two}}")
	if err := b.Reload(); err != nil {
		t.Fatal(err)
	}
	check("two")
	mount("spec: {restartPolicy: Always, nodeSelector: {v: three}}")
	for range 2 {
		if err := b.Reload(); err == nil || !strings.Contains(err.Error(), "pod.yaml:1: spec.restartPolicy") {
			t.Errorf("reloading a bad template: %v", err)
		}
		check("two")
	}
	mount("")
	if err := b.Reload(); err != nil {
		t.Fatal(err)
	}
	check("")
}

// FuzzTemplate checks that no template breaks the pod: it is rejected with one line, or the pod has
// what the job needs.
func FuzzTemplate(f *testing.F) {
	for _, name := range []string{"complete-example.json", "mounts.yaml", "non-root.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	for _, seed := range []string{
		"spec: {containers: [{name: pulumi-workflow, $patch: delete}]}", "spec: {$retainKeys: [volumes]}",
		"spec: {containers: [{name: pulumi-workflow, env: [{name: WORKFLOW_POD_UID}]}]}", "spec: {$setElementOrder/containers: [{name: a}]}",
		"metadata: {$deleteFromPrimitiveList/finalizers: [a]}", "a: &a [*a]", "spec: {containers: [null]}",
	} {
		f.Add(seed)
	}
	want, err := New(testOptions())
	if err != nil {
		f.Fatal(err)
	}
	plain, err := want.Pod(testSpec())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c := testOptions()
		c.Template, c.TemplateOrigin = text, "T"
		b, err := New(c)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has more than one line: %q", err)
			}
			return
		}
		pod, err := b.Pod(testSpec())
		if wrong, ok := errors.AsType[*executor.Error](err); ok {
			t.Fatalf("the template was accepted, but not for a job: %v", wrong)
		}
		if wrong := verify(pod, plain); len(wrong) > 0 {
			t.Fatalf("the pod breaks %v", wrong)
		}
		main := pod.Spec.Containers[0]
		if main.Name != MainContainer || strings.Join(main.Command, " ") != strings.Join(plain.Spec.Containers[0].Command, " ") || len(main.Args) > 0 {
			t.Fatalf("the main container is %+v", main)
		}
		if _, err := YAML(pod); err != nil {
			t.Fatal(err)
		}
		b.Notes()
	})
}
