package agent_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

const poolToken = "pul-pool-token-of-the-test"

// server is a control plane in memory that speaks the whole protocol, with
// faults on demand.
type server struct {
	t    *testing.T
	http *httptest.Server

	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever anything changes
	stock   bool          // only the public calls: no epoch, no raw log, no result
	queue   []*serverJob
	jobs    map[string]*serverJob
	claims  map[string]*serverJob // by poll id
	polls   []pollSeen
	// fault answers a request itself and returns true, or lets it pass. It is
	// called without the lock.
	fault func(w http.ResponseWriter, r *http.Request) bool
}

// pollSeen is what a poll said.
type pollSeen struct {
	id, agent, session string
	slots              int
	at                 time.Time
}

// serverJob is one job of the server.
type serverJob struct {
	id, token  string
	pool       string
	definition workflow.JobDefinition
	epoch      int64

	claimed    int // times handed out anew
	heartbeats map[protocol.Phase]int
	leave      bool
	cancel     bool
	gone       bool
	status     workflow.Status
	steps      map[int]workflow.StepStatus
	logs       map[int][]byte
	lines      map[int][]string
	results    []protocol.ResultRequest
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, changed: make(chan struct{}), jobs: map[string]*serverJob{}, claims: map[string]*serverJob{}}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.http.Close)
	return s
}

// add puts a job into the queue.
func (s *server) add(change ...func(*serverJob)) *serverJob {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := uuid.NewString()
	j := &serverJob{
		id: id, token: "token-of-" + id, epoch: 1, status: workflow.StatusNotStarted,
		heartbeats: map[protocol.Phase]int{}, steps: map[int]workflow.StepStatus{},
		logs: map[int][]byte{}, lines: map[int][]string{},
		definition: workflow.JobDefinition{
			OS: "linux", Image: &workflow.Image{Reference: "pulumi/pulumi:latest"}, Env: map[string]string{},
			Steps: []workflow.Step{{Name: "Setup"}, {Name: "Get source", Run: workflow.RunSourceGit}, {Name: "pulumi update", Run: "workflow-runner pulumi update"}},
			Deployment: &workflow.Deployment{
				ID: "deployment-" + id, Organization: "org", Project: "project", Stack: "stack", Operation: workflow.OperationUpdate,
				Source: &workflow.Source{Git: &workflow.GitSource{RepoURL: "https://example.com/repo.git"}},
			},
		},
	}
	if s.stock {
		j.epoch = 0
	}
	for _, f := range change {
		f(j)
	}
	s.jobs[id] = j
	s.queue = append(s.queue, j)
	s.wake()
	return j
}

// wake tells everybody that something changed. The caller holds the lock.
func (s *server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// update changes the server's state.
func (s *server) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.wake()
}

