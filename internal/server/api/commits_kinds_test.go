package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// lostWrite is a kind of write whose answer to COMMIT gets lost.
type lostWrite struct {
	name string
	// prepare makes what the write needs. write returns its HTTP status, and check fails the test
	// unless what can be read is whole. done states whether the write has taken effect.
	prepare func(l *lab) (write func() int, check func(done bool))
	ok      int
	again   int  // status of the repetition of a write that has taken effect
	inside  bool // it takes several transactions, or no caller receives the outcome
}

// status returns the HTTP status that an error stands for.
func statusOf(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case fault.KindOf(err) == fault.KindOutcomeUnknown:
		return http.StatusInternalServerError
	}
	if code := protocol.StatusCode(err); code != 0 {
		return code
	}
	return -1
}

// request returns a write that is a request.
func (l *lab) writes(method, path string, body any) func() int {
	return func() int { return l.note(l.do(method, path, body)) }
}

// note checks how the server tells a client that the outcome of a write is unknown.
func (l *lab) note(a answer) int {
	l.t.Helper()
	unknown := strings.Contains(string(a.Body), "outcome_unknown")
	if a.Status == http.StatusInternalServerError && (!unknown || a.Header.Get("Retry-After") != "") && l.loses {
		l.t.Errorf("%s: %d %s with Retry-After %q, want outcome_unknown without", a.call, a.Status, a.Body, a.Header.Get("Retry-After"))
	}
	return a.Status
}

// whole fails the test unless a stack's state has a number of resources.
func (l *lab) whole(stack string, resources int) {
	l.t.Helper()
	a := l.do("GET", stack+"/export", nil)
	var exported struct {
		Deployment struct{ Resources []any }
	}
	if err := json.Unmarshal(a.Body, &exported); a.Status != 200 || err != nil || len(exported.Deployment.Resources) != resources {
		l.t.Errorf("the state of %s is %d %.200s, want %d resources", stack, a.Status, a.Body, resources)
	}
}

// count fails the test unless a list has n elements if the write has taken effect, and n-1 otherwise.
func (l *lab) count(path, member string, n int, done bool) {
	l.t.Helper()
	var list map[string]json.RawMessage
	a := l.do("GET", path, nil).want(200, &list)
	var elements []any
	if err := json.Unmarshal(list[member], &elements); err != nil {
		l.t.Errorf("GET %s: %s", path, a.Body)
	}
	if !done {
		n--
	}
	if len(elements) != n {
		l.t.Errorf("GET %s has %d %s, want %d: %s", path, len(elements), member, n, a.Body)
	}
}

func (l *lab) exists(path string, exists bool) {
	l.t.Helper()
	if a := l.do("GET", path, nil); (a.Status == 200) != exists {
		l.t.Errorf("GET %s: %d, want existence %t", path, a.Status, exists)
	}
}

func nothing(bool) {}

