package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/workflow"
)

// newer adds a member to each JSON object in requests and responses, and a header, as later versions of the server,
// the agent and the runner do.
type newer struct{ added map[string]bool } // by direction and route

const futureMember = "futureMember"

func (n newer) RoundTrip(r *http.Request) (*http.Response, error) {
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	r = r.Clone(r.Context())
	r.Header.Set("X-Workflow-Future", "1")
	if r.Body != nil && r.Header.Get("Content-Encoding") == "" {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = n.extend("request", name, body)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	if err := resp.Body.Close(); err != nil {
		return nil, err
	}
	body = n.extend("response", name, body)
	resp.Header.Set("X-Workflow-Future", "1")
	resp.Header.Del("Content-Length")
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, err
}

func (n newer) extend(direction, name string, body []byte) []byte {
	var v any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return body
	}
	if _, object := v.(map[string]any); !object {
		return body
	}
	addMembers(v)
	n.added[direction+" "+name] = true
	out, err := json.Marshal(v)
	if err != nil {
		return body
	}
	return out
}

func addMembers(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			addMembers(member)
		}
		v[futureMember] = "1" // a text, because some objects are maps of texts
	case []any:
		for _, member := range v {
			addMembers(member)
		}
	}
}

// TestUnknownMembersAreIgnored runs a job whose agent, runner and server send members and headers that the other
// side does not know.
func TestUnknownMembersAreIgnored(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	extended := newer{map[string]bool{}}
	var err error
	l.client, err = protocol.NewClient(protocol.Options{BaseURL: l.server.URL, HTTPClient: &http.Client{Transport: extended, Timeout: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	path := l.deployable("dev")
	l.do("POST", path+"/settings", map[string]any{
		"cacheOptions": map[string]any{"enable": true},
		"operationContext": map[string]any{
			"postRunCommands":      []any{map[string]any{"command": "notify", "when": "failure"}},
			"environmentVariables": map[string]any{workflow.PulumiVersionVariable: "3.276"},
		},
	}).want(200, nil)
	id := l.deploy(path, "update")
	job, jc := l.start("a1")
	def, err := jc.Definition(t.Context())
	if err != nil {
		t.Fatalf("the definition: %v", err)
	}
	d := def.Deployment
	if d == nil || d.Workspace == nil || !d.Workspace.Valid() || len(d.PostRunCommands) != 1 || d.PostRunCommands[0].When != workflow.WhenFailure || d.PulumiVersion != "3.276" || def.Validate() != nil {
		t.Errorf("the job's deployment is %+v, %v", d, def.Validate())
	}
	now, size := time.Now(), int64(0)
	for step := 1; step <= len(def.Steps); step++ { // the last one is the post-run command
		for _, status := range []workflow.StepStatus{workflow.StepRunning, workflow.StepSucceeded} {
			req := protocol.StepStatusRequest{Status: status, StartedAt: &now, LogBytes: &size, PulumiVersion: "3.276.0"}
			if err := jc.StepStatus(t.Context(), step, req); err != nil {
				t.Errorf("step %d: %v", step, err)
			}
		}
	}
	if _, err := jc.Heartbeat(t.Context(), protocol.PhaseRunning); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
	l.end(jc, workflow.StatusSucceeded)
	l.becomes(path, id, "succeeded")
	var shown struct{ PulumiVersion string }
	if l.do("GET", path+"/"+id, nil).want(200, &shown); shown.PulumiVersion != "3.276.0" {
		t.Errorf("the deployment's version is %q", shown.PulumiVersion)
	}
	for _, want := range []string{"request status", "request heartbeat", "request result", "response poll", "response heartbeat", "response " + job.JobID} {
		if !extended.added[want] {
			t.Errorf("nothing was added to the %s; there are %v", want, extended.added)
		}
	}
}
