package health

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/agent/status"
)

func ready() status.Report {
	poll := time.Unix(1_700_000_000, 0)
	r := status.Report{
		Time: poll.Add(time.Minute), StartedAt: poll.Add(-time.Hour), LastActivity: poll, Healthy: true,
		Server:  status.Server{URL: "https://server", Connected: true, LastPoll: &poll},
		Engine:  status.Engine{Target: "docker", Up: true},
		Slots:   status.Slots{Total: 3, Busy: 1, Free: 2},
		Storage: status.Storage{FreeBytes: 12345, PendingLogBytes: 678}, Workspaces: &status.Workspaces{Count: 3, Bytes: 1024},
	}
	r.Judge()
	return r
}

func handlerOf(r *status.Report) (http.Handler, *Metrics) {
	m := NewMetrics("v1")
	source := func() status.Report { return *r }
	m.Watch(source)
	return Handler(m, source), m
}

func TestReadyz(t *testing.T) {
	r := ready()
	h, _ := handlerOf(&r)
	check := func(code int, state, reason string) {
		t.Helper()
		r.Judge()
		answer := get(t, h, "/readyz", "")
		var body struct {
			Status  string   `json:"status"`
			Reasons []string `json:"reasons"`
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		if answer.Code != code || body.Status != state || !strings.Contains(strings.Join(body.Reasons, "\n"), reason) || body.Reasons == nil {
			t.Errorf("got %d %+v, want %d %s %q", answer.Code, body, code, state, reason)
		}
	}
	check(200, "ready", "")
	r.Slots = status.Slots{Total: 1, Busy: 1} // a busy agent is not a problem
	check(200, "ready", "")

	r.Server.BreakerOpen = true
	check(503, "not-ready", "only probes")
	r.Server.BreakerOpen, r.Server.Connected, r.Server.Error = false, false, "401: no such token"
	check(503, "not-ready", "401: no such token")
	r = ready()
	r.Engine.Up, r.Engine.Error = false, "the engine is down"
	check(503, "not-ready", "the engine is down")
	r = ready()
	r.Token = status.Token{Kind: status.TokenOIDC, Error: "the file is empty"}
	check(503, "not-ready", "the file is empty")
	r = ready()
	r.Healthy = false
	check(503, "unhealthy", "health_threshold")
	r.Draining = true
	check(503, "draining", "accepts no more jobs")
	r.Draining, r.Stopping = false, true
	check(503, "stopping", "stopping")
	r = ready()
	r.Server, r.Engine.Up = status.Server{}, false
	check(503, "starting", "not answered yet")
}

func TestStatusFormats(t *testing.T) {
	r := ready()
	r.Jobs = []status.Job{{JobID: "j1", Stack: `<script>alert("x")</script>`, Phase: status.Running}}
	h, _ := handlerOf(&r)
	for _, tt := range []struct {
		path, accept string
		json         bool
	}{
		{"/status", "", false},
		{"/status", "*/*", false},
		{"/status", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false},
		{"/status", "application/json;q=0.1,text/html", false},
		{"/status", "application/json", true},
		{"/status", "application/json, */*;q=0.1", true},
		{"/status.json", "text/html", true},
	} {
		answer := get(t, h, tt.path, tt.accept)
		var back status.Report
		isJSON := json.Unmarshal(answer.Body.Bytes(), &back) == nil
		if answer.Code != 200 || isJSON != tt.json || answer.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s with %q: %d %s", tt.path, tt.accept, answer.Code, answer.Header())
		}
		if isJSON {
			if len(back.Jobs) != 1 || back.Jobs[0].JobID != "j1" || back.State != status.Ready {
				t.Errorf("got %+v", back)
			}
			continue
		}
		if policy := answer.Header().Get("Content-Security-Policy"); policy != status.PagePolicy() {
			t.Errorf("the policy is %q", policy)
		}
		if page := answer.Body.String(); strings.Contains(page, "<script") || !strings.Contains(page, "&lt;script&gt;") {
			t.Errorf("the page is %s", page)
		}
	}
}

// TestPortChangesNothing checks that the health server rejects requests that could change
// something, because other users may be able to reach its port.
func TestPortChangesNothing(t *testing.T) {
	r := ready()
	h, _ := handlerOf(&r)
	for path, want := range map[string]int{"/drain": 404, "/status": 405, "/readyz": 405, "/status.json": 405} {
		w := post(t, h, path)
		if w.Code != want {
			t.Errorf("POST %s: got %d, want %d", path, w.Code, want)
		}
	}
}

// TestMetricsAreDocumented checks that the documentation lists all of the agent's metrics and no
// others.
func TestMetricsAreDocumented(t *testing.T) {
	r := ready()
	r.Token.ExpiresAt, r.Update.CheckedAt = &r.StartedAt, &r.StartedAt
	h, m := handlerOf(&r)
	m.JobEnded("succeeded", "", time.Second)
	text := get(t, h, "/metrics", "").Body.String()
	doc, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`workflow_agent_[a-z_]+`)
	documented := map[string]bool{}
	for _, name := range names.FindAllString(string(doc), -1) {
		documented[name] = true
	}
	for _, line := range regexp.MustCompile(`(?m)^# TYPE (workflow_agent_\S+)`).FindAllStringSubmatch(text, -1) {
		if !documented[line[1]] {
			t.Errorf("docs/operations.md does not name %s", line[1])
		}
		delete(documented, line[1])
	}
	if len(documented) > 0 {
		t.Errorf("docs/operations.md names what there is not: %v", documented)
	}
}

func TestReportMetrics(t *testing.T) {
	r := ready()
	h, _ := handlerOf(&r)
	expect := func(lines ...string) {
		t.Helper()
		text := get(t, h, "/metrics", "").Body.String()
		for _, line := range lines {
			if want, negated := strings.CutPrefix(line, "!"); strings.Contains(text, "\nworkflow_agent_"+want) == negated {
				t.Errorf("%q: present is %v in\n%s", want, negated, text)
			}
		}
	}
	expect("ready 1\n", "draining 0\n", "server_connected 1\n", "circuit_breaker_open 0\n", "engine_up 1\n", "slots 3\n", "slots_free 2\n",
		"last_poll_timestamp_seconds 1.7e+09\n", "!token_expiry_timestamp_seconds", "log_pending_bytes 678\n", "workspaces 3\n", "workspaces_bytes 1024\n", "state_directory_free_bytes 12345\n")

	expiry := time.Unix(1_800_000_000, 0)
	r.Token = status.Token{Kind: status.TokenOIDC, ExpiresAt: &expiry}
	r.Server = status.Server{BreakerOpen: true}
	r.Engine = status.Engine{Error: "down"}
	r.Storage.FreeBytes = -1
	r.Workspaces = nil
	r.Draining = true
	r.Judge()
	expect("ready 0\n", "draining 1\n", "server_connected 0\n", "circuit_breaker_open 1\n", "engine_up 0\n",
		"!last_poll_timestamp_seconds", "token_expiry_timestamp_seconds 1.8e+09\n", "!state_directory_free_bytes", "!workspaces ", "!workspaces_bytes")
}
