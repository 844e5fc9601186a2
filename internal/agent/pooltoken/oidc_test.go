package pooltoken

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
)

type issued struct {
	at   time.Duration
	form url.Values
}

// fixture is a token source and its server, which responds immediately. Both use a fake clock.
type fixture struct {
	t     *testing.T
	file  string
	oidc  *OIDC
	log   *bytes.Buffer
	start time.Time

	mu        sync.Mutex
	exchanges []issued
	problems  []string // the reported problems; "" means no problem
	life      int      // lifetime of the tokens, in seconds
	fail      func(n int, subject string) (status int, body string)
}

// RoundTrip simulates the server.
func (w *fixture) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	if r.Method != http.MethodPost || r.URL.Path != "/api/oauth/token" || r.Header.Get("Authorization") != "" ||
		r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		w.t.Errorf("%s %s with %v", r.Method, r.URL.Path, r.Header)
	}
	w.exchanges = append(w.exchanges, issued{time.Since(w.start), form})
	status, text := http.StatusOK, fmt.Sprintf(
		`{"access_token":"pul-access-%d","issued_token_type":"urn:pulumi:token-type:access_token:runner","token_type":"token","expires_in":%d,"scope":""}`,
		len(w.exchanges), w.life,
	)
	if w.fail != nil {
		if code, answer := w.fail(len(w.exchanges), form.Get("subject_token")); code != 0 {
			status, text = code, answer
		}
	}
	if status < 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

func (w *fixture) write(content string) {
	w.t.Helper()
	if err := os.WriteFile(w.file, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.exchanges)
}

func (w *fixture) problem() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.problems) == 0 {
		return ""
	}
	return w.problems[len(w.problems)-1]
}

func (w *fixture) token(within time.Duration) string {
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	token, err := w.oidc.Token(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		w.t.Error(err)
	}
	return token
}

func inFixture(t *testing.T, setUp, part func(w *fixture)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &fixture{t: t, file: filepath.Join(dir, "token"), log: &bytes.Buffer{}, start: time.Now(), life: 3600}
		client, err := protocol.NewClient(protocol.Options{BaseURL: "http://server", HTTPClient: &http.Client{Transport: w}})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		logger := logrus.New()
		logger.SetOutput(w.log)
		w.oidc = NewOIDC(Options{
			Client: client, File: w.file, Organization: "acme", PoolID: "pool-1", Life: 90 * time.Minute,
			Problem: func(err error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				text := ""
				if err != nil {
					text = err.Error()
				}
				w.problems = append(w.problems, text)
			},
			Log: logrus.NewEntry(logger),
		})
		setUp(w)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.oidc.Run(ctx)
		}()
		part(w)
		cancel()
		<-done
	})
}

func TestExchange(t *testing.T) {
	setUp := func(w *fixture) {
		w.write("header.payload.signature\n")
		if at, good := w.oidc.Expiry(); good || !at.IsZero() {
			t.Errorf("before the first exchange, a token expires at %s, good: %v", at, good)
		}
	}
	inFixture(t, setUp, func(w *fixture) {
		if got := w.token(time.Second); got != "pul-access-1" {
			t.Fatalf("the token is %q", got)
		}
		if at, good := w.oidc.Expiry(); !good || !at.After(time.Now()) {
			t.Errorf("the token expires at %s, good: %v", at, good)
		}
		want := url.Values{
			"grant_type":           {"urn:ietf:params:oauth:grant-type:token-exchange"},
			"audience":             {"urn:pulumi:org:acme"},
			"subject_token_type":   {"urn:ietf:params:oauth:token-type:id_token"},
			"subject_token":        {"header.payload.signature"},
			"requested_token_type": {"urn:pulumi:token-type:access_token:runner"},
			"scope":                {"runner:pool-1"},
			"expiration":           {"5400"},
		}
		if got := w.exchanges[0].form; got.Encode() != want.Encode() {
			t.Errorf("requested\n%v, want\n%v", got, want)
		}
		if got := w.oidc.Values(); !slices.Equal(got, []string{"header.payload.signature", "pul-access-1"}) {
			t.Errorf("to be masked: %q", got)
		}
	})
}

