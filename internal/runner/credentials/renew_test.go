package credentials

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/dev/clouds"
	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/workflow"
)

// jwtOf returns an unsigned token with a lifetime.
func jwtOf(number int, issued time.Time, lifetime time.Duration) string {
	payload := fmt.Sprintf(`{"iss":"https://i","sub":"s","aud":["acme"],"jti":"%d","iat":%d,"exp":%d}`, number, issued.Unix(), issued.Add(lifetime).Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

// issuing is a server whose clock is ahead of this host's.
type issuing struct {
	ahead time.Duration

	mu    sync.Mutex
	times []time.Time
	err   error
}

func (s *issuing) IdentityToken(context.Context, string) (protocol.IdentityToken, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return protocol.IdentityToken{}, s.err
	}
	s.times = append(s.times, time.Now())
	at := time.Now().Add(s.ahead)
	return protocol.IdentityToken{Token: jwtOf(len(s.times), at, 15*time.Minute), ExpiresAt: at.Add(15 * time.Minute)}, nil
}

func (s *issuing) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *issuing) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.times)
}

// running is a keeper that renews its token in a bubble.
type running struct {
	*Keeper
	masks   *redact.Set
	mu      sync.Mutex
	notices []string
}

func (r *running) logged() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.notices)
}

func keep(t *testing.T, s Server, token string) *running {
	t.Helper()
	settings := awsSettings()
	r := &running{masks: redact.New()}
	var err error
	r.Keeper, err = New(Options{
		Settings: &settings, Token: token, Server: s, JobDir: t.TempDir(), Mask: maskIn(r.masks), Log: quiet(),
		Notify: func(line string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.notices = append(r.notices, line)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var owned sync.WaitGroup
	owned.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		owned.Wait()
		r.Close()
	})
	return r
}

// TestTokenStaysFresh checks that the token in the file is never older than a third of its
// lifetime, for hours, and regardless of the host's clock.
func TestTokenStaysFresh(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &issuing{ahead: ahead}
				r := keep(t, s, jwtOf(0, time.Now().Add(ahead), 15*time.Minute))
				for began := time.Now(); time.Since(began) < 3*time.Hour; time.Sleep(time.Minute) {
					synctest.Wait()
					data, err := os.ReadFile(r.path(fileToken))
					if err != nil {
						t.Fatal(err)
					}
					issued := time.Unix(parseClaims(string(data)).IssuedAt, 0).Add(-ahead)
					if age := time.Since(issued); age > 5*time.Minute {
						t.Fatalf("after %s, the token in the file is %s old", time.Since(began), age)
					}
					if text := string(data); r.current().text != text || r.ForStep(t.Context())[EnvToken] != text || strings.Contains(r.masks.String(text), text) {
						t.Fatal("the token in the file differs from the environment's, or is not masked")
					}
				}
				if n := s.count(); n < 36 || n > 50 {
					t.Errorf("the server issued %d tokens in 3 hours", n)
				}
				if got := r.logged(); len(got) > 0 {
					t.Errorf("the log has %q", got)
				}
			})
		})
	}
}

// TestOutage checks that an outage that is shorter than the lifetime goes unnoticed, and that a
// longer one is logged once, when it matters.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &issuing{}
		r := keep(t, s, jwtOf(0, time.Now(), 15*time.Minute))
		s.fail(errors.New("no route to the server"))
		time.Sleep(10 * time.Minute)
		s.fail(nil)
		time.Sleep(time.Minute)
		if got := r.logged(); len(got) > 0 || s.count() != 1 {
			t.Fatalf("after a short outage: %q, %d tokens", got, s.count())
		}
		s.fail(errors.New("no route to the server"))
		time.Sleep(time.Hour)
		got := r.logged()
		if len(got) != 1 || !strings.HasPrefix(got[0], "warning: the deployment's identity token expired at ") || !strings.Contains(got[0], "no route to the server") {
			t.Fatalf("after a long outage: %q", got)
		}
		if _, err := r.freshToken(t.Context()); err == nil || !strings.Contains(err.Error(), "expired") {
			t.Errorf("an expired token was used: %v", err)
		}
		s.fail(nil)
		time.Sleep(time.Minute)
		if got := r.logged(); len(got) != 2 || !strings.Contains(got[1], "was renewed") || s.count() < 2 {
			t.Errorf("after the outage: %q, %d tokens", got, s.count())
		}
	})
}

// TestStockServer checks that the token of the launch is used until it expires if the server cannot
// renew it.
func TestStockServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &issuing{err: &protocol.APIError{Code: 404}}
		first := jwtOf(0, time.Now(), 15*time.Minute)
		r := keep(t, s, first)
		time.Sleep(14 * time.Minute)
		if identity, err := r.freshToken(t.Context()); err != nil || identity.text != first || len(r.logged()) > 0 {
			t.Fatalf("%v, %q", err, r.logged())
		}
		time.Sleep(10 * time.Hour)
		if got := r.logged(); len(got) != 1 || !strings.Contains(got[0], "expired at") {
			t.Errorf("the log has %q", got)
		}
	})
}

