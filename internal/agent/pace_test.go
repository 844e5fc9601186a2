package agent_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/pooltoken"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// pace runs an idle agent with a fake clock and returns each poll's time and Prefer header.
func pace(t *testing.T, span time.Duration, change func(*agent.Options), answer func(n int, r *http.Request) (*http.Response, error)) (at []time.Duration, prefers []string) {
	t.Helper()
	state := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		identity, err := instance.OpenIdentity(state)
		if err != nil {
			t.Fatal(err)
		}
		defer identity.Close()
		start := time.Now()
		var mu sync.Mutex
		client, err := protocol.NewClient(protocol.Options{
			BaseURL: "http://server",
			Breaker: protocol.Breaker{Failures: 2, Timeout: 10 * time.Minute},
			HTTPClient: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				n := len(at)
				if strings.HasSuffix(r.URL.Path, "/poll") {
					at = append(at, time.Since(start))
					prefers = append(prefers, r.Header.Get("Prefer"))
				}
				mu.Unlock()
				return answer(n, r)
			})},
		})
		if err != nil {
			t.Fatal(err)
		}
		logger := logrus.New()
		logger.SetOutput(io.Discard)
		opts := agent.Options{
			Client: client, Tokens: pooltoken.Static(fakes.PoolToken), Executor: fakes.New(), Identity: identity, Log: logrus.NewEntry(logger),
			ServiceURL: "http://server", Types: workflow.Types(), Rules: rules{}, Monitor: noMonitor{},
			Agent: config.Agent{
				MaxConcurrentJobs: 1, PollingInterval: time.Minute, RequestTimeout: 30 * time.Second, JobStatusLoopInterval: 30 * time.Second,
			},
			Retry: protocol.Retry{Wait: 20 * time.Second, MaxWait: 2 * time.Minute},
		}
		if change != nil {
			change(&opts)
		}
		a, err := agent.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- a.Run(t.Context()) }()
		time.Sleep(span)
		a.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return at, prefers
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func empty(header ...string) *http.Response {
	resp := &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return resp
}

func gaps(t *testing.T, at []time.Duration, least int, from, to time.Duration) {
	t.Helper()
	if len(at) < least {
		t.Fatalf("%d polls, want %d or more: %v", len(at), least, at)
	}
	for i := 1; i < len(at); i++ {
		if gap := at[i] - at[i-1]; gap < from || gap > to {
			t.Errorf("poll %d came %s after the previous poll, want %s to %s", i, gap, from, to)
		}
	}
}

func TestPollingInterval(t *testing.T) {
	at, prefers := pace(t, 10*time.Minute, nil, func(int, *http.Request) (*http.Response, error) { return empty(), nil })
	gaps(t, at, 9, time.Minute, 66*time.Second)
	if prefers[1] != "wait=25" {
		t.Errorf("Prefer: %q", prefers)
	}
}

// TestFirstPollIsHeldShortly checks that the server holds the first poll of a new agent, or after
// an outage, only briefly. The operator must see soon that the server accepts the agent's token.
func TestFirstPollIsHeldShortly(t *testing.T) {
	_, prefers := pace(t, 10*time.Minute, nil, func(n int, _ *http.Request) (*http.Response, error) {
		if n == 2 {
			return &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody}, nil
		}
		return empty(), nil
	})
	if len(prefers) < 5 || !slices.Equal(prefers[:5], []string{"wait=1", "wait=25", "wait=25", "wait=1", "wait=25"}) {
		t.Errorf("Prefer: %q", prefers)
	}
}

// TestServerRestarts checks that an agent polls soon again after a server that was away for 5 seconds.
func TestServerRestarts(t *testing.T) {
	var first time.Time
	back := time.Duration(-1)
	pace(t, 2*time.Minute, nil, func(_ int, r *http.Request) (*http.Response, error) {
		if first.IsZero() {
			first = time.Now()
		}
		passed := time.Since(first) - time.Minute
		if passed >= 0 && passed < 5*time.Second {
			return nil, errors.New("connection refused")
		}
		if strings.HasSuffix(r.URL.Path, "/poll") {
			if passed > 0 && back < 0 {
				back = passed - 5*time.Second
			}
			return empty("Retry-After", "1"), nil
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(`{"capabilities": []}`))}, nil
	})
	if back < 0 || back > 4500*time.Millisecond {
		t.Errorf("the agent polled again %s after the server was back", back)
	}
}

func TestRetryAfterSupersedesTheInterval(t *testing.T) {
	at, _ := pace(t, 10*time.Minute, nil, func(int, *http.Request) (*http.Response, error) { return empty("Retry-After", "7"), nil })
	gaps(t, at, 70, 7*time.Second, 7700*time.Millisecond)
}

func TestIntervalOverrideIgnoresRetryAfterAndLongPolls(t *testing.T) {
	override := func(o *agent.Options) { o.PollingIntervalOverride = true }
	at, prefers := pace(t, 10*time.Minute, override, func(int, *http.Request) (*http.Response, error) {
		return empty("Retry-After", "7", "Preference-Applied", "wait"), nil
	})
	gaps(t, at, 9, time.Minute, 66*time.Second)
	if prefers[0] != "" {
		t.Errorf("Prefer: %q", prefers[0])
	}
}

