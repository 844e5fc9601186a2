package protocol_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

const secret = "pul-0123456789abcdef"

func newClient(t *testing.T, handler http.HandlerFunc, change ...func(*protocol.Options)) *protocol.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	opts := protocol.Options{
		BaseURL:   server.URL + "/",
		UserAgent: "test/1 (linux/amd64)",
		Retry:     protocol.Retry{Count: 2, Wait: time.Millisecond, MaxWait: 5 * time.Millisecond},
	}
	for _, f := range change {
		f(&opts)
	}
	c, err := protocol.NewClient(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestPollSendsIdentityAndReadsClaim(t *testing.T) {
	var got *http.Request
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.Header().Set("Preference-Applied", "wait")
		io.WriteString(w, `{"jobID":"j","jobToken":"jt","oidcToken":"o","runID":"r","typeSpecificID":"d","workflowType":"deployment","epoch":3,"news":1}`)
	})
	result, err := c.Poll(t.Context(), secret, protocol.PollRequest{
		AgentID: "a", SessionID: "s", PollID: "p", Hostname: "h\n1", PID: 7, Version: "v1", Platform: "linux/arm64",
		FreeSlots: 2, Interval: 1500 * time.Millisecond, Wait: 25 * time.Second,
		Types: []workflow.Type{workflow.TypeDeployment, workflow.TypeInsightsScan},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := protocol.PollResult{Held: true, Job: &protocol.PollResponse{
		JobID: "j", JobToken: "jt", OIDCToken: "o", RunID: "r", TypeSpecificID: "d", DeploymentID: "d",
		WorkflowType: workflow.TypeDeployment, Epoch: 3,
	}}
	if diff := cmp.Diff(want, result); diff != "" {
		t.Error(diff)
	}
	for header, value := range map[string]string{
		"Authorization": "token " + secret, "Accept": "application/vnd.pulumi+8", "User-Agent": "test/1 (linux/amd64)",
		protocol.HeaderAgentID: "a", protocol.HeaderAgentSession: "s", protocol.HeaderPollID: "p",
		protocol.HeaderAgentHostname: "h 1", protocol.HeaderAgentPID: "7", protocol.HeaderAgentVersion: "v1",
		protocol.HeaderAgentPlatform: "linux/arm64", protocol.HeaderAgentSlots: "2",
		protocol.HeaderAgentInterval: "2", protocol.HeaderPrefer: "wait=25",
	} {
		if got.Header.Get(header) != value {
			t.Errorf("%s = %q, want %q", header, got.Header.Get(header), value)
		}
	}
	if diff := cmp.Diff([]string{"deployment", "insights_scan"}, got.URL.Query()["type"]); diff != "" {
		t.Error(diff)
	}
}

func TestPollWithoutWorkKeepsRetryAfter(t *testing.T) {
	for _, tc := range []struct {
		header string
		want   time.Duration
	}{
		{"", 0},
		{"7", 7 * time.Second},
		{"-3", 0},
		{"soon", 0},
		{"86400", time.Hour},
		{"99999999999999", time.Hour},
		{time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat), 0},
	} {
		c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
			if tc.header != "" {
				w.Header().Set("Retry-After", tc.header)
			}
			w.WriteHeader(http.StatusNoContent)
		})
		result, err := c.Poll(t.Context(), secret, protocol.PollRequest{})
		if err != nil || result.Job != nil || result.Held || result.RetryAfter != tc.want {
			t.Errorf("Retry-After %q: got %+v, %v; want a pause of %s", tc.header, result, err, tc.want)
		}
	}
}

func TestPollIsNeverRepeatedByTheClient(t *testing.T) {
	var calls atomic.Int32
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusBadGateway)
	})
	if _, err := c.Poll(t.Context(), secret, protocol.PollRequest{}); protocol.StatusCode(err) != http.StatusBadGateway {
		t.Errorf("got error %v, want the 502", err)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the server saw %d polls, want 1", n)
	}
}

func TestPollRefusesHalfAnAnswer(t *testing.T) {
	for _, body := range []string{`{"jobID":"j`, `{"jobID":"j"}`, `[]`, `"x"`} {
		c := newClient(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) })
		if result, err := c.Poll(t.Context(), secret, protocol.PollRequest{}); err == nil || protocol.Permanent(err) {
			t.Errorf("%s: got %+v, %v; want an error worth repeating", body, result, err)
		}
	}
}

