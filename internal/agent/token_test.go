package agent_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

type rotating struct {
	mu      sync.Mutex
	tokens  []string // the current token is first
	used    []string
	refused []string
}

func (r *rotating) Token(context.Context) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.used, r.tokens[0]) {
		r.used = append(r.used, r.tokens[0])
	}
	return r.tokens[0], nil
}

func (r *rotating) Refused(token string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token == r.tokens[0] && len(r.tokens) > 1 {
		r.refused = append(r.refused, token)
		r.tokens = r.tokens[1:]
	}
	return true
}

func (r *rotating) Values() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.used)
}

func TestRefusedTokenIsReplacedDuringAJob(t *testing.T) {
	w := newHarness(t)
	source := &rotating{tokens: []string{"expired-token", fakes.PoolToken, "token-after-the-revocation"}}
	w.options = func(o *agent.Options) { o.Tokens, o.Retry.Wait, o.Retry.MaxWait = source, time.Hour, time.Hour }
	var mu sync.Mutex
	valid, asked := fakes.PoolToken, 0
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/api/deployments/") {
			return false
		}
		mu.Lock()
		ok := r.Header.Get("Authorization") == "token "+valid
		if ok && strings.HasSuffix(r.URL.Path, "/status") && valid != fakes.PoolToken {
			asked++
		}
		mu.Unlock()
		if !ok {
			http.Error(protocol.SignAnswers(rw, r), `{"code":401,"message":"Unauthorized"}`, http.StatusUnauthorized)
			return true
		}
		// The fake server accepts only one token.
		r.Header.Set("Authorization", "token "+fakes.PoolToken)
		return false
	})
	finish := w.runner(workflow.StatusSucceeded)
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		mu.Lock()
		valid = "token-after-the-revocation"
		mu.Unlock()
		w.server.WaitFor("a status request with the third token", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return asked > 2
		})
		return finish(ctx, j)
	})
	job := w.server.Add()
	a := w.start()
	w.server.WaitForResult(job)
	next := w.server.Add()
	w.executor.OnRun(finish)
	w.server.WaitFor("the second result", func() bool { return len(next.Results) == 1 })
	a.Stop()
	a.wait()
	if want := []string{"expired-token", fakes.PoolToken}; !slices.Equal(source.refused, want) {
		t.Errorf("refused: %q, want %q", source.refused, want)
	}
	for _, secret := range source.used {
		if strings.Contains(w.log.String(), secret) {
			t.Errorf("the agent's log contains %q", secret)
		}
	}
}

// TestTokensAreMaskedInJobLogs uses tokens as a job's image name, which the set-up log repeats.
func TestTokensAreMaskedInJobLogs(t *testing.T) {
	w := newHarness(t)
	source := &rotating{tokens: []string{fakes.PoolToken}, used: []string{"older-token-of-the-pool", "subject.token.of-the-issuer"}}
	w.options = func(o *agent.Options) { o.Tokens, o.Rules = source, noImages{} }
	job := w.server.Add(func(j *fakes.ServerJob) {
		j.Definition.Image = &workflow.Image{Reference: "x/older-token-of-the-pool/subject.token.of-the-issuer/" + fakes.PoolToken}
	})
	a := w.start()
	w.server.WaitForResult(job)
	a.Stop()
	a.wait()
	result, err := json.Marshal(job.Results[0])
	if err != nil {
		t.Fatal(err)
	}
	everything := strings.Join(job.Log(0), "\n") + string(result) + w.log.String()
	if !job.Has(0, "does not run the image") {
		t.Errorf("the set-up log: %q", job.Log(0))
	}
	for _, secret := range source.used {
		if strings.Contains(everything, secret) {
			t.Errorf("%q occurs in\n%s", secret, everything)
		}
	}
}

type noImages struct{}

func (noImages) AllowsImage(string) bool      { return false }
func (noImages) RepositoryPatterns() []string { return nil }