func TestHeldPollsFollowEachOther(t *testing.T) {
	at, _ := pace(t, 10*time.Minute, nil, func(_ int, r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(25 * time.Second):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		return empty("Preference-Applied", "wait"), nil
	})
	gaps(t, at, 24, 25*time.Second, 25*time.Second)
}

func TestServerThatOnlyClaimsToHoldIsNotSpunAgainst(t *testing.T) {
	at, _ := pace(t, 10*time.Minute, nil, func(int, *http.Request) (*http.Response, error) {
		return empty("Preference-Applied", "wait"), nil
	})
	if len(at) > 25 {
		t.Errorf("%d polls in 10 minutes", len(at))
	}
}

func TestOutageIsProbedAndItsEndSeenSoon(t *testing.T) {
	const outage = 5 * time.Minute
	start := time.Time{}
	at, _ := pace(t, 10*time.Minute, nil, func(int, *http.Request) (*http.Response, error) {
		if start.IsZero() {
			start = time.Now()
		}
		if time.Since(start) < outage {
			return &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{}, Body: http.NoBody}, nil
		}
		return empty(), nil
	})
	if len(at) < 3 || at[1]-at[0] > 30*time.Second {
		t.Fatalf("polls at %v", at)
	}
	if back := at[2]; back < outage || back > outage+80*time.Second {
		t.Errorf("the first poll after the outage of %s came at %s", outage, back)
	}
}

func TestRefusedTokenIsNotHammered(t *testing.T) {
	at, _ := pace(t, time.Hour, nil, func(int, *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody}, nil
	})
	if len(at) < 12 || len(at) > 50 {
		t.Errorf("%d polls in an hour", len(at))
	}
}

// TestRefusedPolls uses a server that sends one kind of rejection for half an hour. The agent must
// log the rejection once, with the remedy, poll rarely, and recover.
func TestRefusedPolls(t *testing.T) {
	const page = "<html><body>default backend - 404</body></html>"
	for _, tt := range []struct {
		name, body string
		code       int
		header     []string
		advice     string
		most       int // maximum number of polls in the half hour
	}{
		{"revoked token", `{"code":401,"message":"Unauthorized"}`, 401, nil, "was revoked", 12},
		{"deleted pool", `{"code":403,"message":"no pool"}`, 403, nil, "the pool was deleted", 12},
		{"wrong service_url", `{"code":404,"message":"Not Found"}`, 404, nil, "set service_url", 12},
		{"a console or load balancer", page, 404, nil, "set service_url", 30},
		{"rate limit", `{"code":429,"message":"slow down"}`, 429, []string{"Retry-After", "86400"}, "polling for jobs failed", 40},
		{"server error", `oops`, 500, nil, "polling for jobs failed", 40},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const outage = 30 * time.Minute
			log := &buffer{}
			var start, over time.Time
			polls := 0
			pace(t, outage+10*time.Minute, func(o *agent.Options) {
				o.Log.Logger.SetOutput(log)
			}, func(_ int, r *http.Request) (*http.Response, error) {
				if start.IsZero() {
					start = time.Now()
				}
				poll := strings.HasSuffix(r.URL.Path, "/poll")
				if time.Since(start) < outage {
					if poll {
						polls++
					}
					resp := empty(tt.header...)
					resp.StatusCode, resp.Body = tt.code, io.NopCloser(strings.NewReader(tt.body))
					return resp, nil
				}
				if poll && over.IsZero() {
					over = time.Now()
				}
				return empty(), nil
			})
			if polls < 4 || polls > tt.most {
				t.Errorf("%d polls in the outage, want 4 to %d", polls, tt.most)
			}
			if late := over.Sub(start) - outage; over.IsZero() || late > 6*time.Minute {
				t.Errorf("the first poll after the outage came %s late", late)
			}
			if n := strings.Count(log.String(), tt.advice); n != 1 {
				t.Errorf("the agent logged the rejection %d times, want once:\n%s", n, log)
			}
			if strings.Contains(log.String(), fakes.PoolToken) || strings.Contains(log.String(), "<html>") {
				t.Errorf("the log contains the token or a page:\n%s", log)
			}
		})
	}
}

// TestDrainOnTheServer lets a server report for some polls that an administrator has drained the
// agent. The agent continues to poll, and logs each change once.
func TestDrainOnTheServer(t *testing.T) {
	var out strings.Builder
	logged := func(o *agent.Options) {
		logger := logrus.New()
		logger.SetOutput(&out)
		o.Log = logrus.NewEntry(logger)
	}
	at, _ := pace(t, 10*time.Minute, logged, func(n int, r *http.Request) (*http.Response, error) {
		if got, want := r.Header.Get(protocol.HeaderAgentDrained), strconv.FormatBool(n > 2 && n < 6); got != want {
			t.Errorf("poll %d says that the agent is drained: %q, want %s", n, got, want)
		}
		if n > 1 && n < 5 {
			return empty(protocol.HeaderAgentDrained, "true"), nil
		}
		return empty(), nil
	})
	gaps(t, at, 9, time.Minute, 66*time.Second)
	for _, text := range []string{"has drained this agent on the server", "hands out jobs to this agent again"} {
		if n := strings.Count(out.String(), text); n != 1 {
			t.Errorf("the log contains %q %d times, want once:\n%s", text, n, out.String())
		}
	}
}
