package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/workflow"
)

func TestHeldPollIsHandedTheJob(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		path := l.deployable("dev")
		type answer struct {
			res protocol.PollResult
			err error
		}
		const agents = 5
		got := make(chan answer, agents)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range agents {
			go func() {
				res, err := l.client.Poll(ctx, l.poolToken, l.request(string(rune('a'+i)), 20*time.Second))
				got <- answer{res, err}
			}()
		}
		began := time.Now()
		id := l.deploy(path, "update")
		a := <-got
		if a.err != nil || a.res.Job == nil || a.res.Job.TypeSpecificID != id || !a.res.Held {
			t.Fatalf("poll = %+v, %v", a.res, a.err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the held poll got the job only after %s", took)
		}
		select {
		case a := <-got:
			t.Errorf("a second poll got %+v, %v, want nothing", a.res, a.err)
		case <-time.After(50 * time.Millisecond):
		}
		cancel()
		for range agents - 1 {
			<-got
		}
	})
}

func TestSamePollSameClaim(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		l.deploy(l.deployable("dev"), "update")
		l.deploy(l.deployable("two"), "update")
		req := l.request("a", 5*time.Second)
		first, err := l.client.Poll(t.Context(), l.poolToken, req)
		if err != nil {
			t.Fatal(err)
		}
		again, err := l.client.Poll(t.Context(), l.poolToken, req)
		if err != nil {
			t.Fatal(err)
		}
		if again.Job.JobID != first.Job.JobID || again.Job.Epoch != first.Job.Epoch {
			t.Fatalf("the same poll got %+v, then %+v", first.Job, again.Job)
		}
		for _, job := range []*protocol.PollResponse{first.Job, again.Job} {
			if _, err := l.client.Job(job.JobID, job.JobToken).Heartbeat(t.Context(), protocol.PhasePreparing); err != nil {
				t.Errorf("heartbeat: %v", err)
			}
		}
		other := l.request("b", 0)
		other.PollID = req.PollID
		if res, err := l.client.Poll(t.Context(), l.poolToken, other); err != nil || res.Job == nil || res.Job.JobID == first.Job.JobID {
			t.Errorf("another agent with the same poll id got %+v, %v", res.Job, err)
		}
	})
}

// TestDroppedPollLosesNoJob disconnects a client during its poll or while the server sends the
// response. Another agent must receive the job.
func TestDroppedPollLosesNoJob(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{Lease: 300 * time.Millisecond, Sweep: leaseSweep})
	path := l.deployable("dev")
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			l.client.Poll(ctx, l.poolToken, l.request("lost", 10*time.Second))
		})
		id := l.deploy(path, "update")
		if i%2 == 0 {
			<-time.After(time.Duration(i) * time.Millisecond)
		}
		cancel()
		wg.Wait()
		job, jc := l.claim("kept")
		for { // the lease is short for this agent too
			_, err := jc.Heartbeat(t.Context(), protocol.PhaseStarting)
			if err == nil {
				break
			}
			wantCode(t, "fetching the definition", err, http.StatusGone)
			job, jc = l.claim("kept")
		}
		if job.TypeSpecificID != id {
			t.Fatalf("claimed %s, want %s", job.TypeSpecificID, id)
		}
		l.end(jc, workflow.StatusSucceeded)
	}
}

func TestSecondSessionIsRefused(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { l.client.Poll(ctx, l.poolToken, l.request("a", 20*time.Second)) })
	deadline := time.Now().Add(time.Minute)
	for {
		var pool struct{ Agents []struct{ ID string } }
		l.do("GET", "/api/orgs/acme/agent-pools/"+l.pool, nil).want(200, &pool)
		if len(pool.Agents) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the first agent never appeared in the pool")
		}
		<-time.After(5 * time.Millisecond)
	}
	twin := l.request("a", 0)
	twin.SessionID = "twin"
	_, err := l.client.Poll(t.Context(), l.poolToken, twin)
	wantCode(t, "a second session", err, http.StatusConflict)
	cancel() // the first agent is killed
	wg.Wait()
	for {
		_, err := l.client.Poll(t.Context(), l.poolToken, twin)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the restarted agent is still refused: %v", err)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestPresenceOnlyAndTypes(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	l.deploy(l.deployable("dev"), "update")
	busy := l.request("a", 0)
	busy.FreeSlots = 0
	if res, err := l.client.Poll(t.Context(), l.poolToken, busy); err != nil || res.Job != nil {
		t.Errorf("a busy agent got %+v, %v", res.Job, err)
	}
	scans := l.request("b", 0)
	scans.Types = []workflow.Type{workflow.TypeInsightsScan}
	if res, err := l.client.Poll(t.Context(), l.poolToken, scans); err != nil || res.Job != nil {
		t.Errorf("an agent for scans got %+v, %v", res.Job, err)
	}
	both := l.request("c", 0)
	both.Types = workflow.Types()
	if res, err := l.client.Poll(t.Context(), l.poolToken, both); err != nil || res.Job == nil {
		t.Errorf("an agent for all types got %+v, %v", res.Job, err)
	}
}

