package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// objects maps objects by kind, namespace and name.
type objects map[string]object

func (o objects) keys() []string {
	keys := make([]string, 0, len(o))
	for key := range o {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// parse reads a stream of YAML documents. It fails the test if an object is not exactly of its
// type in the API, or if two objects have the same name.
func parse(t *testing.T, text []byte) objects {
	t.Helper()
	all := objects{}
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var o object
		if err := yaml.UnmarshalStrict(document, &o); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		if len(o) > 0 {
			all.add(t, o)
		}
	}
}

func (o objects) add(t *testing.T, added object) {
	t.Helper()
	checkType(t, added)
	meta, _ := added["metadata"].(object)
	namespace, _ := meta["namespace"].(string)
	key := fmt.Sprintf("%v %s/%v", added["kind"], namespace, meta["name"])
	if o[key] != nil {
		t.Errorf("%s exists twice", key)
	}
	o[key] = added
}

var decoder = sync.OnceValue(func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, policyv1.AddToScheme, networkingv1.AddToScheme, autoscalingv2.AddToScheme,
		batchv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
})

// checkType decodes an object as strictly as an API server.
func checkType(t *testing.T, o object) {
	t.Helper()
	if version := o["apiVersion"]; version == "monitoring.coreos.com/v1" || version == "keda.sh/v1alpha1" {
		return // a custom resource
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := decoder().Decode(text, nil, nil); err != nil {
		t.Errorf("%v %v: %v", o["kind"], o["metadata"], err)
	}
}

// kustomized returns the objects of the manifests with components.
func kustomized(t *testing.T, components ...string) objects {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(packaging, "kubernetes"))); err != nil {
		t.Fatal(err)
	}
	if len(components) > 0 {
		file := filepath.Join(dir, "kustomization.yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		edited := string(text)
		if slices.Contains(components, "oidc") { // as the component says
			from, to := strings.Index(edited, "secretGenerator:"), strings.Index(edited, "replacements:")
			edited = edited[:from] + edited[to:]
		}
		if slices.Contains(components, "another-pool") {
			edited += "nameSuffix: -gpu\nlabels:\n  - pairs: {app.kubernetes.io/name: customer-managed-workflow-agent-gpu}\n    includeSelectors: true\n" +
				"    fields: [{path: spec/selector/matchLabels, kind: ServiceMonitor}]\n"
		}
		text = append([]byte(edited), "components:\n  - components/"+strings.Join(components, "\n  - components/")+"\n"...)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, text)
}

// charted returns the objects of a chart in the namespace workflow-agent.
func charted(t *testing.T, chart, values string) objects {
	t.Helper()
	files, err := template(chart, "workflow-agent", values)
	if err != nil {
		t.Fatal(err)
	}
	all := objects{}
	for name, text := range files {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for key, o := range parse(t, []byte(text)) {
			if all[key] != nil {
				t.Errorf("%s exists twice", key)
			}
			all[key] = o
		}
	}
	return all
}
