package fakes

import (
	"bytes"
	"cmp"
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

// PoolToken is the token that a [Server] accepts from agents.
const PoolToken = "pul-pool-token-of-the-test"

// Server is an in-memory control plane that implements the whole protocol between server, agents
// and runners, and injects faults on demand. While the server runs, tests must read its exported
// fields and those of its jobs in [Server.WaitFor] or [Server.View], and change them in
// [Server.Update].
type Server struct {
	*httptest.Server
	t testing.TB

	Stock    bool // only the public API: no epoch, no raw log, no result, no signatures
	Unsigned bool // responses are not signed
	Polls    []Poll
	Queue    []*ServerJob

	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever anything changes
	jobs    map[string]*ServerJob
	claims  map[string]*ServerJob // by poll ID
	fault   func(w http.ResponseWriter, r *http.Request) bool
}

// Poll is the content of an agent's poll request.
type Poll struct {
	ID, Agent, Session string
	Slots              int
	Types              []string
}

// ServerJob is one job of a [Server].
type ServerJob struct {
	ID, Token  string
	Pool       string
	Definition workflow.JobDefinition
	Epoch      int64

	Claimed  int // number of claims, not counting repeated responses
	Phases   []protocol.Phase
	Leave    bool
	Holder   string   // of the leave, if the request named one
	Refused  []string // holders that requested leave in vain
	Cancel   bool
	Force    bool
	Gone     bool
	Status   workflow.Status
	Steps    map[int]workflow.StepStatus
	Pulumi   string   // the reported version of pulumi
	Statuses []string // "1 running", in order of arrival
	Commit   string   // that a step has reported
	Use      protocol.WorkspaceUse
	Logs     map[int][]byte
	Lines    map[int][]string // lines of logs in the JSON form
	Results  []protocol.ResultRequest

	// IdentityToken issues the job's identity tokens; nil means that the server issues none.
	IdentityToken func() protocol.IdentityToken
}

// NewServer starts a server that stops when the test finishes.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, changed: make(chan struct{}), jobs: map[string]*ServerJob{}, claims: map[string]*ServerJob{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// Add queues a job.
func (s *Server) Add(change ...func(*ServerJob)) *ServerJob {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := uuid.NewString()
	j := &ServerJob{
		ID: id, Token: "token-of-" + id, Epoch: 1, Status: workflow.StatusNotStarted,
		Steps: map[int]workflow.StepStatus{}, Logs: map[int][]byte{}, Lines: map[int][]string{},
		Definition: workflow.JobDefinition{
			OS: "linux", Image: &workflow.Image{Reference: "pulumi/pulumi:latest"}, Env: map[string]string{},
			Steps: []workflow.Step{{Name: "Setup"}, {Name: "Get source", Run: workflow.RunSourceGit}, {Name: "pulumi update", Run: "workflow-runner pulumi update"}},
			Deployment: &workflow.Deployment{
				ID: "deployment-" + id, Organization: "org", Project: "project", Stack: "stack", Operation: workflow.OperationUpdate,
				Source: &workflow.Source{Git: &workflow.GitSource{RepoURL: "https://example.com/repo.git"}},
			},
		},
	}
	if s.Stock {
		j.Epoch = 0
	}
	for _, f := range change {
		f(j)
	}
	s.jobs[j.ID] = j
	s.Queue = append(s.Queue, j)
	s.wake()
	return j
}

// wake notifies waiters of a change. The caller must hold the lock.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Update changes the server's state under the lock.
func (s *Server) Update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.wake()
}

// View reads the server's state under the lock.
func (s *Server) View(read func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	read()
}

// WaitFor waits until ok, called under the lock, returns true.
func (s *Server) WaitFor(what string, ok func() bool) {
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
		case <-s.t.Context().Done():
			s.t.Errorf("%s did not occur before the test ended", what)
			return
		case <-deadline:
			s.t.Errorf("timed out waiting for %s", what)
			return
		}
	}
}

// WaitForResult waits for the result of a job and returns it.
func (s *Server) WaitForResult(j *ServerJob) protocol.ResultRequest {
	s.t.Helper()
	var result protocol.ResultRequest
	s.WaitFor("the result", func() bool {
		if len(j.Results) > 0 {
			result = j.Results[0]
		}
		return len(j.Results) > 0
	})
	return result
}

// WaitForFreeSlot waits until an agent polls with one free slot after its first poll.
func (s *Server) WaitForFreeSlot() {
	s.t.Helper()
	s.WaitFor("the agent to poll again", func() bool { return len(s.Polls) > 1 && s.Polls[len(s.Polls)-1].Slots == 1 })
}