func TestTokensAreChecked(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	path := l.deployable("dev")
	l.deploy(path, "update")
	other := l.deployable("two")
	l.deploy(other, "update")
	one, jc := l.claim("a")
	two, _ := l.claim("b")
	for what, c := range map[string]struct {
		auth string
		want int
	}{
		"no token":            {"none", 401},
		"a made-up token":     {"token pul-0000", 401},
		"another job's token": {"token " + two.JobToken, 401},
		"the pool's token":    {"token " + l.poolToken, 403},
		"a user's token":      {"", 403},
	} {
		got := l.send(call{Method: "POST", Path: "/api/workflow/jobs/" + one.JobID + "/heartbeat", Body: `{}`, Auth: c.auth})
		if got.Status != c.want {
			t.Errorf("%s: %d, want %d", what, got.Status, c.want)
		}
	}
	l.send(call{Method: "GET", Path: "/api/deployments/poll", Auth: ""}).want(403, nil)
	l.send(call{Method: "GET", Path: "/api/deployments/poll", Auth: "none"}).want(401, nil)
	if _, err := jc.Heartbeat(t.Context(), protocol.PhasePreparing); err != nil {
		t.Error(err)
	}
	_, foreign := l.newPool("foreign")
	_, err := l.client.Status(t.Context(), foreign, one.TypeSpecificID)
	wantCode(t, "status with another pool's token", err, 404)
	if st, err := l.client.Status(t.Context(), l.poolToken, one.TypeSpecificID); err != nil || st != workflow.StatusAccepted {
		t.Errorf("status = %s, %v", st, err)
	}
	// The agent's self-test determines which operations its token permits, and claims no job.
	check, err := l.client.CheckToken(t.Context(), l.poolToken)
	if err != nil || !check.Proven || check.PoolID == "" || check.ExternalURL == "" {
		t.Errorf("the pool's token: %+v, %v", check, err)
	}
	_, err = l.client.CheckToken(t.Context(), one.JobToken)
	wantCode(t, "a job's token", err, 403)
	_, err = l.client.CheckToken(t.Context(), "pul-nonsense")
	wantCode(t, "an unknown token", err, 401)
	executor := call{Method: "GET", Path: "/api/deployments/executor", Auth: "token " + one.JobToken}
	l.send(executor).want(404, nil).says("workflow-runner")
	if err := os.WriteFile(filepath.Join(l.runnerDir, "workflow-runner-embeddable"), []byte("a binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(l.send(executor).want(200, nil).Body))
	if err != nil {
		t.Fatal(err)
	}
	if binary, err := io.ReadAll(z); err != nil || string(binary) != "a binary" {
		t.Errorf("the runner is %q, %v", binary, err)
	}
}

func TestStockAgent(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		path := l.deployable("dev")
		for _, final := range []string{"succeeded", "failed"} {
			id := l.deploy(path, "update")
			var claim struct{ JobID, JobToken string }
			l.send(call{Method: "GET", Path: "/api/deployments/poll", Auth: "token " + l.poolToken}).want(200, &claim)
			auth, base := "token "+claim.JobToken, "/api/workflow/jobs/"+claim.JobID
			var def workflow.JobDefinition
			l.send(call{Method: "GET", Path: base, Auth: auth}).want(200, &def)
			if d := l.details(path, id); d.Status != "running" {
				t.Fatalf("fetching the definition did not start the job: %s", d.Status)
			}
			for i := 1; i < len(def.Steps); i++ {
				step := base + "/" + string(rune('0'+i))
				l.send(call{Method: "PATCH", Path: step + "/status", Auth: auth, Body: `{"status":"running"}`}).want(200, nil)
				line := `{"offset":0,"lines":[{"t":"2026-01-01T00:00:00Z","l":"line"}]}`
				l.send(call{Method: "POST", Path: step + "/logs", Auth: auth, Body: line}).want(200, nil)
				l.send(call{Method: "POST", Path: step + "/logs", Auth: auth, Body: line}).want(200, nil) // a retry
				status := "succeeded"
				if i == len(def.Steps)-1 {
					status = final
				}
				l.send(call{Method: "PATCH", Path: step + "/status", Auth: auth, Body: `{"status":"` + status + `"}`}).want(200, nil)
			}
			l.becomes(path, id, final)
			if n := strings.Count(l.wholeLog(path, id), "line\n"); n != len(def.Steps)-1 {
				t.Errorf("%d lines are in the log, want %d", n, len(def.Steps)-1)
			}
		}
	})
}
