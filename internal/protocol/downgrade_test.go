package protocol_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/protocol"
)

// TestServersMayStopSigning simulates a rollback to a server that does not sign, or a new proxy that
// strips unknown headers. The client accepts unsigned acknowledgements only after ten minutes and
// twenty responses in a form that only this API has. A signed response restarts the count.
func TestServersMayStopSigning(t *testing.T) {
	for _, tt := range []struct {
		name  string
		every time.Duration
		taken int // the attempt that is accepted
	}{
		{"fast", time.Second, 601},
		{"slow", time.Minute, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signs := true
				c := fakeClient(t, func(r *http.Request) (*http.Response, error) {
					body := `{"received":1,"durable":1}`
					if strings.HasSuffix(r.URL.Path, "/result") {
						body = `{}`
					}
					if signs {
						return signedReply(r, http.StatusOK, body), nil
					}
					return reply(http.StatusOK, body), nil
				})
				job := c.Job("job", secret)
				put := func() error {
					_, err := job.PutLog(t.Context(), 1, 0, []byte("x"), false)
					return err
				}
				for range 3 {
					signs = true
					if err := put(); err != nil {
						t.Fatal(err)
					}
					signs = false
					for range 5 {
						if err := put(); !protocol.Foreign(err) {
							t.Fatalf("unsigned: %v", err)
						}
						time.Sleep(5 * time.Minute / 2)
					}
				}
				signs = true
				_ = put()
				signs = false
				for try := 1; try <= tt.taken; try++ {
					if err := put(); (err == nil) != (try == tt.taken) {
						t.Fatalf("try %d: %v", try, err)
					}
					time.Sleep(tt.every)
				}
				if err := job.Result(t.Context(), protocol.ResultRequest{}); err != nil || c.Signed() {
					t.Errorf("result: %v, signed: %t", err, c.Signed())
				}
				signs = true
				_ = put()
				if signs = false; !c.Signed() || !protocol.Foreign(put()) {
					t.Error("the server signs again, but its signature is not expected again")
				}
			})
		})
	}
}

// TestProxiesNeverPassForAServerThatStoppedSigning checks that the client never accepts a proxy's
// unsigned responses, no matter for how long they arrive.
func TestProxiesNeverPassForAServerThatStoppedSigning(t *testing.T) {
	for _, answer := range []struct {
		code int
		body string
	}{
		{200, ""},
		{200, "{}"},
		{200, "null"},
		{200, "<html>"},
		{200, `{"status":"ok"}`},
		{200, `"ok"`},
		{200, `[]`},
		{204, ""},
		{400, `{"code":400,"message":"Bad Request"}`},
		{401, `{"code":401}`},
		{404, `{"code":404,"message":"x"}`},
		{410, `{"code":410}`},
		{409, `{"code":409,"received":0,"durable":0}`},
		{503, `{"code":503}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := fakeClient(t, func(*http.Request) (*http.Response, error) { return reply(answer.code, answer.body), nil })
			c.ExpectSigned()
			job := c.Job("job", secret)
			for range 100 {
				_, beat := job.Heartbeat(t.Context(), protocol.PhaseRunning)
				_, log := job.PutLog(t.Context(), 1, 0, []byte("x"), false)
				_, poll := c.Poll(t.Context(), secret, protocol.PollRequest{Wait: time.Second})
				_, status := c.Status(t.Context(), secret, "d")
				for _, err := range []error{beat, log, poll, status, job.Result(t.Context(), protocol.ResultRequest{})} {
					if err == nil || protocol.Permanent(err) {
						t.Fatalf("%d %q: %v", answer.code, answer.body, err)
					}
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

// TestASignatureWithoutTheTokenIsNotFinal checks that a job's calls continue after a signed 401,
// 403 or 404. A server signs with the token of the request. A server with the wrong data, or one
// that a load balancer chose by mistake, therefore signs these responses too. Only a server that
// knows the job responds with 410.
func TestASignatureWithoutTheTokenIsNotFinal(t *testing.T) {
	for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound} {
		synctest.Test(t, func(t *testing.T) {
			c := fakeClient(t, func(r *http.Request) (*http.Response, error) { return signedReply(r, code, `{"code":401}`), nil })
			job := c.Job("job", secret)
			for try := 1; try <= 20; try++ {
				_, err := job.Heartbeat(t.Context(), protocol.PhaseRunning)
				if protocol.Permanent(err) != (try == 20) || !protocol.Refused(err) {
					t.Fatalf("%d, try %d: permanent %t, refused %t", code, try, protocol.Permanent(err), protocol.Refused(err))
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

// TestRedirectsKeepTheMethod checks that the client rejects a redirect that turns a POST into a
// GET, whose response would acknowledge nothing.
func TestRedirectsKeepTheMethod(t *testing.T) {
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect} {
		var moved atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/moved" {
				http.Redirect(w, r, "/moved", code)
				return
			}
			moved.Add(1)
			signer := protocol.SignAnswers(w, r)
			if r.Method != http.MethodPost {
				signer.WriteHeader(http.StatusGone)
			}
			_, _ = signer.Write([]byte("{}"))
		}))
		c, err := protocol.NewClient(protocol.Options{BaseURL: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		job := c.Job("job", secret)
		err = job.Result(t.Context(), protocol.ResultRequest{})
		if code == http.StatusTemporaryRedirect {
			if err != nil {
				t.Errorf("%d: %v", code, err)
			}
		} else if err == nil || protocol.Permanent(err) || job.Gone() || moved.Load() != 0 || !strings.Contains(err.Error(), "service_url") {
			t.Errorf("%d: %v, after %d requests elsewhere", code, err, moved.Load())
		}
		c.Close()
		server.Close()
	}
}

// TestTokensFitIntoHeaders checks that the client rejects a job whose token is invalid in a header.
// Such a job would otherwise occupy its slot for a day.
func TestTokensFitIntoHeaders(t *testing.T) {
	for _, token := range []string{`a\nb`, `a b`, `\u0000`, `t\u00f6ken`} {
		c := fakeClient(t, func(r *http.Request) (*http.Response, error) {
			return signedReply(r, http.StatusOK, `{"jobID":"j","jobToken":"`+token+`"}`), nil
		})
		if result, err := c.Poll(t.Context(), secret, protocol.PollRequest{}); err == nil {
			t.Errorf("%s: %+v", token, result)
		}
	}
}
