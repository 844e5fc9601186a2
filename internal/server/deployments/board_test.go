package deployments_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// listedIn describes a board: the running, queued and finished deployments.
func listedIn(b deployments.Board) string {
	return versions(b.Running) + " | " + versions(b.Waiting) + " | " + versions(b.Finished)
}

// TestBoard checks the list of all deployments with its filters and numbers, and that callers find only deployments of
// stacks that they may see, by none of the filters.
func TestBoard(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		a, b := p.stack("a"), p.stack("b")
		other, err := p.stacks.Create(t.Context(), p.user, stacks.NewStack{Org: p.org, Project: "other", Name: "c"})
		p.must(err)
		end := func(st store.Stack, agent string, status workflow.Status) {
			p.deploy(st)
			c := p.poll(agent)
			p.must(p.heartbeat(c, protocol.PhaseRunning))
			p.must(p.result(c, status))
		}
		end(a, "agent1", workflow.StatusFailed)
		end(other, "agent1", workflow.StatusSucceeded)
		old := p.deploy(b)
		c := p.poll("agent1")
		p.must(p.heartbeat(c, protocol.PhaseRunning))
		p.must(p.result(c, workflow.StatusSucceeded))
		p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			for _, statement := range []string{
				"UPDATE jobs SET queued_at = queued_at - 3600000000 WHERE deployment_id = $1", "UPDATE deployments SET created_at = created_at - 3600000000 WHERE id = $1",
			} {
				if _, err := tx.Exec(statement, old); err != nil {
					return err
				}
			}
			for _, u := range []store.User{{ID: "eve", Login: "eve", Name: "Eve"}, {ID: "guest", Login: "guest", Name: "Guest"}} {
				if err := tx.InsertUser(u); err != nil {
					return err
				}
				if err := tx.InsertMember(store.Member{OrgID: p.org.ID, UserID: u.ID, Role: identity.RoleCollaborator}); err != nil {
					return err
				}
			}
			_, err := tx.Exec("INSERT INTO collaborators (stack_id, user_id, permission) VALUES ($1, 'guest', 101)", other.ID)
			return err
		}))
		p.deploy(b)
		p.poll("agent2")
		p.deploy(b)
		p.deploy(a)
		p.deploy(other)
		principal := func(id, role string) identity.Principal {
			return identity.Principal{Kind: identity.KindUser, User: store.User{ID: id, Login: id}, Roles: map[string]string{p.org.ID: role}}
		}
		guest, eve, member := principal("guest", identity.RoleCollaborator), principal("eve", identity.RoleCollaborator), principal("member", identity.RoleMember)
		recent := time.Now().Add(-time.Minute)
		const nothing = " |  | "
		for _, tt := range []struct {
			name                 string
			who                  identity.Principal
			q                    deployments.Query
			want                 string
			running, queued, bad int64
			older                bool
		}{
			{"all", p.user, deployments.Query{}, "b#2 | b#3 a#2 c#2 | c#1 a#1 b#1", 1, 3, 1, false},
			{"recent", p.user, deployments.Query{Since: recent}, "b#2 | b#3 a#2 c#2 | c#1 a#1", 1, 3, 1, true},
			{"of a member", member, deployments.Query{}, "b#2 | b#3 a#2 c#2 | c#1 a#1 b#1", 1, 3, 1, false},
			{"of a guest", guest, deployments.Query{}, " | c#2 | c#1", 0, 1, 0, false},
			{"of a guest, of a project", guest, deployments.Query{Project: "proj"}, nothing, 0, 0, 0, false},
			{"of a guest, of a stack", guest, deployments.Query{Project: "proj", Stack: "a"}, nothing, 0, 0, 0, false},
			{"of a guest, by text", guest, deployments.Query{Text: "#1"}, " |  | c#1", 0, 1, 0, false},
			{"of a guest, by who", guest, deployments.Query{Who: "admin"}, " | c#2 | c#1", 0, 1, 0, false},
			{"of a guest, failed", guest, deployments.Query{State: deployments.StateBad}, nothing, 0, 1, 0, false},
			{"of a guest, by initiator", guest, deployments.Query{Initiator: "api", Since: recent}, " | c#2 | c#1", 0, 1, 0, false},
			{"of a collaborator without stacks", eve, deployments.Query{}, nothing, 0, 0, 0, false},
			{"of a project", p.user, deployments.Query{Project: "other"}, " | c#2 | c#1", 0, 1, 0, false},
			{"of a stack", p.user, deployments.Query{Project: "proj", Stack: "b"}, "b#2 | b#3 | b#1", 1, 1, 0, false},
			{"of a stack of another project", p.user, deployments.Query{Project: "other", Stack: "b"}, nothing, 0, 0, 0, false},
			{"of no project", p.user, deployments.Query{Project: "none"}, nothing, 0, 0, 0, false},
			{"bad", p.user, deployments.Query{State: deployments.StateBad}, " |  | a#1", 1, 3, 1, false},
			{"bad, of a stack", p.user, deployments.Query{Project: "proj", Stack: "a", State: deployments.StateBad}, " |  | a#1", 0, 1, 1, false},
			{"started", p.user, deployments.Query{State: deployments.StateStarted}, "b#2 |  | ", 1, 3, 1, false},
			{"queued", p.user, deployments.Query{State: waiting.StateQueued}, " | b#3 a#2 c#2 | ", 1, 3, 1, false},
			{"succeeded, recent", p.user, deployments.Query{State: waiting.StateSucceeded, Since: recent}, " |  | c#1", 1, 3, 1, true},
			{"by an operation", p.user, deployments.Query{Operation: workflow.OperationDestroy}, nothing, 0, 0, 0, false},
			{"by pool", p.user, deployments.Query{PoolID: p.pool}, "b#2 | b#3 a#2 c#2 | c#1 a#1 b#1", 1, 3, 1, false},
			{"by who", p.user, deployments.Query{Who: "admin", Project: "proj"}, "b#2 | b#3 a#2 | a#1 b#1", 1, 2, 0, false},
			{"by an unknown user", p.user, deployments.Query{Who: "nobody"}, nothing, 0, 0, 0, false},
			{"by another one", p.user, deployments.Query{Who: "eve"}, nothing, 0, 0, 0, false},
			{"mine, but by another one", p.user, deployments.Query{Mine: true, Who: "eve"}, nothing, 0, 0, 0, false},
			{"by the name of the stack", p.user, deployments.Query{Text: "OTHER/"}, " | c#2 | c#1", 1, 3, 1, false},
		} {
			found, err := p.service.Board(t.Context(), tt.who, p.org.ID, tt.q)
			p.must(err)
			if got := listedIn(found); got != tt.want || found.Queues.Running != tt.running || found.Queues.Queued != tt.queued || found.Bad != tt.bad || found.Older != tt.older {
				t.Errorf("%s: %q, %d running, %d queued, %d bad, older: %t; want %q, %d, %d, %d, %t", tt.name, got,
					found.Queues.Running, found.Queues.Queued, found.Bad, found.Older, tt.want, tt.running, tt.queued, tt.bad, tt.older)
			}
		}
		if _, err := p.service.Board(t.Context(), identity.Principal{Kind: identity.KindUser, User: store.User{ID: "x"}}, p.org.ID, deployments.Query{}); err == nil {
			t.Error("a stranger may list deployments")
		}
		for _, q := range []deployments.Query{{State: "unknown"}, {After: "x"}, {Text: strings.Repeat("x", 300)}} {
			if _, err := p.service.Board(t.Context(), p.user, p.org.ID, q); err == nil {
				t.Errorf("the query %+v is accepted", q)
			}
		}
	})
}