func TestWebPagesAreNotQuoted(t *testing.T) {
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<!DOCTYPE html><html>Log in</html>") })
	if _, err := c.Poll(t.Context(), secret, protocol.PollRequest{}); err == nil || !strings.Contains(err.Error(), "check service_url") || strings.Contains(err.Error(), "DOCTYPE") {
		t.Errorf("got %v", err)
	}
}

func TestStatusIsRepeated(t *testing.T) {
	var calls atomic.Int32
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.URL.Path != "/api/deployments/a b/status" {
			t.Errorf("path %q", r.URL.Path)
		}
		io.WriteString(w, `"running"`)
	})
	status, err := c.Status(t.Context(), secret, "a b")
	if err != nil || status != workflow.StatusRunning {
		t.Errorf("got %q, %v", status, err)
	}
}

func TestErrorsSayEachThingOnce(t *testing.T) {
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"code":401,"message":"Unauthorized: the token is missing, expired or revoked"}`)
	})
	_, err := c.Status(t.Context(), secret, "d")
	want := "GET /api/deployments/d/status: the server answered 401 Unauthorized: the token is missing, expired or revoked"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestErrorsTellPeopleAndHideTokens(t *testing.T) {
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"code":401,"message":"bad `+strings.TrimPrefix(r.Header.Get("Authorization"), "token ")+`\u001b[31m\nsecond line"}`)
	})
	_, err := c.Status(t.Context(), secret, "d")
	var apiErr *protocol.APIError
	if !errors.As(err, &apiErr) || !protocol.Permanent(err) {
		t.Fatalf("got %v", err)
	}
	want := "GET /api/deployments/d/status: the server answered 401 Unauthorized: bad [REDACTED] second line (the token is wrong, expired or revoked)"
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestTransportErrorsNameTheCall(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	c, err := protocol.NewClient(protocol.Options{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Job("j", secret).Heartbeat(t.Context(), protocol.PhaseRunning)
	if err == nil || protocol.Permanent(err) || !strings.HasPrefix(err.Error(), "POST /api/workflow/jobs/j/heartbeat at 127.0.0.1:") {
		t.Errorf("got %v", err)
	}
}

func TestRedirectToAnotherHostIsRefused(t *testing.T) {
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the other host was called with %q", r.Header.Get("Authorization"))
	}))
	defer thief.Close()
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, thief.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	if _, err := c.Status(t.Context(), secret, "d"); err == nil || !strings.Contains(err.Error(), "redirects to another host") {
		t.Errorf("got %v", err)
	}
	if err := c.Job("j", secret).Result(t.Context(), protocol.ResultRequest{}); err == nil {
		t.Error("the result followed the redirect")
	}
}

func TestAnswersAreBounded(t *testing.T) {
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `"`+strings.Repeat("x", 2<<20)+`"`)
	})
	if _, err := c.Status(t.Context(), secret, "d"); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("got %v", err)
	}
}

func TestRequestTimeout(t *testing.T) {
	release := make(chan struct{})
	c := newClient(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}, func(o *protocol.Options) { o.RequestTimeout = 50 * time.Millisecond })
	defer close(release)
	_, err := c.Job("j", secret).Heartbeat(t.Context(), protocol.PhaseRunning)
	if err == nil || !strings.Contains(err.Error(), "no response within 50ms") {
		t.Errorf("got %v", err)
	}
}

func TestDefinition(t *testing.T) {
	body := `{"os":"linux","image":{"reference":"i"},"env":{"A":"b"},"steps":[{"name":"Setup"},{"name":"x","run":"y","timeout":"1m"}],"unknown":true}`
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/workflow/jobs/j" || r.Header.Get("Authorization") != "token "+secret {
			t.Errorf("got %s with %q", r.URL.Path, r.Header.Get("Authorization"))
		}
		io.WriteString(w, body)
	})
	definition, err := c.Job("j", secret).Definition(t.Context())
	if err != nil || definition.Steps[1].Timeout != workflow.Duration(time.Minute) {
		t.Fatalf("got %+v, %v", definition, err)
	}
	body = `{"steps":[]}`
	var bad *protocol.DefinitionError
	if _, err := c.Job("j", secret).Definition(t.Context()); !errors.As(err, &bad) || !protocol.Permanent(err) {
		t.Errorf("got %v", err)
	}
	body = `{"os":"linux","steps":[{"na`
	if _, err := c.Job("j", secret).Definition(t.Context()); err == nil || protocol.Permanent(err) {
		t.Errorf("a truncated definition: %v, want an error worth repeating", err)
	}
}