func TestRenewalReadsTheFileAgain(t *testing.T) {
	inFixture(t, func(w *fixture) { w.write("first.subject.token") }, func(w *fixture) {
		w.token(time.Second)
		w.write("second.subject.token")
		time.Sleep(44 * time.Minute)
		if n := w.count(); n != 1 {
			t.Fatalf("%d exchanges before three quarters of the token's life", n)
		}
		time.Sleep(8 * time.Minute)
		if got := w.token(time.Second); got != "pul-access-2" || w.count() != 2 {
			t.Fatalf("the token is %q after %d exchanges", got, w.count())
		}
		if got := w.exchanges[1].form.Get("subject_token"); got != "second.subject.token" {
			t.Errorf("exchanged %q", got)
		}
		// The previous token remains valid for some minutes, so it must still be masked.
		if got := w.oidc.Values(); !slices.Contains(got, "pul-access-1") || !slices.Contains(got, "first.subject.token") {
			t.Errorf("to be masked: %q", got)
		}
		time.Sleep(20 * time.Minute)
		if got := w.oidc.Values(); slices.Contains(got, "pul-access-1") {
			t.Errorf("the expired token is still kept: %q", got)
		}
	})
}

func TestOldTokenBridgesAnOutage(t *testing.T) {
	away := func(w *fixture, from, to time.Duration) {
		w.fail = func(int, string) (int, string) {
			if at := time.Since(w.start); at >= from && at < to {
				return -1, ""
			}
			return 0, ""
		}
	}
	inFixture(t, func(w *fixture) { w.write("a.b.c"); away(w, 10*time.Minute, 58*time.Minute) }, func(w *fixture) {
		w.token(time.Second)
		time.Sleep(57 * time.Minute)
		if got := w.token(time.Millisecond); got != "pul-access-1" {
			t.Errorf("during the outage the token is %q", got)
		}
		if got := w.problem(); !strings.Contains(got, "connection refused") {
			t.Errorf("the reported problem is %q", got)
		}
		time.Sleep(2 * time.Minute)
		if got := w.token(time.Millisecond); got == "pul-access-1" || got == "" {
			t.Errorf("after the outage the token is %q", got)
		}
		if got := w.problem(); got != "" {
			t.Errorf("the reported problem is still %q", got)
		}
		if n := strings.Count(w.log.String(), "obtaining a pool token failed"); n != 1 {
			t.Errorf("the outage was logged %d times:\n%s", n, w.log)
		}
		if n := w.count(); n > 60 {
			t.Errorf("%d exchanges in 15 minutes of an outage", n)
		}
	})
	// If an outage outlasts the token, no caller receives the expired token.
	inFixture(t, func(w *fixture) { w.write("a.b.c"); away(w, 10*time.Minute, 90*time.Minute) }, func(w *fixture) {
		w.token(time.Second)
		time.Sleep(61 * time.Minute)
		if got := w.token(time.Second); got != "" {
			t.Errorf("got the expired token %q", got)
		}
		time.Sleep(28 * time.Minute)
		if got := w.token(2 * time.Minute); got == "" {
			t.Error("no token after the outage")
		}
	})
}

func TestRefusedTokenIsRenewedAtOnce(t *testing.T) {
	inFixture(t, func(w *fixture) { w.write("a.b.c") }, func(w *fixture) {
		w.token(time.Second)
		// After the machine has been asleep, the token still looks valid to the agent.
		time.Sleep(20 * time.Minute)
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				if !w.oidc.Refused("pul-access-1") {
					t.Error("Refused returned false")
				}
				if got := w.token(time.Second); got != "pul-access-2" {
					t.Errorf("the token is %q", got)
				}
			})
		}
		callers.Wait()
		if n := w.count(); n != 2 {
			t.Errorf("%d exchanges for one rejection", n)
		}
		// A late rejection of the previous token changes nothing.
		w.oidc.Refused("pul-access-1")
		time.Sleep(time.Minute)
		if n := w.count(); n != 2 {
			t.Errorf("%d exchanges after a late rejection", n)
		}
	})
}

