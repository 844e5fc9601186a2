package deployments_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

func versions(l deployments.Listing) string {
	var out []string
	for _, d := range l.Items {
		out = append(out, fmt.Sprintf("%s#%d", d.Stack, d.Version))
	}
	return strings.Join(out, " ")
}

// TestStage checks the lists by stage with their filters and pages, and that deployments appear only
// to callers who can see their stacks.
func TestStage(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		a, b := p.stack("a"), p.stack("b")
		done := p.deploy(a)
		c := p.poll("agent1")
		p.must(p.heartbeat(c, protocol.PhaseRunning))
		p.must(p.result(c, workflow.StatusFailed))
		running := p.deploy(b)
		p.poll("agent2")
		var queued []string
		for range 3 {
			queued = append(queued, p.deploy(b))
		}
		list := func(q deployments.Query) deployments.Listing {
			t.Helper()
			l, err := p.service.Page(t.Context(), p.user, p.org.ID, q)
			p.must(err)
			return l
		}
		for _, tt := range []struct {
			name string
			q    deployments.Query
			want string
		}{
			{"active", deployments.Query{Stage: deployments.StageActive}, "b#1"},
			{"queued", deployments.Query{Stage: deployments.StageQueued}, "b#2 b#3 b#4"},
			{"finished", deployments.Query{Stage: deployments.StageFinished}, "a#1"},
			{"failed", deployments.Query{Stage: deployments.StageFinished, State: waiting.StateFailed}, "a#1"},
			{"lost", deployments.Query{Stage: deployments.StageFinished, State: waiting.StateLost}, ""},
			{"of a stack", deployments.Query{Stage: deployments.StageFinished, StackID: b.ID}, ""},
			{"of the other stack", deployments.Query{Stage: deployments.StageFinished, StackID: a.ID}, "a#1"},
			{"of a pool", deployments.Query{Stage: deployments.StageActive, PoolID: p.pool}, "b#1"},
			{"of no pool", deployments.Query{Stage: deployments.StageActive, PoolID: "other"}, ""},
			{"of an agent", deployments.Query{Stage: deployments.StageFinished, PoolID: p.pool, AgentID: "agent1"}, "a#1"},
			{"of another operation", deployments.Query{Stage: deployments.StageQueued, Operation: workflow.OperationDestroy}, ""},
			{"mine", deployments.Query{Stage: deployments.StageQueued, Mine: true, Initiator: "api"}, "b#2 b#3 b#4"},
			{"the newest of their stacks", deployments.Query{Stage: deployments.StageFinished, Newest: true, Since: time.Now().Add(-time.Hour)}, "a#1"},
			{"too old", deployments.Query{Stage: deployments.StageFinished, Since: time.Now().Add(time.Hour)}, ""},
		} {
			if got := versions(list(tt.q)); got != tt.want {
				t.Errorf("%s: the list is %q, want %q", tt.name, got, tt.want)
			}
		}

		// Pages continue where the last one ended, for an organization and for a stack.
		for _, stackID := range []string{"", b.ID} {
			first := list(deployments.Query{Stage: deployments.StageQueued, StackID: stackID, Limit: 2})
			if versions(first) != "b#2 b#3" || first.Next == "" {
				t.Fatalf("the first page is %q, then %q", versions(first), first.Next)
			}
			second := list(deployments.Query{Stage: deployments.StageQueued, StackID: stackID, Limit: 2, After: first.Next})
			if versions(second) != "b#4" || second.Next != "" {
				t.Errorf("the second page is %q, then %q", versions(second), second.Next)
			}
		}

		// Reasons and places come with the list.
		l := list(deployments.Query{Stage: deployments.StageQueued})
		for i, d := range l.Items {
			if d.Why.Reason != waiting.Earlier || d.Why.Ahead != int64(i)+1 {
				t.Errorf("deployment #%d waits for %q behind %d, want %q behind %d", d.Version, d.Why.Reason, d.Why.Ahead, waiting.Earlier, i+1)
			}
		}

		// A caller without a permission on the stacks sees nothing, and cancels nothing.
		stranger := identity.Principal{Kind: identity.KindUser, User: store.User{ID: "u", Login: "eve"}, Roles: map[string]string{p.org.ID: identity.RoleCollaborator}}
		if got, err := p.service.Page(t.Context(), stranger, p.org.ID, deployments.Query{Stage: deployments.StageQueued}); err != nil || len(got.Items) > 0 {
			t.Errorf("a collaborator without grants sees %q, %v", versions(got), err)
		}
		if n, err := p.service.CancelQueued(t.Context(), stranger, p.org.ID, queued); err != nil || n != 0 {
			t.Errorf("a collaborator without grants cancels %d, %v", n, err)
		}
		outsider := identity.Principal{Kind: identity.KindUser, User: store.User{ID: "u"}}
		if _, err := p.service.Page(t.Context(), outsider, p.org.ID, deployments.Query{Stage: deployments.StageQueued}); err == nil {
			t.Error("an outsider may list deployments")
		}

		// Only queued deployments are cancelled.
		n, err := p.service.CancelQueued(t.Context(), p.user, p.org.ID, append(queued[:2:2], running, done, "missing"))
		if p.must(err); n != 2 {
			t.Errorf("%d deployments were cancelled, want 2", n)
		}
		load, err := p.service.Queues(t.Context(), p.user, p.org.ID, "")
		if p.must(err); load.Active != 1 || load.Running != 1 || load.Queued != 1 {
			t.Errorf("the queues are %+v, want 1 running, 1 queued", load)
		}
	})
}

