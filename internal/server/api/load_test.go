package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"workflowagent/internal/server/deployments"
)

// scaledJob is the part of a KEDA ScaledJob that concerns the server.
type scaledJob struct {
	Kind string
	Spec struct {
		Triggers []struct {
			Type     string
			Metadata map[string]string
		}
		ScalingStrategy struct{ Strategy string }
	}
	StringData map[string]string `yaml:"stringData"`
}

// TestLoadForAutoscalers makes the requests of the examples for KEDA, and reads the value that the
// examples name.
func TestLoadForAutoscalers(t *testing.T) {
	for _, dir := range []string{"autoscaling", "kubernetes"} {
		t.Run(dir, func(t *testing.T) { testAutoscaler(t, filepath.Join("..", "..", "..", "examples", dir, "keda.yaml")) })
	}
}

func testAutoscaler(t *testing.T, example string) {
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]scaledJob{}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o scaledJob
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		objects[o.Kind] = o
	}
	trigger := objects["ScaledJob"].Spec.Triggers[0]
	at, err := url.Parse(trigger.Metadata["url"])
	if err != nil {
		t.Fatal(err)
	}
	if trigger.Type != "metrics-api" || trigger.Metadata["authMode"] != "apiKey" || trigger.Metadata["method"] != "header" || trigger.Metadata["keyParamName"] != "Authorization" {
		t.Fatalf("the trigger is %+v", trigger)
	}
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		read := func() (value float64, all map[string]any) {
			t.Helper()
			auth := strings.ReplaceAll(objects["Secret"].StringData["authorization"], "pul-REPLACE-ME", l.poolToken)
			a := l.send(call{Method: "GET", Path: at.Path, Auth: auth}).want(200, &all)
			value, ok := all[trigger.Metadata["valueLocation"]].(float64)
			if !ok {
				t.Fatalf("%s has no number %q", a.Body, trigger.Metadata["valueLocation"])
			}
			return value, all
		}
		settled := func(want float64) map[string]any {
			t.Helper()
			for deadline := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) {
				value, all := read()
				if value == want {
					return all
				}
				if time.Now().After(deadline) {
					t.Fatalf("the value is %v, want %v", value, want)
				}
			}
		}
		settled(0)
		l.deploy(l.deployable("one"), "update")
		l.deploy(l.deployable("two"), "update")
		settled(2)
		l.start("agent")
		all := settled(1)
		for name, want := range map[string]float64{"queued": 1, "running": 1, "busySlots": 1, "agents": 1} {
			if all[name] != want {
				t.Errorf("%s is %v, want %v", name, all[name], want)
			}
		}
		var other struct{ Queued json.Number }
		_, token := l.newPool("other")
		l.send(call{Method: "GET", Path: at.Path, Auth: "token " + token}).want(200, &other)
		if other.Queued != "0" {
			t.Errorf("another pool has %s queued deployments, want none", other.Queued)
		}
	})
}