// TestBoardPages follows the pages of finished deployments, and of a filter by project, to their ends.
func TestBoardPages(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		st := p.stack("a")
		const all = deployments.PageSize + 7
		p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			for i := range all {
				at := time.UnixMicro(1_700_000_000_000_000 + int64(i/3)) // some were requested at the same time
				id := fmt.Sprintf("d%03d", i)
				if err := tx.InsertDeployment(store.Deployment{ID: id, OrgID: p.org.ID, StackID: st.ID, Version: int64(i + 1), Operation: "update", Configuration: "{}", CreatedAt: at}); err != nil {
					return err
				}
				if err := tx.InsertJob(store.Job{ID: "j" + id, DeploymentID: id, OrgID: p.org.ID, StackID: st.ID, Operation: "update", Version: int64(i + 1), Status: workflow.StatusFailed, QueuedAt: at, EndedAt: at}); err != nil {
					return err
				}
			}
			return nil
		}))
		for _, q := range []deployments.Query{{}, {Project: "proj"}, {Project: "proj", Stack: "a"}, {State: deployments.StateBad}, {Operation: "update"}} {
			var seen []int64
			for pages := 0; ; pages++ {
				found, err := p.service.Board(t.Context(), p.user, p.org.ID, q)
				p.must(err)
				for _, d := range found.Finished.Items {
					seen = append(seen, d.Version)
				}
				if q.After = found.Finished.Next; q.After == "" || pages > 3 {
					break
				}
			}
			slices.Sort(seen)
			if seen = slices.Compact(seen); len(seen) != all {
				t.Errorf("%+v lists %d different deployments, want %d", q, len(seen), all)
			}
		}
	})
}

