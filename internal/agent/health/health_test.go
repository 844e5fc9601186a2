package health

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/agent/status"
)

func get(t *testing.T, h http.Handler, path, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func post(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil))
	return w
}

// serving returns the handler and the metrics of an agent that has only a tracker.
func serving(tracker *Tracker) (http.Handler, *Metrics) {
	m := NewMetrics("v1.2.3")
	source := func() status.Report {
		r := status.Report{Time: time.Now()}
		tracker.fill(&r)
		return r
	}
	m.Watch(source)
	return Handler(m, source), m
}

func TestHealthz(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tracker := NewTracker(2 * time.Minute)
		h, _ := serving(tracker)

		check := func(wantCode int, wantStatus string, wantActivity time.Time) {
			t.Helper()
			r := get(t, h, "/healthz", "")
			var got map[string]string
			if err := json.Unmarshal(r.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if r.Code != wantCode || got["status"] != wantStatus || r.Header().Get("Content-Type") != "application/json" {
				t.Errorf("got %d %v, want %d %s", r.Code, got, wantCode, wantStatus)
			}
			if now := time.Now().UTC().Format(time.RFC3339Nano); got["currentTime"] != now {
				t.Errorf("currentTime is %s, want %s", got["currentTime"], now)
			}
			if want := wantActivity.UTC().Format(time.RFC3339Nano); got["lastActivity"] != want {
				t.Errorf("lastActivity is %s, want %s", got["lastActivity"], want)
			}
			if len(got) != 3 {
				t.Errorf("got fields %v, want the three documented ones", got)
			}
		}
		check(200, "healthy", start)
		<-time.After(2 * time.Minute)
		check(200, "healthy", start)
		<-time.After(time.Nanosecond)
		check(503, "unhealthy", start)
		tracker.Activity()
		check(200, "healthy", time.Now())
	})
}

func TestProblemsAreShownAndHarmless(t *testing.T) {
	tracker := NewTracker(time.Hour)
	h, _ := serving(tracker)
	tracker.SetProblem("engine", errors.New("the engine is down"))
	tracker.SetProblem("disk", errors.New("the disk is full"))
	tracker.SetProblem("engine", errors.New("the engine is still down"))
	r := get(t, h, "/healthz", "application/json")
	var got healthBody
	if err := json.Unmarshal(r.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := []string{"the disk is full", "the engine is still down"}
	if r.Code != 200 || got.Status != "healthy" || !slices.Equal(got.Problems, want) {
		t.Errorf("got %d %+v", r.Code, got)
	}
	tracker.SetProblem("engine", nil)
	tracker.SetProblem("disk", nil)
	if body := get(t, h, "/healthz", "").Body.String(); strings.Contains(body, "problems") {
		t.Errorf("problems left: %s", body)
	}
}

// TestAccept uses the Accept headers of Prometheus 2, Prometheus 3, curl, browsers and the kubelet.
func TestAccept(t *testing.T) {
	tracker := NewTracker(time.Hour)
	h, _ := serving(tracker)
	for _, tt := range []struct {
		accept string
		json   bool
	}{
		{"", true},
		{"*/*", true},
		{"application/json", true},
		{"text/plain", true},
		{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true},
		{"application/openmetrics-text;q=0", true},
		{"application/openmetrics-text;q=0.1, application/json", true},
		{"nonsense;;;", true},
		{"application/openmetrics-text;q=x", true},
		{"text/plain;version=0.0.4", false},
		{"application/openmetrics-text", false},
		{"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", false},
		{"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2", false},
		{"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,text/plain;version=0.0.4;q=0.3", false},
	} {
		r := get(t, h, "/healthz", tt.accept)
		if isJSON := r.Header().Get("Content-Type") == "application/json"; isJSON != tt.json {
			t.Errorf("Accept %q: got %q", tt.accept, r.Header().Get("Content-Type"))
		}
		if r.Header().Get("Vary") != "Accept" {
			t.Errorf("Accept %q: no Vary header", tt.accept)
		}
	}
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := NewTracker(time.Minute)
		h, m := serving(tracker)
		m.JobStarted()
		m.JobStarted()
		m.JobStarted()
		m.JobEnded("succeeded", "", 40*time.Second)
		m.JobEnded("failed", "", 2*time.Hour)
		m.JobLaunched(3 * time.Second)
		m.pollErrors.Inc()
		tracker.SetProblem("engine", errors.New("the engine is down"))

		text := get(t, h, "/metrics", "").Body.String()
		for _, want := range []string{
			`workflow_agent_build_info{`, `version="v1.2.3"} 1`,
			"\nworkflow_agent_up 1\n",
			"\nworkflow_agent_jobs_running 1\n",
			"\nworkflow_agent_jobs_finished_total{result=\"succeeded\"} 1\n",
			"\nworkflow_agent_jobs_finished_total{result=\"failed\"} 1\n",
			"\nworkflow_agent_poll_errors_total 1\n",
			"\nworkflow_agent_problems 1\n",
			"\nworkflow_agent_last_activity_timestamp_seconds 9.466848e+08\n",
			"\nworkflow_agent_job_duration_seconds_bucket{result=\"succeeded\",le=\"30\"} 0\n",
			"\nworkflow_agent_job_duration_seconds_bucket{result=\"succeeded\",le=\"60\"} 1\n",
			"\nworkflow_agent_job_duration_seconds_sum{result=\"failed\"} 7200\n",
			"\nworkflow_agent_job_start_latency_seconds_bucket{le=\"2.5\"} 0\n",
			"\nworkflow_agent_job_start_latency_seconds_bucket{le=\"5\"} 1\n",
			"\nprocess_resident_memory_bytes ",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing", want)
			}
		}

		// A scrape of an unhealthy agent succeeds, and the metrics report the state.
		<-time.After(61 * time.Second)
		r := get(t, h, "/healthz", "text/plain;version=0.0.4")
		if text := r.Body.String(); r.Code != 200 || !strings.Contains(text, "\nworkflow_agent_up 0\n") {
			t.Errorf("got %d %s", r.Code, text)
		}
	})
}

func TestOtherRequests(t *testing.T) {
	tracker := NewTracker(time.Hour)
	h, _ := serving(tracker)
	for _, tt := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/", 404},
		{http.MethodGet, "/healthz/x", 404},
		{http.MethodPost, "/healthz", 405},
		{http.MethodDelete, "/metrics", 405},
		{http.MethodHead, "/healthz", 200},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, nil))
		if w.Code != tt.want {
			t.Errorf("%s %s: got %d, want %d", tt.method, tt.path, w.Code, tt.want)
		}
	}
}