// stateWrites are the kinds of writes that concern the states of stacks.
func stateWrites() []lostWrite {
	type parts = func(l *lab) (func() int, func(bool))
	// running returns a write of a running update.
	running := func(method, suffix string, body any, check func(l *lab, stack string, done bool)) parts {
		return func(l *lab) (func() int, func(bool)) {
			stack := l.stack(l.name)
			u := l.fixture.start(stack, "update")
			u.send("PATCH", "/checkpoint", state(1)).want(204, nil)
			return func() int { return l.note(u.send(method, suffix, body)) }, func(done bool) { check(l, stack, done) }
		}
	}
	resources := func(before, after int) func(l *lab, stack string, done bool) {
		return func(l *lab, stack string, done bool) {
			l.t.Helper()
			l.whole(stack, map[bool]int{false: before, true: after}[done])
		}
	}
	return []lostWrite{
		{"creation of a stack", func(l *lab) (func() int, func(bool)) {
			return l.writes("POST", "/api/stacks/acme/proj", map[string]any{"stackName": l.name}), func(done bool) { l.exists("/api/stacks/acme/proj/"+l.name, done) }
		}, 200, 409, false},
		{"creation of a stack with a state", func(l *lab) (func() int, func(bool)) {
			return l.writes("POST", "/api/stacks/acme/proj", map[string]any{"stackName": l.name, "state": state(2)}), func(done bool) {
				if done {
					l.exists("/api/stacks/acme/proj/"+l.name, true)
				}
			}
		}, 200, 409, false},
		{"tags", func(l *lab) (func() int, func(bool)) {
			return l.writes("PATCH", l.stack(l.name)+"/tags", map[string]any{"a": "b"}), nothing
		}, 204, 204, false},
		{"import", func(l *lab) (func() int, func(bool)) {
			stack := l.stack(l.name)
			l.do("POST", stack+"/import", state(1)).want(200, nil)
			return l.writes("POST", stack+"/import", state(3)), func(done bool) { l.whole(stack, map[bool]int{false: 1, true: 3}[done]) }
		}, 200, 200, false},
		{"creation of an update", func(l *lab) (func() int, func(bool)) {
			return l.writes("POST", l.stack(l.name)+"/update", program()), nothing
		}, 200, 200, false},
		{"start of an update", func(l *lab) (func() int, func(bool)) {
			stack := l.stack(l.name)
			var made struct{ UpdateID string }
			l.do("POST", stack+"/update", program()).want(200, &made)
			return l.writes("POST", stack+"/update/"+made.UpdateID, map[string]any{}), nothing
		}, 200, 409, false},
		{"checkpoint", running("PATCH", "/checkpoint", state(4), resources(1, 4)), 204, 204, false},
		{"numbered checkpoint", running("PATCH", "/checkpointverbatim",
			map[string]any{"version": 3, "sequenceNumber": 2, "untypedDeployment": state(5)}, resources(1, 5)), 204, 204, false},
		{"lease", running("POST", "/renew_lease", map[string]any{"duration": 300}, resources(1, 1)), 200, 200, false},
		{"events", running("POST", "/events/batch", map[string]any{"events": []any{map[string]any{"sequence": 0, "timestamp": 1}}},
			func(l *lab, stack string, _ bool) { l.whole(stack, 1) }), 200, 200, false},
		{"end of an update", running("POST", "/complete", map[string]string{"status": "succeeded"}, func(l *lab, stack string, done bool) {
			l.whole(stack, 1)
			l.count(stack+"/updates", "updates", 1, true)
		}), 204, 204, false},
		{"journal", func(l *lab) (func() int, func(bool)) {
			stack := l.stack(l.name)
			u := l.startJournal(stack, "update")
			u.send("PATCH", "/journalentries", entries(created(1, "a"))).want(204, nil)
			return func() int { return l.note(u.send("PATCH", "/journalentries", entries(created(2, "b")))) },
				func(done bool) { l.whole(stack, map[bool]int{false: 1, true: 2}[done]) }
		}, 204, 204, false},
		{"fold", func(l *lab) (func() int, func(bool)) {
			stack := l.stack(l.name)
			l.do("POST", stack+"/import", state(9)).want(200, nil)
			u := l.startJournal(stack, "update")
			u.send("PATCH", "/journalentries", entries(created(1, "a"), created(2, "b"))).want(204, nil)
			u.send("POST", "/complete", map[string]string{"status": "succeeded"}).want(204, nil)
			return l.fold, func(bool) { l.whole(stack, 11) }
		}, 200, 200, true},
		{"deletion of a stack", func(l *lab) (func() int, func(bool)) {
			stack := l.stack(l.name)
			l.do("POST", stack+"/import", state(1)).want(200, nil)
			return l.writes("DELETE", stack+"?force=true", nil), func(done bool) { l.exists(stack, !done) }
		}, 204, 404, false},
		{"new name", func(l *lab) (func() int, func(bool)) {
			stack := l.stack(l.name)
			l.do("POST", stack+"/import", state(2)).want(200, nil)
			return l.writes("POST", stack+"/rename", map[string]any{"newName": l.name + "-new"}), func(done bool) {
				l.whole("/api/stacks/acme/proj/"+l.name+map[bool]string{true: "-new"}[done], 2)
			}
		}, 200, 404, false},
	}
}

// jobWrites are the kinds of writes that concern deployments.
func jobWrites() []lostWrite {
	deployed := func(l *lab) (path, id string) {
		path = l.deployable(l.name)
		return path, l.deploy(path, "update")
	}
	// started returns a write of a job that an agent has claimed and started.
	started := func(write func(l *lab, jc *protocol.JobClient) error, status string) func(l *lab) (func() int, func(bool)) {
		return func(l *lab) (func() int, func(bool)) {
			path, id := deployed(l)
			_, jc := l.start("a")
			return func() int { return statusOf(write(l, jc)) }, func(done bool) {
				if got := l.details(path, id); done && got.Status != status || len(got.Results) > 1 {
					l.t.Errorf("the deployment is %s with %d results", got.Status, len(got.Results))
				}
			}
		}
	}
	return []lostWrite{
		{"settings", func(l *lab) (func() int, func(bool)) {
			return l.writes("PUT", l.deployable(l.name)+"/settings", map[string]any{"agentPoolID": l.pool}), nothing
		}, 200, 200, false},
		{"new deployment", func(l *lab) (func() int, func(bool)) {
			path := l.deployable(l.name)
			return func() int {
				return l.note(l.send(call{Method: "POST", Path: path, Body: map[string]any{"operation": "update"}, Header: map[string]string{"Idempotency-Key": "k"}}))
			}, func(done bool) { l.count(path, "deployments", 1, done) }
		}, 202, 202, false},
		{"claim", func(l *lab) (func() int, func(bool)) {
			path, id := deployed(l)
			r := l.request("a", 0)
			return func() int {
					res, err := l.client.Poll(l.t.Context(), l.poolToken, r)
					if err == nil && (res.Job == nil || res.Job.JobToken == "") {
						err = errors.New("the poll got no job")
					}
					return statusOf(err)
				}, func(done bool) {
					if got := l.details(path, id); (got.Agent != nil) != done {
						l.t.Errorf("the deployment is %+v, want an agent: %t", got, done)
					}
					l.nothing("b")
				}
		}, 200, 200, true},
		{"heartbeat", started(func(l *lab, jc *protocol.JobClient) error {
			_, err := jc.Heartbeat(l.t.Context(), protocol.PhaseRunning)
			return err
		}, "running"), 200, 200, false},
		{"step", started(func(l *lab, jc *protocol.JobClient) error {
			return jc.StepStatus(l.t.Context(), 0, protocol.StepStatusRequest{Status: workflow.StepRunning})
		}, "running"), 200, 200, false},
		{"result", started(func(l *lab, jc *protocol.JobClient) error {
			return jc.Result(l.t.Context(), protocol.ResultRequest{Status: workflow.StatusSucceeded, FinishedAt: time.Unix(1700000000, 0)})
		}, "succeeded"), 200, 200, false},
		{"cancellation", func(l *lab) (func() int, func(bool)) {
			path, id := deployed(l)
			return l.writes("POST", path+"/"+id+"/cancel", nil), func(done bool) {
				if got := l.details(path, id).Status; done != (got == "skipped") {
					l.t.Errorf("the deployment is %s, want an end: %t", got, done)
				}
			}
		}, 200, 200, false},
		{"schedule that fires", func(l *lab) (func() int, func(bool)) {
			path := l.deployable(l.name)
			var made schedule
			l.do("POST", path+"/ttl/schedules", `{"timestamp":"2100-01-02T03:04:05.678+02:00"}`).want(200, &made)
			l.makeDue(made.ID)
			return func() int { return statusOf(l.triggers.Sweep(l.t.Context())) }, func(done bool) { l.count(path, "deployments", 1, done) }
		}, 200, 200, true},
	}
}