func TestTokensThatAreAlwaysRefusedAreNotSpunOn(t *testing.T) {
	inFixture(t, func(w *fixture) { w.write("a.b.c") }, func(w *fixture) {
		for end := time.Now().Add(time.Hour); time.Now().Before(end); {
			if token := w.token(10 * time.Minute); token != "" {
				w.oidc.Refused(token)
			}
		}
		if n := w.count(); n < 12 || n > 30 {
			t.Errorf("%d exchanges in an hour", n)
		}
	})
}

func TestShortLivesAreRenewed(t *testing.T) {
	inFixture(t, func(w *fixture) { w.write("a.b.c"); w.life = 5 }, func(w *fixture) {
		for range 120 {
			if w.token(time.Millisecond) == "" && w.count() > 0 {
				t.Fatalf("no token after %s", time.Since(w.start))
			}
			time.Sleep(500 * time.Millisecond)
		}
		if n := w.count(); n < 12 || n > 20 {
			t.Errorf("%d exchanges of tokens of 5 s in a minute", n)
		}
	})
}

func TestFileIsWaitedFor(t *testing.T) {
	inFixture(t, func(*fixture) {}, func(w *fixture) {
		if got := w.token(10 * time.Minute); got != "" {
			t.Fatalf("got %q for no file", got)
		}
		if got := w.problem(); !strings.Contains(got, w.file) || !strings.Contains(got, "does not exist") {
			t.Errorf("the reported problem is %q", got)
		}
		if n := strings.Count(w.log.String(), "level=warning"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, w.log)
		}
		w.write("a.b.c")
		if got := w.token(10 * time.Second); got != "pul-access-1" {
			t.Errorf("got %q", got)
		}
		synctest.Wait() // the problem is cleared just after the token is published
		if got := w.problem(); got != "" {
			t.Errorf("the reported problem is still %q", got)
		}
	})
}

func TestServerThatRefusesSaysWhy(t *testing.T) {
	inFixture(t, func(w *fixture) {
		w.write("bad.subject.token")
		w.fail = func(_ int, subject string) (int, string) {
			if subject == "good.subject.token" {
				return 0, ""
			}
			return http.StatusBadRequest, `{"error":"invalid_grant","error_description":"no policy allows sub=ci for bad.subject.token"}`
		}
	}, func(w *fixture) {
		if got := w.token(30 * time.Minute); got != "" {
			t.Fatalf("got %q", got)
		}
		if n := w.count(); n < 6 || n > 20 {
			t.Errorf("%d exchanges in half an hour of rejections", n)
		}
		got := w.problem()
		if !strings.Contains(got, "no policy allows sub=ci") || strings.Contains(got, "bad.subject.token") || strings.Contains(w.log.String(), "bad.subject.token") {
			t.Errorf("the reported problem is %q; the log:\n%s", got, w.log)
		}
		// The agent soon tries a new token in the file, regardless of the pause.
		w.write("good.subject.token")
		if got := w.token(10 * time.Second); got == "" {
			t.Error("the new token in the file is not tried")
		}
	})
}

func TestAnswersThatAreNoTokens(t *testing.T) {
	for _, answer := range []string{``, `{}`, `<html>`, `{"access_token":"two words","expires_in":60}`, `{"access_token":"` + strings.Repeat("x", 9000) + `"}`} {
		inFixture(t, func(w *fixture) {
			w.write("a.b.c")
			w.fail = func(int, string) (int, string) { return http.StatusOK, answer }
		}, func(w *fixture) {
			if got := w.token(time.Minute); got != "" {
				t.Errorf("%q for the response %.40s", got, answer)
			}
			if w.problem() == "" {
				t.Errorf("no problem is shown for the response %.40s", answer)
			}
		})
	}
	// If the response contains no lifetime, the requested lifetime applies.
	inFixture(t, func(w *fixture) {
		w.write("a.b.c")
		w.fail = func(int, string) (int, string) { return http.StatusOK, `{"access_token":"pul-1"}` }
	}, func(w *fixture) {
		w.token(time.Second)
		time.Sleep(time.Hour)
		if n := w.count(); n != 1 {
			t.Errorf("%d exchanges in an hour", n)
		}
	})
}
