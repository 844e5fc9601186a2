package runner_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/klauspost/compress/zstd"

	"workflowagent/internal/protocol"
)

const (
	jobID    = "job-1"
	jobToken = "job-token-0123456789abcdef"
)

// fakeServer is the server's side of one job.
type fakeServer struct {
	*httptest.Server
	t     *testing.T
	signs bool // its answers, unlike those of intercept

	// intercept may answer a call itself; it is called without the lock.
	intercept func(w http.ResponseWriter, r *http.Request, body []byte) bool

	mu       sync.Mutex
	logs     map[int]*bytes.Buffer
	lines    map[int][]string // by the JSON form
	statuses []string         // "1 running", in the order they came
	exits    map[int]int
	phases   []protocol.Phase
	cancel   bool
	force    bool
	results  []protocol.ResultRequest
	changed  chan struct{}
}

func newFakeServer(t *testing.T) *fakeServer {
	s := &fakeServer{
		t: t, logs: map[int]*bytes.Buffer{}, lines: map[int][]string{}, exits: map[int]int{},
		changed: make(chan struct{}),
	}
	router := chi.NewRouter()
	router.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := readBody(r)
			switch {
			case err != nil:
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			case r.Header.Get("Authorization") != "token "+jobToken:
				http.Error(w, "wrong token", http.StatusUnauthorized)
				return
			case s.intercept != nil && s.intercept(w, r, body):
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			if s.signs {
				signer := protocol.SignAnswers(w, r)
				defer signer.Finish()
				w = signer
			}
			next.ServeHTTP(w, r)
		})
	})
	router.Post("/api/workflow/jobs/{job}/heartbeat", s.heartbeat)
	router.Patch("/api/workflow/jobs/{job}/{step}/status", s.status)
	router.Put("/api/workflow/jobs/{job}/{step}/log", s.log)
	router.Post("/api/workflow/jobs/{job}/{step}/logs", s.logLines)
	router.Post("/api/workflow/jobs/{job}/result", s.result)
	s.Server = httptest.NewServer(router)
	t.Cleanup(s.Close)
	return s
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

// update changes the server's state and wakes those who wait for it.
func (s *fakeServer) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// waitFor returns when the condition holds.
func (s *fakeServer) waitFor(what string, condition func() bool) {
	s.t.Helper()
	for {
		s.mu.Lock()
		ok, changed := condition(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-s.t.Context().Done():
			s.t.Errorf("never saw %s", what)
			return
		}
	}
}

func decodeInto(w http.ResponseWriter, r *http.Request, v any) bool {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func (s *fakeServer) heartbeat(w http.ResponseWriter, r *http.Request) {
	var request protocol.HeartbeatRequest
	if !decodeInto(w, r, &request) {
		return
	}
	var response protocol.HeartbeatResponse
	s.update(func() {
		s.phases = append(s.phases, request.Phase)
		response = protocol.HeartbeatResponse{CancelRequested: s.cancel || s.force, ForceRequested: s.force}
	})
	answer(w, http.StatusOK, response)
}

func (s *fakeServer) status(w http.ResponseWriter, r *http.Request) {
	var request protocol.StepStatusRequest
	if !decodeInto(w, r, &request) {
		return
	}
	step, _ := strconv.Atoi(chi.URLParam(r, "step"))
	s.update(func() {
		s.statuses = append(s.statuses, fmt.Sprintf("%d %s", step, request.Status))
		if request.ExitCode != nil {
			s.exits[step] = *request.ExitCode
		}
	})
	answer(w, http.StatusOK, struct{}{})
}

func (s *fakeServer) log(w http.ResponseWriter, r *http.Request) {
	step, _ := strconv.Atoi(chi.URLParam(r, "step"))
	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	body, readErr := io.ReadAll(r.Body)
	if err := errors.Join(err, readErr); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	code := http.StatusOK
	var ack protocol.LogAck
	s.update(func() {
		if s.logs[step] == nil {
			s.logs[step] = &bytes.Buffer{}
		}
		have := int64(s.logs[step].Len())
		if offset > have {
			code = http.StatusConflict
		} else if skip := have - offset; skip < int64(len(body)) {
			s.logs[step].Write(body[skip:])
		}
		have = int64(s.logs[step].Len())
		ack = protocol.LogAck{Received: have, Durable: have}
	})
	answer(w, code, ack)
}

func (s *fakeServer) logLines(w http.ResponseWriter, r *http.Request) {
	step, _ := strconv.Atoi(chi.URLParam(r, "step"))
	var request protocol.LogLines
	if !decodeInto(w, r, &request) {
		return
	}
	s.update(func() {
		if int64(len(s.lines[step])) != request.Offset {
			s.t.Errorf("lines of step %d came at offset %d, want %d", step, request.Offset, len(s.lines[step]))
		}
		for _, line := range request.Lines {
			s.lines[step] = append(s.lines[step], line.Line)
		}
	})
	answer(w, http.StatusOK, struct{}{})
}

func (s *fakeServer) result(w http.ResponseWriter, r *http.Request) {
	var request protocol.ResultRequest
	if !decodeInto(w, r, &request) {
		return
	}
	conflict := protocol.ResultConflict{Code: http.StatusConflict, Message: "log is missing"}
	s.update(func() {
		for _, step := range request.Steps {
			have := int64(0)
			if s.logs[step.Step] != nil {
				have = int64(s.logs[step.Step].Len())
			}
			if have < step.Bytes && !step.Gone {
				conflict.Missing = append(conflict.Missing, protocol.MissingLog{Step: step.Step, Received: have})
			}
		}
		if len(conflict.Missing) == 0 {
			s.results = append(s.results, request)
		}
	})
	if len(conflict.Missing) > 0 {
		answer(w, http.StatusConflict, conflict)
		return
	}
	answer(w, http.StatusOK, struct{}{})
}

// text returns the log of a step as people see it.
func (s *fakeServer) text(step int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.textLocked(step)
}

func (s *fakeServer) textLocked(step int) string {
	if s.logs[step] == nil {
		return ""
	}
	var text strings.Builder
	frames := protocol.NewFrameReader(bytes.NewReader(s.logs[step].Bytes()))
	for {
		frame, err := frames.Next()
		if err != nil {
			return text.String()
		}
		text.Write(frame.Text)
		if !frame.Fragment {
			text.WriteByte('\n')
		}
	}
}

// oneResult returns the result, after checking that there is one and that its
// hashes are those of the log that arrived.
func (s *fakeServer) oneResult() protocol.ResultRequest {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.results) != 1 {
		s.t.Fatalf("got %d results, want 1", len(s.results))
	}
	for _, step := range s.results[0].Steps {
		var log []byte
		if s.logs[step.Step] != nil {
			log = s.logs[step.Step].Bytes()
		}
		sum := sha256.Sum256(log)
		if step.SHA256 != hex.EncodeToString(sum[:]) || step.Bytes != int64(len(log)) {
			s.t.Errorf("the result describes step %d as %d bytes with hash %s, the server has %d bytes with %x", step.Step, step.Bytes, step.SHA256, len(log), sum)
		}
	}
	return s.results[0]
}