// TestRuns checks the runs of a stack: deployments, and updates that none ran, by kind, result and requester.
func TestRuns(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		st, b := p.stack("a"), p.stack("b")
		p.deploy(st)
		c := p.poll("agent1")
		p.must(p.heartbeat(c, protocol.PhaseRunning))
		p.must(p.result(c, workflow.StatusFailed))
		p.deploy(st)
		p.deploy(b)
		later := time.Now().Add(time.Hour)
		p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			if err := tx.InsertUser(store.User{ID: "eve", Login: "eve", Name: "Eve"}); err != nil {
				return err
			}
			for i, u := range []store.Update{
				{ID: "u1", Kind: "update", Status: "succeeded", Version: 1, RequestedBy: "eve", Message: "by hand", ResourceChanges: `{"create":2}`},
				{ID: "u2", Kind: "preview", Preview: true, Status: "failed", Version: 1},
				{ID: "u3", Kind: "destroy", Status: "cancelled", Version: 2, RequestedBy: "eve"},
				{ID: "u4", Kind: "update", Preview: true, Status: "running", Version: 2, RequestedBy: p.user.User.ID},
			} {
				u.StackID, u.CreatedAt, u.StartedAt = st.ID, later.Add(time.Duration(i)*time.Second), later
				if u.Status != "running" {
					u.FinishedAt = later
				}
				if err := tx.InsertUpdate(u); err != nil {
					return err
				}
			}
			return nil
		}))
		describe := func(l deployments.RunListing) string {
			var out []string
			for _, r := range l.Items {
				if r.Deployment != nil {
					out = append(out, fmt.Sprintf("#%d", r.Deployment.Version))
				} else {
					out = append(out, r.Update.ID+"/"+r.By)
				}
			}
			return strings.Join(out, " ")
		}
		for _, tt := range []struct {
			name string
			q    deployments.RunQuery
			want string
		}{
			{"all", deployments.RunQuery{}, "u4/admin u3/eve u2/ u1/eve #2 #1"},
			{"updates", deployments.RunQuery{Kind: "update"}, "u1/eve #2 #1"},
			{"previews", deployments.RunQuery{Kind: "preview"}, "u4/admin u2/"},
			{"destroys", deployments.RunQuery{Kind: "destroy"}, "u3/eve"},
			{"detections", deployments.RunQuery{Kind: "detect-drift"}, ""},
			{"bad", deployments.RunQuery{State: deployments.StateBad}, "u2/ #1"},
			{"succeeded", deployments.RunQuery{State: waiting.StateSucceeded}, "u1/eve"},
			{"cancelled", deployments.RunQuery{State: waiting.StateCancelled}, "u3/eve"},
			{"queued", deployments.RunQuery{State: waiting.StateQueued}, "#2"},
			{"running", deployments.RunQuery{State: deployments.StateStarted}, "u4/admin"},
			{"lost", deployments.RunQuery{State: waiting.StateLost}, ""},
			{"mine", deployments.RunQuery{Mine: true}, "u4/admin #2 #1"},
			{"by eve", deployments.RunQuery{Who: "eve"}, "u3/eve u1/eve"},
			{"by eve, updates", deployments.RunQuery{Who: "eve", Kind: "update"}, "u1/eve"},
			{"by an unknown user", deployments.RunQuery{Who: "nobody"}, ""},
			{"mine, but by eve", deployments.RunQuery{Who: "eve", Mine: true}, ""},
		} {
			var got []string
			for _, limit := range []int{0, 1, 2} { // in pages of different sizes
				var list []string
				q := tt.q
				for q.Limit = limit; ; {
					found, err := p.service.Runs(t.Context(), p.user, st, q)
					p.must(err)
					if len(found.Items) > 0 {
						list = append(list, describe(found))
					}
					if q.After = found.Next; q.After == "" {
						break
					}
				}
				got = append(got, strings.Join(list, " "))
			}
			if got[0] != tt.want || got[1] != tt.want || got[2] != tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
		stranger := identity.Principal{Kind: identity.KindUser, User: store.User{ID: "eve"}, Roles: map[string]string{p.org.ID: identity.RoleCollaborator}}
		if _, err := p.service.Runs(t.Context(), stranger, st, deployments.RunQuery{}); err == nil {
			t.Error("a collaborator without a permission reads the runs")
		}
		for _, q := range []deployments.RunQuery{{State: "unknown"}, {After: "x"}, {After: "d-x-y"}, {Kind: strings.Repeat("x", 300)}} {
			if _, err := p.service.Runs(t.Context(), p.user, st, q); err == nil {
				t.Errorf("the query %+v is accepted", q)
			}
		}
	})
}
