package protocol_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// roundTripper is a server without sockets, for tests with a fake clock.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func reply(code int, body string, header ...string) *http.Response {
	resp := &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return resp
}

func fakeClient(t *testing.T, rt roundTripper) *protocol.Client {
	t.Helper()
	c, err := protocol.NewClient(protocol.Options{
		BaseURL:    "http://server",
		HTTPClient: &http.Client{Transport: rt},
		Retry:      protocol.Retry{Count: 2, Wait: 20 * time.Second, MaxWait: 2 * time.Minute},
		Breaker:    protocol.Breaker{Failures: 2, Timeout: 10 * time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestBreakerProbesAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upAt := time.Now().Add(45 * time.Second)
		var polls, probes int
		var probedAt []time.Time
		c := fakeClient(t, func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/api/capabilities" {
				probes++
				probedAt = append(probedAt, time.Now())
				if r.Header.Get("Authorization") != "" {
					t.Error("the probe carries a token")
				}
			} else {
				polls++
			}
			if time.Now().Before(upAt) {
				return nil, errors.New("connection refused")
			}
			return reply(204, ""), nil
		})
		poll := func() error {
			_, err := c.Poll(t.Context(), secret, protocol.PollRequest{})
			return err
		}
		for range 2 {
			if err := poll(); err == nil || errors.Is(err, protocol.ErrCircuitOpen) {
				t.Fatalf("got %v", err)
			}
		}
		if err := poll(); !errors.Is(err, protocol.ErrCircuitOpen) || polls != 2 {
			t.Fatalf("got %v after %d polls", err, polls)
		}
		// The breaker does not guard the calls of running jobs.
		if _, err := c.Job("j", secret).Heartbeat(t.Context(), protocol.PhaseRunning); errors.Is(err, protocol.ErrCircuitOpen) {
			t.Error("the breaker refused a heartbeat")
		}
		start := time.Now()
		if err := c.AwaitRecovery(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 45*time.Second || took > 2*time.Minute {
			t.Errorf("the recovery was seen after %s, %d probes", took, probes)
		}
		for i := 2; i < len(probedAt)-1; i++ {
			if gap := probedAt[i].Sub(probedAt[i-1]); gap < time.Second {
				t.Errorf("probes %d and %d are %s apart", i-1, i, gap)
			}
		}
		if probes < 3 || probes > 8 {
			t.Errorf("%d probes", probes)
		}
		if err := poll(); err != nil {
			t.Errorf("after the recovery: %v", err)
		}
	})
}

func TestBreakerTimeoutLetsAFullPollThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		c := fakeClient(t, func(r *http.Request) (*http.Response, error) {
			if r.URL.Path != "/api/capabilities" {
				polls++
			}
			return reply(503, ""), nil
		})
		for range 2 {
			_, _ = c.Poll(t.Context(), secret, protocol.PollRequest{})
		}
		start := time.Now()
		if err := c.AwaitRecovery(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start).Round(time.Second); took != 10*time.Minute {
			t.Errorf("waited %s", took)
		}
		if _, err := c.Poll(t.Context(), secret, protocol.PollRequest{}); errors.Is(err, protocol.ErrCircuitOpen) || polls != 3 {
			t.Errorf("got %v after %d polls", err, polls)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.AwaitRecovery(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v: the failed poll opens the breaker again", err)
		}
	})
}

func TestRefusalsDoNotOpenTheBreaker(t *testing.T) {
	c := fakeClient(t, func(*http.Request) (*http.Response, error) { return reply(401, ""), nil })
	for range 5 {
		if _, err := c.Poll(t.Context(), secret, protocol.PollRequest{}); protocol.StatusCode(err) != 401 {
			t.Fatalf("got %v", err)
		}
	}
}

