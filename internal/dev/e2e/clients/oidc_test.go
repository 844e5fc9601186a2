package clients

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

// exchangeCounter is a proxy between agents and a server that counts successful exchanges and
// records every token.
type exchangeCounter struct {
	URL string

	mu      sync.Mutex
	granted int
	tokens  map[string]bool
}

func newExchangeCounter(t *testing.T, server string) *exchangeCounter {
	t.Helper()
	target := must.Get(url.Parse(server))(t)
	c := &exchangeCounter{tokens: map[string]bool{}}
	back := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorded := &statusRecorder{ResponseWriter: w}
		back.ServeHTTP(recorded, r)
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case r.URL.Path == "/api/oauth/token" && recorded.status == http.StatusOK:
			c.granted++
		case strings.HasPrefix(r.URL.Path, "/api/deployments/"):
			c.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "token ")] = true
		}
	}))
	t.Cleanup(front.Close)
	c.URL = front.URL
	return c
}

func (c *exchangeCounter) count() (granted, used int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.granted, len(c.tokens)
}

type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets the proxy flush the response to a held poll.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// TestClientsOfAnIssuer runs an agent whose only credential is a token of a real issuer.
func TestClientsOfAnIssuer(t *testing.T) {
	harness.Programs(t) // before the authorities change
	ctx := t.Context()
	issuer := must.Get(lab.StartIssuer(ctx, t.TempDir(), os.Stderr))(t)
	t.Cleanup(issuer.Close)
	t.Setenv("SSL_CERT_FILE", issuer.CAFile) // for the server, which fetches the issuer's keys
	w := harness.StartSite(t, "")
	must.OK(t, w.MakePool(ctx))
	trustIssuer(ctx, t, w.Server, map[string]any{"name": "ci", "url": issuer.URL}, map[string]any{
		"decision": "allow", "tokenType": "runner", "runnerID": w.Pool.ID,
		"rules": map[string]string{"sub": "agent:*", "aud": "urn:pulumi:org:" + w.Server.Organization},
	})
	exchanges := newExchangeCounter(t, w.Server.URL)
	t.Cleanup(w.Close)
	w.AgentURL = exchanges.URL
	file := filepath.Join(w.Dir, "id-token")
	var subjects []string
	write := func(subject string) {
		t.Helper()
		token := must.Get(issuer.IDToken(ctx, lab.Identity{Audience: "urn:pulumi:org:" + w.Server.Organization, Subject: subject}))(t)
		subjects = append(subjects, token)
		temporary := file + ".new"
		harness.Write(t, temporary, []byte(token+"\n"), 0o600)
		must.OK(t, os.Rename(temporary, file))
	}

	port := must.Get(child.FreePort("127.0.0.1"))(t)
	agent := must.Get(w.LaunchAgent(ctx, "process", map[string]string{
		"token": "", "oidc_token_file": file, "organization_name": w.Server.Organization, "runner_pool_id": w.Pool.ID,
		"token_expiration": "6s", "http_server_port": strconv.Itoa(port), "job_status_loop_interval": "500ms",
	}))(t)
	health := "http://127.0.0.1:" + strconv.Itoa(port) + "/healthz"
	shows(t, health, "does not exist")

	write("stranger")
	shows(t, health, "the policies of the issuer")
	if log := child.Tail(agent.LogFile, 1000); !strings.Contains(log, "obtaining a pool token failed") {
		t.Errorf("the agent does not report why it has no token:\n%s", log)
	}
	write("agent:one")
	shows(t, health, "")

	repo := w.Repo(ctx, t)
	s := w.NewStack(ctx, t, "box", "dev", "", nil)
	began, end := filepath.Join(w.Dir, "began"), filepath.Join(w.Dir, "end")
	d := s.Deploy(ctx, t, "update", repo.URL, "touch "+began+"; until [ -e "+end+" ]; do sleep 0.1; done; echo the wait is over")
	waiting, cancel := context.WithTimeout(ctx, harness.Patience)
	defer cancel()
	exists := func() (bool, error) { _, err := os.Stat(began); return err == nil, nil }
	if err := harness.Until(waiting, exists); err != nil {
		t.Fatalf("the job does not begin: %v", err)
	}
	// The key changes during the job, and the token is renewed twice after that.
	must.OK(t, issuer.Rotate(ctx))
	write("agent:two")
	granted, used := exchanges.count()
	if err := harness.Until(waiting, func() (bool, error) {
		g, u := exchanges.count()
		return g >= granted+2 && u >= used+2, nil
	}); err != nil {
		t.Errorf("the token is not renewed during the job: %v", err)
	}
	harness.Write(t, end, nil, 0o600)
	if d = s.Finish(ctx, t, d); d.Status != "succeeded" {
		t.Errorf("ended as %+v", d)
	}
	log := s.Log(ctx, t, d)
	if !strings.Contains(log, "the wait is over") {
		t.Errorf("the log:\n%s", log)
	}
	exchanges.mu.Lock()
	defer exchanges.mu.Unlock()
	for token := range exchanges.tokens {
		subjects = append(subjects, token)
	}
	everything := log + child.Tail(agent.LogFile, 100000)
	for _, token := range subjects {
		if strings.Contains(everything, token) {
			t.Errorf("a token shows in a log")
		}
	}
}

// shows waits until the agent's health page shows exactly one problem, which contains want, or no
// problem if want is "".
func shows(t *testing.T, page, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	client := &http.Client{Timeout: time.Minute}
	var report struct {
		Problems []string `json:"problems"`
	}
	err := harness.Until(ctx, func() (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
		if err != nil {
			return false, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return false, nil // not listening yet
		}
		defer resp.Body.Close()
		report.Problems = nil
		if err := json.NewDecoder(resp.Body).Decode(&report); err != nil {
			return false, err
		}
		if want == "" {
			return len(report.Problems) == 0, nil
		}
		return len(report.Problems) == 1 && strings.Contains(report.Problems[0], want), nil
	})
	if err != nil {
		t.Fatalf("the agent does not show %q but %q: %v", want, report.Problems, err)
	}
}