// OnFault sets a function that can handle requests in place of the server. The function returns
// true if it has sent a response, and false if the server must handle the request. It is called
// without the lock and may read the request's uncompressed body.
func (s *Server) OnFault(fault func(w http.ResponseWriter, r *http.Request) bool) {
	s.Update(func() { s.fault = fault })
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		return // the client has disconnected
	}
	s.mu.Lock()
	fault, signs := s.fault, !s.Stock && !s.Unsigned
	s.mu.Unlock()
	signer := protocol.SignAnswers(w, r) // uses the token as the client sent it
	r.Body = io.NopCloser(bytes.NewReader(body))
	if fault != nil && fault(w, r) {
		return
	}
	if signs {
		defer signer.Finish()
		w = signer
	}
	switch path := r.URL.Path; {
	case path == "/api/capabilities":
		_, _ = io.WriteString(w, `{"capabilities":[]}`)
	case path == "/api/deployments/poll":
		s.Poll(w, r)
	case strings.HasPrefix(path, "/api/deployments/"):
		s.status(w, r)
	case strings.HasPrefix(path, "/api/workflow/jobs/"):
		s.job(w, r, body)
	default:
		http.NotFound(w, r)
	}
}

// Poll handles a poll request.
func (s *Server) Poll(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "token "+PoolToken {
		http.Error(w, `{"code":401,"message":"Unauthorized"}`, http.StatusUnauthorized)
		return
	}
	slots, _ := strconv.Atoi(r.Header.Get(protocol.HeaderAgentSlots))
	poll := Poll{r.Header.Get(protocol.HeaderPollID), r.Header.Get(protocol.HeaderAgentID), r.Header.Get(protocol.HeaderAgentSession), slots, r.URL.Query()["type"]}
	var wait int
	_, _ = fmt.Sscanf(r.Header.Get(protocol.HeaderPrefer), "wait=%d", &wait)
	s.mu.Lock()
	s.Polls = append(s.Polls, poll)
	s.wake()
	stock := s.Stock
	s.mu.Unlock()
	if stock {
		wait = 0
	}
	timeout := time.After(time.Duration(wait) * time.Second)
	for {
		j, changed := s.claim(poll)
		if wait > 0 {
			w.Header().Set(protocol.HeaderPreferenceApplied, "wait")
		}
		if j != nil {
			w.Header().Set(protocol.HeaderAgentPool, j.Pool)
			Answer(w, http.StatusOK, protocol.PollResponse{
				JobID: j.ID, JobToken: j.Token, OIDCToken: "oidc", RunID: "1", TypeSpecificID: "deployment-" + j.ID, Epoch: j.Epoch,
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

// claim returns the job for a poll, or nil and a channel that is closed at the next change.
func (s *Server) claim(poll Poll) (*ServerJob, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.claims[poll.ID]
	if j == nil && len(s.Queue) > 0 && (poll.Slots > 0 || s.Stock) {
		j, s.Queue = s.Queue[0], s.Queue[1:]
		j.Claimed++
		j.Status = workflow.StatusAccepted
		s.claims[poll.ID] = j
		s.wake()
	}
	return j, s.changed
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.Stock {
		w.Header().Set(protocol.HeaderAgentPool, "pool")
	}
	j := s.jobs[strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/api/deployments/deployment-"), "/status")]
	if j == nil {
		Answer(w, http.StatusNotFound, map[string]any{"code": http.StatusNotFound, "message": "Not Found: the deployment does not exist"})
		return
	}
	Answer(w, http.StatusOK, j.Status)
}

func (s *Server) job(w http.ResponseWriter, r *http.Request, body []byte) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/workflow/jobs/"), "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	j := s.jobs[parts[0]]
	if j == nil || r.Header.Get("Authorization") != "token "+j.Token {
		http.Error(w, `{"code":401}`, http.StatusUnauthorized)
		return
	}
	if j.Gone {
		http.Error(w, `{"code":410,"message":"Gone"}`, http.StatusGone)
		return
	}
	step := 0
	if len(parts) == 3 {
		step, _ = strconv.Atoi(parts[1])
	}
	call := r.Method + " " + strings.Join(parts[max(1, len(parts)-1):], "/")
	if s.Stock && (call == "PUT log" || call == "POST result") {
		http.NotFound(w, r)
		return
	}
	switch call {
	case "GET ":
		Answer(w, http.StatusOK, j.Definition)
	case "POST heartbeat":
		j.heartbeat(w, decode[protocol.HeartbeatRequest](s.t, body))
	case "POST oidc-token":
		if j.IdentityToken == nil {
			http.NotFound(w, r)
			return
		}
		Answer(w, http.StatusOK, j.IdentityToken())
	case "PATCH status":
		req := decode[protocol.StepStatusRequest](s.t, body)
		j.Steps[step] = req.Status
		j.Pulumi, j.Use = cmp.Or(req.PulumiVersion, j.Pulumi), cmp.Or(req.Workspace, j.Use)
		j.Statuses = append(j.Statuses, fmt.Sprintf("%d %s", step, req.Status))
		if req.Commit != "" {
			j.Commit = req.Commit
		}
		Answer(w, http.StatusOK, struct{}{})
	case "POST logs":
		req := decode[protocol.LogLines](s.t, body)
		if int(req.Offset) != len(j.Lines[step]) {
			s.t.Errorf("received lines of step %d at offset %d, want %d", step, req.Offset, len(j.Lines[step]))
		}
		for _, line := range req.Lines {
			j.Lines[step] = append(j.Lines[step], line.Line)
		}
		Answer(w, http.StatusOK, struct{}{})
	case "PUT log":
		j.log(w, step, r.URL.Query().Get("offset"), body)
	case "POST result":
		j.result(w, decode[protocol.ResultRequest](s.t, body))
	default:
		http.NotFound(w, r)
	}
}

func (j *ServerJob) heartbeat(w http.ResponseWriter, req protocol.HeartbeatRequest) {
	j.Phases = append(j.Phases, req.Phase)
	if j.Leave && j.Holder != req.Holder && (req.Holder != "" || req.Phase == protocol.PhaseStarting) || req.Phase == protocol.PhaseStarting && j.Status.Final() {
		j.Refused = append(j.Refused, req.Holder)
		http.Error(w, `{"code":410,"message":"Gone"}`, http.StatusGone)
		return
	}
	if req.Phase == protocol.PhaseStarting && !j.Cancel {
		j.Leave, j.Holder = true, req.Holder
		j.Status = workflow.StatusRunning
	}
	Answer(w, http.StatusOK, protocol.HeartbeatResponse{CancelRequested: j.Cancel || j.Force, ForceRequested: j.Force, Started: j.Leave})
}

func (j *ServerJob) log(w http.ResponseWriter, step int, at string, body []byte) {
	offset, _ := strconv.Atoi(at)
	code, have := http.StatusOK, len(j.Logs[step])
	if offset > have {
		code = http.StatusConflict
	} else if offset+len(body) > have {
		j.Logs[step] = append(j.Logs[step][:offset], body...)
		have = len(j.Logs[step])
	}
	Answer(w, code, protocol.LogAck{Received: int64(have), Durable: int64(have)})
}

func (j *ServerJob) result(w http.ResponseWriter, req protocol.ResultRequest) {
	conflict := protocol.ResultConflict{Code: http.StatusConflict, Message: "log is missing"}
	for _, want := range req.Steps {
		if have := int64(len(j.Logs[want.Step])); have < want.Bytes && !want.Gone {
			conflict.Missing = append(conflict.Missing, protocol.MissingLog{Step: want.Step, Received: have})
		}
	}
	if len(conflict.Missing) > 0 {
		Answer(w, http.StatusConflict, conflict)
		return
	}
	if req.NotStarted && j.Leave {
		Answer(w, http.StatusConflict, protocol.ResultConflict{Code: http.StatusConflict, Message: "the job has leave"})
		return
	}
	if !j.Status.Final() {
		j.Status = req.Status
	}
	j.Results = append(j.Results, req)
	Answer(w, http.StatusOK, struct{}{})
}

func decode[T any](t testing.TB, body []byte) (v T) {
	if err := json.Unmarshal(body, &v); err != nil {
		t.Errorf("decoding the request body %q: %v", body, err)
	}
	return v
}

// Answer writes a JSON response.
func Answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has disconnected
}

func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("Content-Encoding") != "zstd" {
		return body, err
	}
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	return decoder.DecodeAll(body, nil)
}

// Log returns the lines of a step's log. Unless the job has finished, the caller must hold the
// lock.
func (j *ServerJob) Log(step int) []string {
	var out []string
	var line strings.Builder
	for log := j.Logs[step]; ; {
		frame, n, err := protocol.ParseFrame(log)
		if err != nil {
			if line.Len() > 0 {
				out = append(out, line.String())
			}
			return append(out, j.Lines[step]...)
		}
		log = log[n:]
		line.Write(frame.Text)
		if !frame.Fragment {
			out = append(out, line.String())
			line.Reset()
		}
	}
}

// Has reports whether some line of a step's log contains all words.
func (j *ServerJob) Has(step int, words ...string) bool {
	return slices.ContainsFunc(j.Log(step), func(line string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
	})
}

// IsCall reports whether a request has this method and path suffix.
func IsCall(r *http.Request, method, suffix string) bool {
	return r.Method == method && strings.HasSuffix(r.URL.Path, suffix)
}

// Drop closes a request's connection without a response.
func Drop(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}
