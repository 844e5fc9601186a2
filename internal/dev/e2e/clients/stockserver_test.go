package clients

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"workflowagent/internal/dev/must"
)

const stockToken = "pul-token-of-a-stock-pool"

// stockServer implements the public calls of an agent, and the calls that observers of the stock
// agent report. It has no extension: no epoch, no raw log, no result, no held polls. It responds to
// all other requests with 404.
type stockServer struct {
	t    *testing.T
	http *httptest.Server

	away atomic.Bool // a load balancer responds instead of the server
	lose atomic.Bool // every third response to a log request is lost

	mu      sync.Mutex
	posts   int            // log requests while responses are lost
	refused map[string]int // calls while it is away, by the last word of the path
	queue   []*stockJob
	jobs    map[string]*stockJob
	unknown map[string]int // calls without a route
}

type stockJob struct {
	ID         string
	definition string // JSON
	steps      int

	status     string
	claims     int
	heartbeats int
	states     []string         // "1 running", in order of arrival
	lines      map[int][]string // received log lines by step
}

func newStockServer(t *testing.T) *stockServer {
	t.Helper()
	s := &stockServer{t: t, jobs: map[string]*stockJob{}, unknown: map[string]int{}, refused: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/deployments/poll", s.poll)
	mux.HandleFunc("GET /api/deployments/{id}/status", s.deploymentStatus)
	mux.HandleFunc("GET /api/workflow/jobs/{id}", s.withJob(func(w http.ResponseWriter, _ *http.Request, j *stockJob) {
		if j.status == "accepted" {
			j.status = "running"
		}
		fmt.Fprint(w, j.definition)
	}))
	mux.HandleFunc("POST /api/workflow/jobs/{id}/heartbeat", s.withJob(func(w http.ResponseWriter, _ *http.Request, j *stockJob) {
		j.heartbeats++
		fmt.Fprint(w, `{}`)
	}))
	mux.HandleFunc("PATCH /api/workflow/jobs/{id}/{step}/status", s.withJob(s.stepStatus))
	mux.HandleFunc("POST /api/workflow/jobs/{id}/{step}/logs", s.withJob(s.stepLog))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.unknown[r.Method+" "+r.URL.Path]++
		s.mu.Unlock()
		http.NotFound(w, r)
	})
	s.http = httptest.NewServer(s.meddle(mux))
	t.Cleanup(s.http.Close)
	return s
}

// meddle returns a handler that simulates the network in front of the server.
func (s *stockServer) meddle(server http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.away.Load() {
			s.mu.Lock()
			s.refused[path.Base(r.URL.Path)]++
			s.mu.Unlock()
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader([]int{http.StatusNotFound, http.StatusBadGateway}[len(r.Method)%2])
			fmt.Fprint(w, "<html><body>no healthy upstream</body></html>")
			return
		}
		if s.lose.Load() && strings.HasSuffix(r.URL.Path, "/logs") {
			s.mu.Lock()
			s.posts++
			lost := s.posts%3 == 0
			s.mu.Unlock()
			if lost {
				server.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler) // makes net/http close the connection
			}
		}
		server.ServeHTTP(w, r)
	})
}

// add queues a job. The job's first step is the reserved one.
func (s *stockServer) add(image string, steps ...map[string]any) *stockJob {
	s.t.Helper()
	return s.addFor("linux", image, steps...)
}

func (s *stockServer) addFor(system, image string, steps ...map[string]any) *stockJob {
	s.t.Helper()
	all := append([]map[string]any{{"name": "Setup", "run": ""}}, steps...)
	definition := must.Get(json.Marshal(map[string]any{
		"os": system, "architecture": "amd64", "shell": "bash",
		"image": map[string]any{"reference": image},
		"env":   map[string]string{"GREETING": "hello from the definition", "PULUMI_ACCESS_TOKEN": "pul-secret-of-the-job"},
		"steps": all,
	}))(s.t)
	s.mu.Lock()
	defer s.mu.Unlock()
	j := &stockJob{
		ID: fmt.Sprintf("job-%d", len(s.jobs)), definition: string(definition), steps: len(all),
		status: "not-started", lines: map[int][]string{},
	}
	s.jobs[j.ID] = j
	s.queue = append(s.queue, j)
	return j
}

// look calls f under the lock.
func (s *stockServer) look(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *stockServer) poll(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Header.Get("Authorization") != "token "+stockToken:
		w.WriteHeader(http.StatusUnauthorized)
	case len(s.queue) == 0:
		w.WriteHeader(http.StatusNoContent)
	default:
		j := s.queue[0]
		s.queue = s.queue[1:]
		j.status = "accepted"
		j.claims++
		fmt.Fprintf(w, `{"jobID":%q,"jobToken":"token-of-%s","oidcToken":"","runID":"1","typeSpecificID":"deployment-%s"}`, j.ID, j.ID, j.ID)
	}
}

func (s *stockServer) deploymentStatus(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[strings.TrimPrefix(r.PathValue("id"), "deployment-")]
	if j == nil || r.Header.Get("Authorization") != "token "+stockToken {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	fmt.Fprintf(w, "%q", j.status)
}

func (s *stockServer) withJob(f func(http.ResponseWriter, *http.Request, *stockJob)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		j := s.jobs[r.PathValue("id")]
		if j == nil || r.Header.Get("Authorization") != "token token-of-"+j.ID {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		f(w, r, j)
	}
}

// stepOf returns the step that a call names. It fails the test if the job has no such step.
func (s *stockServer) stepOf(w http.ResponseWriter, r *http.Request, j *stockJob) (int, bool) {
	step, err := strconv.Atoi(r.PathValue("step"))
	if err != nil || step < 0 || step >= j.steps {
		s.t.Errorf("%s %s names no step of the job", r.Method, r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
		return 0, false
	}
	return step, true
}

func (s *stockServer) stepStatus(w http.ResponseWriter, r *http.Request, j *stockJob) {
	step, ok := s.stepOf(w, r, j)
	if !ok {
		return
	}
	var body struct {
		Status string `json:"status"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	j.states = append(j.states, fmt.Sprintf("%d %s", step, body.Status))
	switch {
	case j.status != "running":
	case body.Status == "failed":
		j.status = "failed"
	case body.Status == "succeeded" && step == j.steps-1:
		j.status = "succeeded"
	}
	fmt.Fprint(w, `{}`)
}

func (s *stockServer) stepLog(w http.ResponseWriter, r *http.Request, j *stockJob) {
	step, ok := s.stepOf(w, r, j)
	if !ok {
		return
	}
	var body struct {
		Offset int `json:"offset"`
		Lines  []struct {
			Time string `json:"t"`
			Line string `json:"l"`
		} `json:"lines"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	have := j.lines[step]
	if body.Offset > len(have) {
		s.t.Errorf("step %d: lines from %d on, but the server has only %d", step, body.Offset, len(have))
	}
	for i, line := range body.Lines {
		at := body.Offset + i
		switch {
		case at >= len(j.lines[step]):
			j.lines[step] = append(j.lines[step], line.Line)
		case have[at] != line.Line:
			s.t.Errorf("step %d: line %d was %q and came again as %q", step, at, have[at], line.Line)
		}
	}
	fmt.Fprint(w, `{}`)
}