// dying is a server whose tokens have no lifetime.
type dying struct{ issuing }

func (s *dying) IdentityToken(ctx context.Context, audience string) (protocol.IdentityToken, error) {
	answer, err := s.issuing.IdentityToken(ctx, audience)
	return protocol.IdentityToken{Token: answer.Token[len("e30."):]}, err
}

// expired is an AWS whose credentials have expired by this host's clock.
type expired struct{ calls atomic.Int32 }

func (e *expired) RoundTrip(*http.Request) (*http.Response, error) {
	body := fmt.Sprintf("<R><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>AKIA%06d</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>"+
		"<SessionToken>session</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></R>",
		e.calls.Add(1), time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{}}, nil
}

// TestRenewalsOfExpiredCredentialsArePaced checks that wrong clocks and lifetimes cause no flood of
// requests, each of which would also add secrets to the masks.
func TestRenewalsOfExpiredCredentialsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &dying{}
		r := keep(t, s, jwtOf(0, time.Now(), 15*time.Minute))
		cloud := &expired{}
		role := &awsRole{caller: &caller{&http.Client{Transport: cloud}}, endpoint: "https://sts.example/", config: r.path(fileConfig)}
		if err := r.assume(t.Context(), role, r.current()); err != nil {
			t.Fatal(err)
		}
		r.Keeper.mu.Lock()
		r.aws = role
		r.Keeper.mu.Unlock()
		time.Sleep(10 * time.Minute)
		if n := s.count(); n < 2 || n > 60 {
			t.Errorf("the server issued %d tokens in 10 minutes", n)
		}
		if n := cloud.calls.Load(); n < 2 || n > 12 {
			t.Errorf("AWS issued %d credentials in 10 minutes", n)
		}
	})
}

// TestUnknownTokens checks that a token that is not a JWT is used as it is.
func TestUnknownTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &issuing{}
		r := keep(t, s, "opaque-token-123456")
		time.Sleep(24 * time.Hour)
		if got := r.ForStep(t.Context())[EnvToken]; got != "opaque-token-123456" || s.count() != 0 {
			t.Errorf("got %q, %d tokens", got, s.count())
		}
	})
}

// TestStepsGetNewCredentials checks that a step gets credentials with their full lifetime, that
// failing to renew them does not fail the step, and that the log explains their expiry.
func TestStepsGetNewCredentials(t *testing.T) {
	f := newFixture(t)
	k, _, err := f.fetch(awsSettings())
	if err != nil {
		t.Fatal(err)
	}
	first := k.ForStep(t.Context())["AWS_ACCESS_KEY_ID"]
	k.StepEnded()
	if again := k.ForStep(t.Context())["AWS_ACCESS_KEY_ID"]; again != first {
		t.Error("credentials that are seconds old were replaced")
	}
	age := func() {
		k.aws.mu.Lock()
		defer k.aws.mu.Unlock()
		k.aws.obtained = k.aws.obtained.Add(-time.Hour)
	}
	age()
	second := k.ForStep(t.Context())["AWS_ACCESS_KEY_ID"]
	if second == first || second == "" {
		t.Error("a later step got old credentials")
	}
	age()
	f.clouds.Trust(func(tr *clouds.Trust) { tr.Subject = "other" })
	if third := k.ForStep(t.Context())["AWS_ACCESS_KEY_ID"]; third != second {
		t.Error("after a failed renewal, the step lacks credentials that are still valid")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.notices) != 1 || !strings.Contains(f.notices[0], "could not be renewed and expire at") {
		t.Errorf("the log has %q", f.notices)
	}
}

func TestExpiryIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := keep(t, &issuing{}, jwtOf(0, time.Now(), 15*time.Minute))
		role := &awsRole{settings: workflow.OIDCAWS{RoleARN: "r"}, credentials: awsCredentials{AccessKeyID: "a", Expiration: time.Now().Add(time.Hour)}, obtained: time.Now()}
		r.setAlarm(role)
		time.Sleep(59 * time.Minute)
		r.StepEnded()
		time.Sleep(time.Hour)
		if got := r.logged(); len(got) > 0 {
			t.Fatalf("after the step: %q", got)
		}
		role.credentials.Expiration = time.Now().Add(time.Hour)
		r.setAlarm(role)
		time.Sleep(3 * time.Hour)
		if got := r.logged(); len(got) != 1 || !strings.Contains(got[0], "AWS credentials of this step expired at") || !strings.Contains(got[0], "AWS_PROFILE to pulumi-oidc") {
			t.Errorf("got %q", got)
		}
	})
}

// maskIn returns a function that masks renewed values in a set.
func maskIn(set *redact.Set) func(...redact.Secret) error {
	return func(secrets ...redact.Secret) error { return set.Renew(context.Background(), secrets...) }
}