// TestDefinitionIsRequestedOnce checks that the client does not retry a request for a definition.
// Its callers retry, and two layers of retries would multiply.
func TestDefinitionIsRequestedOnce(t *testing.T) {
	asked := 0
	c := fakeClient(t, func(*http.Request) (*http.Response, error) {
		asked++
		return reply(http.StatusServiceUnavailable, ""), nil
	})
	if _, err := c.Job("j", secret).Definition(t.Context()); protocol.StatusCode(err) != http.StatusServiceUnavailable || asked != 1 {
		t.Errorf("requested %d times: %v", asked, err)
	}
}

func TestHeartbeatAcceptsAnEmptyAnswer(t *testing.T) {
	answers := []string{``, `{}`, `{"cancelRequested":true}`}
	i := 0
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, answers[i]) })
	for ; i < len(answers); i++ {
		response, err := c.Job("j", secret).Heartbeat(t.Context(), protocol.PhaseRunning)
		if err != nil || response.CancelRequested != (i == 2) {
			t.Errorf("%q: got %+v, %v", answers[i], response, err)
		}
	}
}

func TestPutLog(t *testing.T) {
	long := []byte(strings.Repeat("the same line\n", 1000))
	for _, tc := range []struct {
		name     string
		data     []byte
		compress bool
		encoding string
	}{
		{"plain", long, false, ""},
		{"compressed", long, true, "zstd"},
		{"too short to compress", []byte("x"), true, ""},
		{"empty requests the offsets", nil, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPut || r.URL.Path != "/api/workflow/jobs/j/4/log" || r.URL.RawQuery != "offset=42" ||
					r.Header.Get("Content-Encoding") != tc.encoding || r.Header.Get("Content-Type") != "application/octet-stream" {
					t.Errorf("got %s %s %v", r.Method, r.URL, r.Header)
				}
				body := io.Reader(r.Body)
				if tc.encoding == "zstd" {
					decoder, err := zstd.NewReader(r.Body)
					if err != nil {
						t.Error(err)
						return
					}
					defer decoder.Close()
					body = decoder
				}
				data, err := io.ReadAll(body)
				if err != nil || string(data) != string(tc.data) {
					t.Errorf("got %d bytes, %v; want %d", len(data), err, len(tc.data))
				}
				io.WriteString(w, `{"received":50,"durable":43,"limit":0}`)
			})
			ack, err := c.Job("j", secret).PutLog(t.Context(), 4, 42, tc.data, tc.compress)
			if err != nil || ack != (protocol.LogAck{Received: 50, Durable: 43}) {
				t.Errorf("got %+v, %v", ack, err)
			}
		})
	}
}

func TestConflictsAreTyped(t *testing.T) {
	body := `{"received":10,"durable":9}`
	c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, body)
	})
	job := c.Job("j", secret)
	var gap *protocol.LogGapError
	if _, err := job.PutLog(t.Context(), 1, 20, []byte("x"), false); !errors.As(err, &gap) || gap.Ack.Received != 10 || protocol.StatusCode(err) != 409 {
		t.Errorf("got %v", err)
	}
	body = `{"code":409,"message":"log is missing","missing":[{"step":2,"received":7}]}`
	var conflict *protocol.ResultConflictError
	err := job.Result(t.Context(), protocol.ResultRequest{})
	if !errors.As(err, &conflict) || protocol.Permanent(err) {
		t.Fatalf("got %v", err)
	}
	if diff := cmp.Diff([]protocol.MissingLog{{Step: 2, Received: 7}}, conflict.Missing); diff != "" {
		t.Error(diff)
	}
	body = `{"code":409,"message":"something else"}`
	if err := job.Result(t.Context(), protocol.ResultRequest{}); errors.As(err, &conflict) && conflict.Missing == nil || protocol.StatusCode(err) != 409 {
		t.Errorf("got %v", err)
	}
}

