package policy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/workflow"
)

// opening is a server with one environment, and a pack that opens it.
func opening(t *testing.T, values string, status int) (*run, *bytes.Buffer) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Header.Get("Authorization") != "token secret":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodPost && r.URL.Path == "/api/esc/environments/acme/yaml/open" && string(body) == `{"imports":["app/base","app/policies@stable"]}`:
			w.WriteHeader(status)
			if status == http.StatusOK {
				_, _ = io.WriteString(w, `{"id":"s1"}`)
			} else {
				_, _ = io.WriteString(w, `{"code":400,"message":"Bad Request","diagnostics":[{"summary":"this policy evaluation may not open environment acme/app/base"}]}`)
			}
		case r.Method == http.MethodGet && r.URL.Path == "/api/esc/environments/acme/yaml/open/s1":
			_, _ = io.WriteString(w, values)
		default:
			t.Errorf("%s %s with %s", r.Method, r.URL, body)
		}
	}))
	t.Cleanup(server.Close)
	out := &bytes.Buffer{}
	p := &Params{ServiceURL: server.URL, Evaluation: &workflow.PolicyEvaluation{Organization: "acme", AccessToken: "secret"}}
	pack := workflow.PolicyPack{
		Name: "cis", Environments: []string{"app/base", "app/policies@stable"},
		Config: json.RawMessage(`{"tls":{"enforcementLevel":"mandatory","versions":{"min":"1.3"}},"names":{"enforcementLevel":"advisory"}}`),
	}
	return &run{params: p, pack: pack, out: out, dir: t.TempDir()}, out
}

// TestEnvironmentsOfAPack tests what a pack gets from its environments, and that their secrets are masked.
func TestEnvironmentsOfAPack(t *testing.T) {
	r, out := opening(t, `{"properties":{
		"policyConfig":{"value":{
			"tls":{"value":{"enforcementLevel":{"value":"disabled"},"versions":{"value":{"min":{"value":"1.0"},"max":{"value":1.3}}}}},
			"cis:owner":{"value":{"key":{"value":"planted-owner","secret":true}}},
			"other:owner":{"value":{"key":{"value":"x"}}}}},
		"environmentVariables":{"value":{"REGION":{"value":"eu"},"COUNT":{"value":12345678901234567890},"LIST":{"value":[{"value":"x"}]},"KEY":{"value":"planted-key","secret":true},"PIN":{"value":"1234","secret":true}}},
		"files":{"value":{"CERTIFICATE":{"value":"planted-file","secret":true}}},
		"elsewhere":{"value":"planted-elsewhere","secret":true}}}`, http.StatusOK)
	if err := r.openEnvironments(t.Context()); err != nil {
		t.Fatal(err)
	}
	config, err := r.configuration()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"names":{"enforcementLevel":"advisory"},"owner":{"key":"planted-owner"},"tls":{"enforcementLevel":"mandatory","versions":{"max":1.3,"min":"1.3"}}}`
	if string(config) != want {
		t.Errorf("the configuration is %s, want %s", config, want)
	}
	files, err := r.writeFiles()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(r.dir, "files", "1")
	if text, err := os.ReadFile(path); err != nil || string(text) != "planted-file" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if diff := cmp.Diff(map[string]string{"CERTIFICATE": path}, files); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"REGION": "eu", "COUNT": "12345678901234567890", "KEY": "planted-key", "PIN": "1234"}, r.opened.vars); diff != "" {
		t.Error(diff)
	}
	var masked bytes.Buffer
	w := r.opened.masks.Writer(&masked)
	_, _ = io.WriteString(w, `{"message":"planted-owner planted-key planted-file"}`+"\n")
	if err := w.Close(); err != nil || strings.Contains(masked.String(), "planted") {
		t.Errorf("the pack's output is %s, %v", masked.String(), err)
	}
	if log := out.String(); !strings.Contains(log, "opened app/base, app/policies@stable: 3 configurations, 4 variables, 1 file\n") ||
		!strings.Contains(log, "cannot mask a secret in environmentVariables") || strings.Contains(log, "planted") {
		t.Errorf("the log is %s", log)
	}
	env := r.environ(map[string]string{"KEY": "planted-key", "HOME": "/elsewhere"})
	if text := strings.Join(env, "\n"); !strings.Contains(text, "KEY=planted-key") || strings.Contains(text, "/elsewhere") {
		t.Errorf("the pack's variables are %s", text)
	}
}

// TestEnvironmentsThatCannotBeOpened tests that a pack without its environments is not run.
func TestEnvironmentsThatCannotBeOpened(t *testing.T) {
	r, _ := opening(t, "", http.StatusBadRequest)
	if err := r.openEnvironments(t.Context()); err == nil || !strings.Contains(err.Error(), "this policy evaluation may not open environment acme/app/base") {
		t.Errorf("opening: %v", err)
	}
	r, _ = opening(t, `{"properties":{"a":{"value":"planted`, http.StatusOK)
	if err := r.openEnvironments(t.Context()); err == nil || strings.Contains(err.Error(), "planted") {
		t.Errorf("an answer that is cut: %v", err)
	}
	none := &run{pack: workflow.PolicyPack{Config: json.RawMessage(`{"a":1}`)}}
	if err := none.openEnvironments(t.Context()); err != nil {
		t.Error(err)
	}
	if config, err := none.configuration(); err != nil || string(config) != `{"a":1}` {
		t.Errorf("the configuration of a pack without environments is %s, %v", config, err)
	}
}