// TestOutlook checks the verdict of a deployment through its life, the blockers that a caller sees, and
// who paused the queue.
func TestOutlook(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		a, b := p.stack("a"), p.stack("b")
		outlook := func(id string) (waiting.Why, waiting.Verdict) {
			t.Helper()
			var dj store.DeploymentJob
			p.must(db.Read(t.Context(), func(tx *store.Tx) (err error) {
				dj, err = tx.DeploymentJob(id)
				return err
			}))
			d, err := p.service.GetFor(t.Context(), p.user, store.Stack{ID: dj.StackID, OrgID: dj.OrgID}, id)
			p.must(err)
			return d.Why, waiting.Judge(d.Job, d.Why, time.Now())
		}
		expect := func(id, state, text string) waiting.Why {
			t.Helper()
			why, verdict := outlook(id)
			if verdict.State != state || !strings.Contains(verdict.Text, text) {
				t.Errorf("the verdict is %q: %q, want %q with %q", verdict.State, verdict.Text, state, text)
			}
			return why
		}
		first := p.deploy(a)
		why := expect(first, waiting.StateQueued, "Queued, next in its pool. No agent of the pool \"p\" is connected")
		if why.Position != 1 || why.Action.Path != "/acme/-/pools/"+p.pool {
			t.Errorf("the first deployment's reason is %+v", why)
		}
		c := p.poll("agent1")
		expect(first, waiting.StateClaimed, "agent1 claimed the deployment")
		p.must(p.heartbeat(c, protocol.PhaseRunning))
		expect(first, waiting.StateRunning, "Running for ")

		second := p.deploy(b)
		p.change(second, func(j *store.Job) { j.QueuedAt = j.QueuedAt.Add(-time.Minute) })
		why = expect(second, waiting.StateQueued, "All agents of the pool")
		if len(why.Blockers) != 2 || why.Blockers[1].Text != "acme/proj/a #1" {
			t.Errorf("the blockers of a deployment that waits for a busy agent are %+v", why.Blockers)
		}
		p.must(p.service.PauseOrg(t.Context(), p.user, p.org.ID, true))
		why = expect(second, waiting.StateQueued, "are paused by "+p.user.Name()+" since")
		if why.Reason != waiting.OrgPaused || why.Action.Kind != waiting.Post {
			t.Errorf("the reason while the organization is paused is %+v", why)
		}
		p.must(p.service.PauseOrg(t.Context(), p.user, p.org.ID, false))

		p.must(p.service.Cancel(t.Context(), a, first, "ada", false))
		expect(first, waiting.StateRunning, "asked to stop")
		p.must(p.service.Result(t.Context(), runner(c), c.Job.ID, protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonCancelled, FinishedAt: time.Now()}))
		expect(first, waiting.StateCancelled, "Cancelled by ada after ")
		p.must(p.service.Cancel(t.Context(), b, second, "ada", false))
		expect(second, waiting.StateCancelled, "Cancelled by ada before it started.")
	})
}

// TestChangesAreNotified checks that a deployment's changes reach the subscribers of its topic.
func TestChangesAreNotified(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		st := p.stack("a")
		notes := make(chan string, 100)
		defer db.Subscribe(deployments.Topic, func(payload string) {
			select {
			case notes <- payload:
			default:
			}
		})()
		expect := func(what, want string) {
			t.Helper()
			deadline := time.After(time.Minute)
			for {
				select {
				case got := <-notes:
					if got == want || got == "" { // "": the server began to listen after the change
						return
					}
				case <-deadline:
					t.Fatalf("%s: no notification %q", what, want)
				}
			}
		}
		id := p.deploy(st)
		expect("creating", deployments.About(st, id))
		c := p.poll("agent1")
		expect("claiming", deployments.About(st, id))
		p.must(p.heartbeat(c, protocol.PhaseRunning))
		expect("starting", deployments.About(st, id))
		p.must(p.result(c, workflow.StatusSucceeded))
		expect("ending", deployments.About(st, id))
		_, err := p.service.ReplaceSettings(t.Context(), p.user, st, json.RawMessage(`{}`), "api")
		p.must(err)
		expect("changing the settings", deployments.About(st, ""))
		p.must(p.service.PauseOrg(t.Context(), p.user, p.org.ID, true))
		expect("pausing the organization", p.org.ID+"/")
	})
}

