package protocol_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// signedReply returns a signing server's response to r.
func signedReply(r *http.Request, code int, body string) *http.Response {
	w := httptest.NewRecorder()
	signer := protocol.SignAnswers(w, r)
	signer.WriteHeader(code)
	_, _ = signer.Write([]byte(body))
	signer.Finish()
	return w.Result()
}

func TestOnlyTheServersOwnAnswersAreFinal(t *testing.T) {
	var answer func(r *http.Request) *http.Response
	transport := func(r *http.Request) (*http.Response, error) { return answer(r), nil }
	beat := func(c *protocol.Client) error {
		_, err := c.Job("job", secret).Heartbeat(t.Context(), protocol.PhaseRunning)
		return err
	}
	for _, code := range []int{400, 401, 403, 404, 410} {
		c := fakeClient(t, transport)
		answer = func(*http.Request) *http.Response { return reply(code, `{"code":400,"message":"unsigned"}`) }
		if err := beat(c); protocol.Permanent(err) || protocol.Foreign(err) || c.Signed() {
			t.Errorf("unsigned %d from a server not known to sign: %v", code, err)
		}
		answer = func(r *http.Request) *http.Response { return signedReply(r, code, "whatever") }
		if err := beat(c); protocol.Permanent(err) != (code == 400 || code == 410) || protocol.StatusCode(err) != code || !c.Signed() {
			t.Errorf("signed %d: %v", code, err)
		}
		if job := c.Job("job", secret); true {
			_, err := job.Heartbeat(t.Context(), protocol.PhaseRunning)
			if protocol.Gone(err) != (code == 410) || job.Gone() != (code == 410) {
				t.Errorf("%d: gone %t and %t", code, protocol.Gone(err), job.Gone())
			}
		}
		for name, foreign := range map[string]func(r *http.Request) *http.Response{
			"unsigned":     func(*http.Request) *http.Response { return reply(code, `{"code":400}`) },
			"other status": func(r *http.Request) *http.Response { a := signedReply(r, 502, ""); a.StatusCode = code; return a },
			"an echo": func(r *http.Request) *http.Response {
				a := reply(code, "")
				a.Header.Set(protocol.HeaderAnswer, r.Header.Get(protocol.HeaderNonce))
				return a
			},
			"other token": func(r *http.Request) *http.Response {
				other := r.Clone(t.Context())
				other.Header.Set("Authorization", "token other")
				return signedReply(other, code, "")
			},
			"an earlier nonce": func(r *http.Request) *http.Response {
				other := r.Clone(t.Context())
				other.Header.Set(protocol.HeaderNonce, "earlier")
				return signedReply(other, code, "")
			},
		} {
			answer = foreign
			if err := beat(c); protocol.Permanent(err) || !protocol.Foreign(err) || protocol.Gone(err) {
				t.Errorf("%d, %s: %v", code, name, err)
			}
		}
	}
}

// TestForeignSuccesses checks that an unsigned success is not an acknowledgement if the server has
// signed before, and that any other success must have the form of an acknowledgement.
func TestForeignSuccesses(t *testing.T) {
	for _, tt := range []struct {
		code int
		body string
	}{{204, ""}, {200, ""}, {200, "{}"}, {200, "<html>sign in</html>"}, {200, `{"received":9,"durable":9}`}, {200, `{"status":"ok"}`}} {
		c := fakeClient(t, func(*http.Request) (*http.Response, error) { return reply(tt.code, tt.body), nil })
		for _, signed := range []bool{false, true} {
			if signed {
				c.ExpectSigned()
			}
			job := c.Job("job", secret)
			_, beat := job.Heartbeat(t.Context(), protocol.PhaseStarting)
			_, log := job.PutLog(t.Context(), 1, 0, []byte("x"), false)
			for name, got := range map[string]struct {
				err  error
				fine bool
			}{
				"heartbeat": {beat, tt.body == "" || tt.body[0] == '{'},
				"log":       {log, strings.Contains(tt.body, "received")},
				"lines":     {job.PostLogLines(t.Context(), 1, protocol.LogLines{}), tt.body == "" || tt.body[0] == '{'},
				"status":    {job.StepStatus(t.Context(), 1, protocol.StepStatusRequest{Status: workflow.StepRunning}), tt.body == "" || tt.body[0] == '{'},
				"result":    {job.Result(t.Context(), protocol.ResultRequest{}), tt.body == "{}"},
			} {
				if signed && !protocol.Foreign(got.err) || !signed && (got.err == nil) != got.fine || protocol.Permanent(got.err) {
					t.Errorf("%s, %d %q, signed %t: %v", name, tt.code, tt.body, signed, got.err)
				}
			}
		}
	}
}

// TestRefusalsOfServersWithoutSignatures checks that a refusal becomes final after ten minutes and
// twenty attempts.
func TestRefusalsOfServersWithoutSignatures(t *testing.T) {
	for _, tt := range []struct {
		name  string
		every time.Duration
		final int // the attempt whose refusal is final
	}{
		{"fast", time.Second, 601},
		{"slow", time.Minute, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				code := 410
				c := fakeClient(t, func(*http.Request) (*http.Response, error) { return reply(code, `{"code":410}`), nil })
				job := c.Job("job", secret)
				beat := func() error {
					_, err := job.Heartbeat(t.Context(), protocol.PhaseRunning)
					return err
				}
				for range 5 { // a different response restarts the count
					_ = beat()
					time.Sleep(5 * time.Minute)
				}
				code = 502
				_ = beat()
				code = 410
				for try := 1; try <= tt.final; try++ {
					if err := job.Result(t.Context(), protocol.ResultRequest{}); try < tt.final && protocol.Permanent(err) {
						t.Fatalf("the result was refused permanently at try %d", try)
					}
					err := beat()
					if protocol.Permanent(err) != (try == tt.final) || job.Gone() != (try == tt.final) {
						t.Fatalf("try %d: permanent %t, %v", try, protocol.Permanent(err), err)
					}
					time.Sleep(tt.every)
				}
			})
		})
	}
}

func TestSignAnswers(t *testing.T) {
	ask := func(nonce string, handler func(http.ResponseWriter)) string {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(protocol.HeaderNonce, nonce)
		r.Header.Set("Authorization", "token x")
		signer := protocol.SignAnswers(w, r)
		handler(signer)
		signer.Finish()
		return w.Header().Get(protocol.HeaderAnswer)
	}
	ok := ask("n", func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) })
	const want = "db269cb7d80f44d364d7dc4ecd2794b0b6c4f28067a97ea14085ba1bb3398e47"
	if ok != want {
		t.Errorf("the digest is %s", ok)
	}
	for name, handler := range map[string]func(http.ResponseWriter){
		"nothing":       func(http.ResponseWriter) {},
		"a body":        func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) },
		"informational": func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints); w.WriteHeader(http.StatusOK) },
	} {
		if got := ask("n", handler); got != ok {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := ask("n", func(w http.ResponseWriter) { w.WriteHeader(http.StatusGone) }); got == ok || got == "" {
		t.Errorf("another status: %q", got)
	}
	if got := ask(string(make([]byte, 200)), func(http.ResponseWriter) {}) + ask("", func(http.ResponseWriter) {}); got != "" {
		t.Errorf("a missing or overlong nonce was signed: %q", got)
	}
}