func TestStockCallsAreSentAsJSON(t *testing.T) {
	var method, path string
	var body map[string]any
	c := newClient(t, func(_ http.ResponseWriter, r *http.Request) {
		method, path, body = r.Method, r.URL.Path, nil
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
	})
	job := c.Job("j", secret)
	if err := job.StepStatus(t.Context(), 3, protocol.StepStatusRequest{Status: workflow.StepRunning}); err != nil {
		t.Fatal(err)
	}
	if method != "PATCH" || path != "/api/workflow/jobs/j/3/status" || !cmp.Equal(body, map[string]any{"status": "running"}) {
		t.Errorf("got %s %s %v", method, path, body)
	}
	if err := job.PostLogLines(t.Context(), 3, protocol.LogLines{Offset: 5, Lines: []protocol.LogLine{{Line: "l"}}}); err != nil {
		t.Fatal(err)
	}
	if method != "POST" || path != "/api/workflow/jobs/j/3/logs" || body["offset"] != 5.0 {
		t.Errorf("got %s %s %v", method, path, body)
	}
}

func TestPrivateCertificateAuthority(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `"failed"`)
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c, err := protocol.NewClient(protocol.Options{BaseURL: server.URL, CACertPEM: ca})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if status, err := c.Status(context.Background(), secret, "d"); err != nil || status != workflow.StatusFailed {
		t.Errorf("got %q, %v", status, err)
	}
	stranger, err := protocol.NewClient(protocol.Options{BaseURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if _, err := stranger.Status(t.Context(), secret, "d"); err == nil || !strings.Contains(err.Error(), "ca_certificate_file") {
		t.Errorf("without the authority: %v", err)
	}
	if _, err := protocol.NewClient(protocol.Options{BaseURL: server.URL, CACertPEM: []byte("junk")}); err == nil {
		t.Error("junk was accepted as a certificate")
	}
}

func TestNewClientRefusesBadURLs(t *testing.T) {
	for _, bad := range []string{"", "api.example.com", "ftp://x", "https://user:pw@x", "http://[::1"} {
		if _, err := protocol.NewClient(protocol.Options{BaseURL: bad}); err == nil || strings.Contains(err.Error(), "pw") {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

func TestPutLogWithoutCompression(t *testing.T) {
	long := []byte(strings.Repeat("the same line\n", 1000))
	var encodings []string
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		encoding := r.Header.Get("Content-Encoding")
		encodings = append(encodings, encoding)
		if encoding != "" {
			w.WriteHeader(http.StatusUnsupportedMediaType)
			return
		}
		if data, err := io.ReadAll(r.Body); err != nil || string(data) != string(long) {
			t.Errorf("got %d bytes, %v; want %d", len(data), err, len(long))
		}
		io.WriteString(w, `{"received":14000,"durable":0}`)
	})
	job := c.Job("j", secret)
	for range 2 {
		if ack, err := job.PutLog(t.Context(), 1, 0, long, true); err != nil || ack.Received != 14000 {
			t.Errorf("got %+v, %v", ack, err)
		}
	}
	if diff := cmp.Diff([]string{"zstd", "", ""}, encodings); diff != "" {
		t.Errorf("the refusal is not remembered (-want +got):\n%s", diff)
	}
}

func TestOnLoopback(t *testing.T) {
	for url, want := range map[string]bool{
		"http://localhost:8080": true, "https://127.3.2.1/x": true, "http://[::1]:80": true, "http://[::1]": true, "http://LOCALHOST": true, "http://x.localhost": false,
		"https://api.example.com": false, "http://10.0.0.1": false, "https://localhost.example.com": false,
		"http://0.0.0.0": false, "": false, "http://%": false,
	} {
		if got := protocol.OnLoopback(url); got != want {
			t.Errorf("%q: got %v", url, got)
		}
	}
}

// TestSwitchesOfProtocolEnd checks that a proxy cannot hold a call by a switch to another protocol,
// after which reads ignore every deadline.
func TestSwitchesOfProtocolEnd(t *testing.T) {
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("the client kept the connection: %v", err)
		}
	})
	job := c.Job("job", secret)
	for name, call := range map[string]func() error{
		"a call that is repeated": func() error { return job.Result(t.Context(), protocol.ResultRequest{}) },
		"a single call": func() error {
			_, err := c.Poll(t.Context(), secret, protocol.PollRequest{AgentID: "a"})
			return err
		},
	} {
		if err := call(); !errors.Is(err, protocol.ErrSwitched) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
