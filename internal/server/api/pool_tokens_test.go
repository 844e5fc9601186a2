package api_test

import (
	"net/http"
	"testing"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/workflow"
)

func (l *lab) held(token string, r protocol.PollRequest) <-chan error {
	done := make(chan error, 1)
	go func() {
		res, err := l.client.Poll(l.t.Context(), token, r)
		if err == nil && res.Job != nil {
			l.t.Errorf("the poll of %s got a job", r.AgentID)
		}
		done <- err
	}()
	return done
}

// TestPoolTokensRotate adds a second token to a pool and revokes the first, while agents poll with
// both and a job runs. Only the polls with the first token must fail.
func TestPoolTokensRotate(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		pool := "/api/orgs/acme/agent-pools/" + l.pool
		path := l.deployable("dev")
		running := l.deploy(path, "update")
		_, jc := l.start("first")

		var list struct {
			Tokens []struct{ ID, Name, Type string }
		}
		l.do("GET", pool+"/tokens", nil).want(200, &list)
		if len(list.Tokens) != 1 {
			t.Fatalf("a new pool has the tokens %+v", list.Tokens)
		}
		old := list.Tokens[0].ID
		var made struct{ ID, TokenValue string }
		l.do("POST", pool+"/tokens", map[string]any{"description": "rotated"}).want(200, &made)

		const hold = 40 * time.Second
		began := time.Now()
		present := l.request("presence", hold)
		present.FreeSlots = 0
		first, second, presence := l.held(l.poolToken, l.request("first", hold)), l.request("second", hold), l.held(l.poolToken, present)
		got := make(chan protocol.PollResult, 1)
		go func() {
			res, err := l.client.Poll(t.Context(), made.TokenValue, second)
			if err != nil {
				t.Errorf("the poll with the second token: %v", err)
			}
			got <- res
		}()
		l.agents(pool, 3)
		l.do("DELETE", pool+"/tokens/"+old, nil).want(204, nil)
		for name, done := range map[string]<-chan error{"waits for work": first, "is busy": presence} {
			if err := <-done; protocol.StatusCode(err) != http.StatusUnauthorized {
				t.Errorf("the held poll of an agent that %s ended with %v, want 401", name, err)
			}
		}
		if took := time.Since(began); took > hold/2 {
			t.Errorf("the held polls ended after %s", took)
		}
		_, err := l.client.Poll(t.Context(), l.poolToken, l.request("first", 0))
		wantCode(t, "a poll with the revoked token", err, http.StatusUnauthorized)

		if _, err := jc.Heartbeat(t.Context(), protocol.PhaseRunning); err != nil {
			t.Errorf("the running job's heartbeat: %v", err)
		}
		l.end(jc, workflow.StatusSucceeded)
		l.becomes(path, running, "succeeded")

		next := l.deploy(path, "update")
		if res := <-got; res.Job == nil || res.Job.DeploymentID != next {
			t.Errorf("the poll with the second token got %+v, want deployment %s", res, next)
		}
		l.do("DELETE", pool+"/tokens/"+old, nil).want(404, nil)
		l.do("DELETE", pool+"/tokens/none", nil).want(404, nil)
		l.do("GET", "/api/orgs/acme/agent-pools/none/tokens", nil).want(404, nil)
		l.do("POST", "/api/orgs/acme/agent-pools/none/tokens", map[string]any{}).want(404, nil)
		l.do("POST", pool+"/tokens", map[string]any{"expires": 1}).want(400, nil)
	})
}

func (l *lab) agents(pool string, n int) {
	l.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		var body struct{ Agents []struct{ ID string } }
		l.do("GET", pool, nil).want(200, &body)
		if len(body.Agents) == n {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("the pool has the agents %+v, want %d", body.Agents, n)
		}
		<-time.After(10 * time.Millisecond)
	}
}