func TestOurOwnCancellationDoesNotOpenTheBreaker(t *testing.T) {
	c := fakeClient(t, func(r *http.Request) (*http.Response, error) {
		if r.Context().Err() != nil {
			return nil, r.Context().Err()
		}
		return reply(204, ""), nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 5 {
		if _, err := c.Poll(ctx, secret, protocol.PollRequest{}); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
	}
	if _, err := c.Poll(t.Context(), secret, protocol.PollRequest{}); err != nil {
		t.Error(err)
	}
}

func TestRetryAfterIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c := fakeClient(t, func(*http.Request) (*http.Response, error) {
			calls++
			if calls == 1 {
				return reply(429, "", "Retry-After", "86400"), nil
			}
			return reply(200, `"running"`), nil
		})
		start := time.Now()
		status, err := c.Status(t.Context(), secret, "d")
		if err != nil || status != workflow.StatusRunning {
			t.Fatalf("got %q, %v", status, err)
		}
		if took := time.Since(start); took < 2*time.Minute || took > 150*time.Second {
			t.Errorf("waited %s, want a little more than request_retry_max_wait", took)
		}
	})
}

// TestJobsNeverOpenTheBreaker checks that the client sends a poll even after the calls of a running
// job have failed.
func TestJobsNeverOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		c := fakeClient(t, func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/poll") {
				polls++
			}
			return reply(http.StatusBadGateway, "away"), nil
		})
		job := c.Job("job", "token")
		for range 20 {
			_, heartbeat := job.Heartbeat(t.Context(), protocol.PhaseRunning)
			_, log := job.PutLog(t.Context(), 1, 0, []byte("x"), false)
			lines := job.PostLogLines(t.Context(), 1, protocol.LogLines{})
			state := job.StepStatus(t.Context(), 1, protocol.StepStatusRequest{Status: workflow.StepRunning})
			result := job.Result(t.Context(), protocol.ResultRequest{})
			for _, err := range []error{heartbeat, log, lines, state, result} {
				if protocol.StatusCode(err) != http.StatusBadGateway {
					t.Fatalf("got %v", err)
				}
			}
		}
		for range 2 {
			if _, err := c.Poll(t.Context(), "token", protocol.PollRequest{}); protocol.StatusCode(err) != http.StatusBadGateway {
				t.Errorf("poll: %v", err)
			}
		}
		if _, err := c.Poll(t.Context(), "token", protocol.PollRequest{}); !errors.Is(err, protocol.ErrCircuitOpen) || polls != 2 {
			t.Errorf("after two failed polls: %v, %d sent", err, polls)
		}
	})
}

// TestRefusedPollsOfServersWithoutSignatures checks that the form of an unsigned refusal determines
// how soon the client polls again. If the client wrongly treats the refusal as permanent, no job is
// lost.
func TestRefusedPollsOfServersWithoutSignatures(t *testing.T) {
	const page = "<html><body>503 backend</body></html>"
	for _, tt := range []struct {
		code int
		body string
		want bool
	}{
		{401, `{"code":401,"message":"Unauthorized"}`, true},
		{403, `{"code":403,"message":"Forbidden"}`, true},
		{404, `{"code":404,"message":"Not Found"}`, true},
		{401, `{"error":"invalid_client"}`, true},
		{400, page, true},
		{410, ``, true},
		{401, page, false},
		{403, ``, false},
		{404, `404 page not found`, false},
		{404, `{"message":"no route"}`, false},
		{429, `{"code":429,"message":"slow down"}`, false},
		{500, `{"code":500,"message":"oops"}`, false},
		{503, page, false},
	} {
		c := fakeClient(t, func(*http.Request) (*http.Response, error) { return reply(tt.code, tt.body), nil })
		_, err := c.Poll(t.Context(), "token", protocol.PollRequest{})
		if got := protocol.Permanent(err); got != tt.want || protocol.StatusCode(err) != tt.code {
			t.Errorf("%d %s: permanent %t, want %t; %v", tt.code, tt.body, got, tt.want, err)
		}
	}
}