// BenchmarkStage measures the lists of an organization with 10,000 stacks and 100,000 deployments on
// SQLite, for a member and an administrator.
func BenchmarkStage(b *testing.B) {
	p := newPlant(b, storetest.SQLite(b), deployments.Options{})
	seed(b, p, 10_000, 100_000)
	member := p.user
	member.User.SiteAdmin = false
	member.Roles = map[string]string{p.org.ID: identity.RoleMember}
	for _, bench := range []struct {
		name string
		who  identity.Principal
		q    deployments.Query
	}{
		{"finished", p.user, deployments.Query{Stage: deployments.StageFinished}},
		{"finished for a member", member, deployments.Query{Stage: deployments.StageFinished}},
		{"queued", p.user, deployments.Query{Stage: deployments.StageQueued}},
		{"active", member, deployments.Query{Stage: deployments.StageActive}},
		{"lost", p.user, deployments.Query{Stage: deployments.StageFinished, State: waiting.StateLost}},
		{"destroy", p.user, deployments.Query{Stage: deployments.StageFinished, Operation: workflow.OperationDestroy}},
		{"newest failed", p.user, deployments.Query{Stage: deployments.StageFinished, State: waiting.StateFailed, Newest: true, Since: time.Now().Add(-7 * 24 * time.Hour)}},
		{"an agent", p.user, deployments.Query{Stage: deployments.StageFinished, PoolID: p.pool, AgentID: "none"}},
		{"mine without any", p.user, deployments.Query{Stage: deployments.StageFinished, Mine: true}},
		{"a stack", p.user, deployments.Query{Stage: deployments.StageFinished, StackID: "stack7"}},
		{"a text without any", p.user, deployments.Query{Stage: deployments.StageFinished, Text: "feature/x"}},
		{"a text for a member", member, deployments.Query{Stage: deployments.StageFinished, Text: "feature/x"}},
		{"a text on each", p.user, deployments.Query{Stage: deployments.StageFinished, Text: "main"}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := p.service.Page(b.Context(), bench.who, p.org.ID, bench.q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("counts", func(b *testing.B) {
		for b.Loop() {
			if _, err := p.service.Queues(b.Context(), member, p.org.ID, ""); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// seed adds stacks with finished deployments, and 300 queued ones.
func seed(b *testing.B, p *plant, stacks, total int) {
	b.Helper()
	start := time.Now().Add(-30 * 24 * time.Hour)
	write := func(fn func(tx *store.Tx) error) { p.must(p.db.Write(b.Context(), scope.Server(), fn)) }
	for from := 0; from < stacks; from += 1000 {
		write(func(tx *store.Tx) error {
			for i := from; i < from+1000; i++ {
				st := store.Stack{ID: fmt.Sprint("stack", i), OrgID: p.org.ID, Project: fmt.Sprint("p", i%100), Name: fmt.Sprint("s", i), CreatedAt: start}
				if err := tx.InsertStack(st); err != nil {
					return err
				}
				if err := tx.SaveStackQueue(store.StackQueue{StackID: st.ID, LastVersion: int64(total / stacks)}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for from := 0; from < total; from += 1000 {
		write(func(tx *store.Tx) error {
			for i := from; i < from+1000; i++ {
				if err := seedOne(tx, p, i, stacks, total, start); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func seedOne(tx *store.Tx, p *plant, i, stacks, total int, start time.Time) error {
	at := start.Add(time.Duration(i) * 25 * time.Second)
	stack := fmt.Sprint("stack", i%stacks)
	d := store.Deployment{
		ID: fmt.Sprintf("d%06d", i), OrgID: p.org.ID, StackID: stack, Project: "p", Stack: stack, Version: int64(i/stacks) + 1,
		Operation: workflow.OperationUpdate, Initiator: "api", RequestedBy: "unknown", Requester: "ada", CreatedAt: at,
		Configuration: `{"sourceContext":{"git":{"repoUrl":"https://git.example/web.git","branch":"refs/heads/main","commit":"` + fmt.Sprintf("%040x", i) + `"}},"operationContext":{"preRunCommands":["` + strings.Repeat("make ", 300) + `"]}}`,
	}
	job := store.Job{
		ID: fmt.Sprintf("j%06d", i), DeploymentID: d.ID, OrgID: d.OrgID, StackID: stack, PoolID: p.pool, Operation: d.Operation, Version: d.Version,
		Status: workflow.StatusSucceeded, Epoch: 1, AgentID: fmt.Sprint("a", i%50), AgentHostname: "host", QueuedAt: at, ClaimedAt: at, StartedAt: at, EndedAt: at, ModifiedAt: at,
	}
	switch {
	case i >= total-300:
		job.Status, job.AgentID, job.ClaimedAt, job.StartedAt, job.EndedAt = workflow.StatusNotStarted, "", time.Time{}, time.Time{}, time.Time{}
	case i%10 == 0:
		job.Status, job.Reason = workflow.StatusFailed, workflow.ReasonExitCode
	}
	if err := tx.InsertDeployment(d); err != nil {
		return err
	}
	return tx.InsertJob(job)
}