// waitFor waits until ok, called under the lock, returns true.
func (s *server) waitFor(what string, ok func() bool) {
	s.t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		s.mu.Lock()
		done, changed := ok(), s.changed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			s.t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// onFault sets the fault.
func (s *server) onFault(f func(w http.ResponseWriter, r *http.Request) bool) {
	s.update(func() { s.fault = f })
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	signer := protocol.SignAnswers(w, r) // with the token as it was sent
	if fault != nil && fault(w, r) {
		return
	}
	s.mu.Lock()
	stock := s.stock
	s.mu.Unlock()
	if !stock {
		defer signer.Finish()
		w = signer
	}
	switch path := r.URL.Path; {
	case path == "/api/capabilities":
		io.WriteString(w, `{"capabilities":[]}`)
	case path == "/api/deployments/poll":
		s.poll(w, r)
	case strings.HasPrefix(path, "/api/deployments/"):
		s.status(w, r)
	case strings.HasPrefix(path, "/api/workflow/jobs/"):
		s.job(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *server) poll(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "token "+poolToken {
		http.Error(w, `{"code":401,"message":"Unauthorized"}`, http.StatusUnauthorized)
		return
	}
	slots, _ := strconv.Atoi(r.Header.Get(protocol.HeaderAgentSlots))
	seen := pollSeen{r.Header.Get(protocol.HeaderPollID), r.Header.Get(protocol.HeaderAgentID), r.Header.Get(protocol.HeaderAgentSession), slots, time.Now()}
	var wait int
	fmt.Sscanf(r.Header.Get("Prefer"), "wait=%d", &wait)
	s.mu.Lock()
	s.polls = append(s.polls, seen)
	s.wake()
	stock := s.stock
	s.mu.Unlock()
	if stock {
		wait = 0
	}
	timeout := time.After(time.Duration(wait) * time.Second)
	for {
		s.mu.Lock()
		j := s.claims[seen.id]
		if j == nil && len(s.queue) > 0 && (slots > 0 || stock) {
			j, s.queue = s.queue[0], s.queue[1:]
			j.claimed++
			j.status = workflow.StatusAccepted
			s.claims[seen.id] = j
			s.wake()
		}
		changed := s.changed
		s.mu.Unlock()
		if wait > 0 {
			w.Header().Set("Preference-Applied", "wait")
		}
		if j != nil {
			w.Header().Set(protocol.HeaderAgentPool, j.pool)
			json.NewEncoder(w).Encode(protocol.PollResponse{
				JobID: j.id, JobToken: j.token, OIDCToken: "oidc", RunID: "1", TypeSpecificID: "deployment-" + j.id, Epoch: j.epoch,
			})
			return
		}
		if wait == 0 {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		select {
		case <-changed:
		case <-timeout:
			wait = 0
		case <-r.Context().Done():
			return
		}
	}
}

func (s *server) status(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/api/deployments/deployment-"), "/status")
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[id]
	if j == nil {
		http.NotFound(w, r)
		return
	}
	fmt.Fprintf(w, "%q", j.status)
}

func (s *server) job(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/workflow/jobs/"), "/")
	body := readBody(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	j := s.jobs[parts[0]]
	if j == nil || r.Header.Get("Authorization") != "token "+j.token {
		http.Error(w, `{"code":401}`, http.StatusUnauthorized)
		return
	}
	if j.gone {
		http.Error(w, `{"code":410,"message":"Gone"}`, http.StatusGone)
		return
	}
	what := r.Method + " " + strings.Join(parts[1:], "/")
	step := 0
	if len(parts) == 3 {
		step, _ = strconv.Atoi(parts[1])
		what = r.Method + " " + parts[2]
	}
	if s.stock && (what == "PUT log" || what == "POST result") {
		http.NotFound(w, r)
		return
	}
	switch what {
	case "GET ":
		json.NewEncoder(w).Encode(j.definition)
	case "POST heartbeat":
		var req protocol.HeartbeatRequest
		json.Unmarshal(body, &req)
		j.heartbeats[req.Phase]++
		if req.Phase == protocol.PhaseStarting && !j.cancel {
			j.leave = true
			j.status = workflow.StatusRunning
		}
		json.NewEncoder(w).Encode(protocol.HeartbeatResponse{CancelRequested: j.cancel})
	case "PATCH status":
		var req protocol.StepStatusRequest
		json.Unmarshal(body, &req)
		j.steps[step] = req.Status
	case "POST logs":
		var req protocol.LogLines
		json.Unmarshal(body, &req)
		if int(req.Offset) != len(j.lines[step]) {
			s.t.Errorf("lines at %d, have %d", req.Offset, len(j.lines[step]))
		}
		for _, line := range req.Lines {
			j.lines[step] = append(j.lines[step], line.Line)
		}
	case "PUT log":
		offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		have := len(j.logs[step])
		if offset > have {
			w.WriteHeader(http.StatusConflict)
		} else if offset+len(body) > have {
			j.logs[step] = append(j.logs[step][:offset], body...)
			have = len(j.logs[step])
		}
		json.NewEncoder(w).Encode(protocol.LogAck{Received: int64(have), Durable: int64(have)})
	case "POST result":
		var req protocol.ResultRequest
		json.Unmarshal(body, &req)
		conflict := protocol.ResultConflict{Code: 409}
		for _, want := range req.Steps {
			if have := int64(len(j.logs[want.Step])); have < want.Bytes && !want.Gone {
				conflict.Missing = append(conflict.Missing, protocol.MissingLog{Step: want.Step, Received: have})
			}
		}
		if len(conflict.Missing) > 0 {
			w.WriteHeader(http.StatusConflict)
			json.NewEncoder(w).Encode(conflict)
			return
		}
		if !j.status.Final() {
			j.status = req.Status
		}
		j.results = append(j.results, req)
		io.WriteString(w, "{}")
	default:
		http.NotFound(w, r)
	}
}

func readBody(r *http.Request) []byte {
	body, _ := io.ReadAll(r.Body)
	if r.Header.Get("Content-Encoding") == "zstd" {
		decoder, err := zstd.NewReader(nil)
		if err != nil {
			return nil
		}
		defer decoder.Close()
		body, _ = decoder.DecodeAll(body, nil)
	}
	return body
}

// text returns the lines of a step's log. The caller holds the lock or nobody
// writes any more.
func (j *serverJob) text(step int) []string {
	var out []string
	frames := protocol.NewFrameReader(strings.NewReader(string(j.logs[step])))
	for {
		frame, err := frames.Next()
		if err != nil {
			return append(out, j.lines[step]...)
		}
		out = append(out, string(frame.Text))
	}
}

// has reports whether a line of a step's log contains all words.
func (j *serverJob) has(step int, words ...string) bool {
	return slices.ContainsFunc(j.text(step), func(line string) bool {
		for _, word := range words {
			if !strings.Contains(line, word) {
				return false
			}
		}
		return true
	})
}

// drop cuts the connection of a request without an answer.
func drop(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		conn.Close()
	}
}