// otherWrites are the other kinds of writes.
func otherWrites() []lostWrite {
	request := func(method, path string, body any, ok, again int) lostWrite {
		return lostWrite{method + " " + path, func(l *lab) (func() int, func(bool)) { return l.writes(method, path, body), nothing }, ok, again, false}
	}
	return []lostWrite{
		{"token", func(l *lab) (func() int, func(bool)) {
			var before struct{ Tokens []any }
			l.do("GET", "/api/user/tokens", nil).want(200, &before)
			return l.writes("POST", "/api/user/tokens", map[string]any{"description": "d", "expires": 0}), nothing
		}, 200, 200, false},
		request("POST", "/api/orgs/acme/tokens", map[string]any{"name": "ci", "description": "d"}, 200, 200),
		request("POST", "/api/orgs/acme/agent-pools", map[string]any{"name": "p9"}, 200, 409),
		request("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": "ops"}, 201, 409),
		request("POST", "/api/orgs/acme/hooks", map[string]any{
			"organizationName": "acme", "name": "abcdefgh", "displayName": "x", "payloadUrl": "https://example.com", "active": true,
		}, 201, 409),
		{"schedule", func(l *lab) (func() int, func(bool)) {
			return l.writes("POST", l.deployable(l.name)+"/schedules", `{"scheduleCron":"0 4 * * *","request":{"operation":"update"}}`), nothing
		}, 200, 200, false},
		{"delivery of a webhook", func(l *lab) (func() int, func(bool)) {
			url, got := receiver(l.t.(*testing.T), "hush") //nolint:forcetypeassert // it is none of a benchmark
			l.do("POST", "/api/orgs/acme/hooks", map[string]any{
				"organizationName": "acme", "name": "deliver1", "displayName": "x", "payloadUrl": url, "active": true, "secret": "hush", "groups": []string{"stacks"},
			}).want(201, nil)
			l.stack(l.name)
			ids := map[string]bool{}
			return func() int {
					stop := l.sendWebhooks()
					defer stop()
					ids[(<-got).id] = true
					for {
						var list []delivery
						l.do("GET", "/api/orgs/acme/hooks/deliver1/deliveries", nil).want(200, &list)
						if len(list) == 1 && list[0].ResponseCode == 200 {
							return 200
						}
						select {
						case again := <-got:
							ids[again.id] = true
						case <-time.After(20 * time.Millisecond):
						}
					}
				}, func(bool) {
					if len(ids) > 1 {
						l.t.Errorf("one event arrived as %v", ids)
					}
				}
		}, 200, 200, true},
	}
}

// fold folds the journals of the updates that have finished, and returns when there are none.
func (l *lab) fold() int {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan error, 1)
	go func() { done <- l.stacks.FoldJournals(ctx) }()
	deadline := time.Now().Add(time.Minute)
	for left := true; left && time.Now().Before(deadline); {
		err := l.db.Read(l.t.Context(), func(tx *store.Tx) error {
			found, err := tx.FinishedJournals("", tx.Now().Add(time.Hour), 1)
			left = len(found) > 0
			return err
		})
		if err != nil {
			l.t.Fatal(err)
		}
		<-time.After(10 * time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		l.t.Errorf("folding: %v", err)
	}
	return http.StatusOK
}
