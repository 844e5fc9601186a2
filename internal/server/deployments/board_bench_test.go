package deployments_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// The newest of the generated deployments was requested at this time.
var generatedUntil = time.UnixMicro(1_700_000_000_000_000 + 100_000*6_000_000)

// BenchmarkBoard measures the list of an organization's deployments, and the runs of a stack, with 10 000 stacks and
// 100 000 deployments in a week, for every filter.
func BenchmarkBoard(b *testing.B) {
	for engine, open := range map[string]func(testing.TB) *store.DB{"sqlite": storetest.SQLite, "postgres": storetest.Postgres} {
		b.Run(engine, func(b *testing.B) {
			db := open(b)
			p := newPlant(b, db, deployments.Options{})
			generateDeployments(b, db, p)
			if engine == "postgres" { // as autovacuum does
				if err := db.Write(b.Context(), scope.Server(), func(tx *store.Tx) error {
					_, err := tx.Exec("ANALYZE")
					return err
				}); err != nil {
					b.Fatal(err)
				}
			}
			admin, member := p.user, p.user
			member.Roles = map[string]string{p.org.ID: identity.RoleMember}
			collaborator := member
			collaborator.Roles = map[string]string{p.org.ID: identity.RoleCollaborator}
			since := generatedUntil.Add(-7 * 24 * time.Hour)
			for _, c := range []struct {
				name  string
				who   identity.Principal
				query deployments.Query
			}{
				{"all", admin, deployments.Query{}},
				{"of a week", admin, deployments.Query{Since: since}},
				{"of a member", member, deployments.Query{Since: since}},
				{"of a collaborator", collaborator, deployments.Query{Since: since}},
				{"running", admin, deployments.Query{State: deployments.StateStarted}},
				{"queued", admin, deployments.Query{State: waiting.StateQueued}},
				{"bad", admin, deployments.Query{State: deployments.StateBad, Since: since}},
				{"bad, of a member", member, deployments.Query{State: deployments.StateBad, Since: since}},
				{"succeeded", admin, deployments.Query{State: waiting.StateSucceeded}},
				{"drift", admin, deployments.Query{State: waiting.StateDrift}},
				{"cancelled", admin, deployments.Query{State: waiting.StateCancelled}},
				{"skipped", admin, deployments.Query{State: waiting.StateSkipped}},
				{"lost", admin, deployments.Query{State: waiting.StateLost}},
				{"project", admin, deployments.Query{Project: "project-077", Since: since}},
				{"project, of a collaborator", collaborator, deployments.Query{Project: "project-077", Since: since}},
				{"large project", admin, deployments.Query{Project: "large"}},
				{"unknown project", admin, deployments.Query{Project: "none"}},
				{"stack", admin, deployments.Query{Project: "project-077", Stack: "stack-03090"}},
				{"large stack", admin, deployments.Query{Project: "large", Stack: "stack-09999"}},
				{"rare operation", admin, deployments.Query{Operation: workflow.OperationDestroy}},
				{"frequent operation", admin, deployments.Query{Operation: workflow.OperationPreview}},
				{"rare operation, bad", admin, deployments.Query{Operation: workflow.OperationDestroy, State: deployments.StateBad}},
				{"rare pool", admin, deployments.Query{PoolID: "rare"}},
				{"frequent pool", admin, deployments.Query{PoolID: "usual"}},
				{"rare initiator", admin, deployments.Query{Initiator: "schedule", Since: since}},
				{"mine", admin, deployments.Query{Mine: true, Since: since}},
				{"who, rarely", admin, deployments.Query{Who: "eve"}},
				{"who, often", admin, deployments.Query{Who: "bob", Since: since}},
				{"number", admin, deployments.Query{Text: "#7"}},
				{"text", admin, deployments.Query{Text: "nothing like this"}},
				{"stack by text", admin, deployments.Query{Text: "stack-099"}},
				{"later page", admin, deployments.Query{After: fmt.Sprintf("%d-d50000", 1_700_000_000_000_000+50_000*6_000_000)}},
			} {
				measure(b, c.name, func() error {
					_, err := p.service.Board(b.Context(), c.who, p.org.ID, c.query)
					return err
				})
			}
			st := store.Stack{ID: "stack-09999", OrgID: p.org.ID, OrgName: p.org.Name, Project: "large", Name: "stack-09999"}
			for _, c := range []struct {
				name  string
				query deployments.RunQuery
			}{
				{"runs", deployments.RunQuery{}},
				{"runs, previews", deployments.RunQuery{Kind: "preview"}},
				{"runs, rare kind", deployments.RunQuery{Kind: "destroy"}},
				{"runs, lost", deployments.RunQuery{State: waiting.StateLost}},
				{"runs, who", deployments.RunQuery{Who: "eve"}},
			} {
				measure(b, c.name, func() error {
					_, err := p.service.Runs(b.Context(), admin, st, c.query)
					return err
				})
			}
		})
	}
}

func measure(b *testing.B, name string, fn func() error) {
	b.Run(name, func(b *testing.B) {
		var times []time.Duration
		for b.Loop() {
			began := time.Now()
			if err := fn(); err != nil {
				b.Fatal(err)
			}
			times = append(times, time.Since(began))
		}
		slices.Sort(times)
		b.ReportMetric(float64(times[0].Microseconds())/1000, "min-ms")
		b.ReportMetric(float64(times[len(times)*95/100].Microseconds())/1000, "p95-ms")
	})
}

// generateDeployments adds 10 000 stacks and 100 000 deployments, of which the last stack has 10 000.
func generateDeployments(b *testing.B, db *store.DB, p *plant) {
	b.Helper()
	const stacks = 10_000
	write := func(fn func(tx *store.Tx) error) {
		b.Helper()
		if err := db.Write(b.Context(), scope.Server(), fn); err != nil {
			b.Fatal(err)
		}
	}
	write(func(tx *store.Tx) error {
		for _, login := range []string{"bob", "eve"} {
			if err := tx.InsertUser(store.User{ID: login, Login: login, Name: login}); err != nil {
				return err
			}
		}
		return nil
	})
	for from := 0; from < stacks; from += 500 {
		write(func(tx *store.Tx) error {
			for i := from; i < from+500; i++ {
				id, project := fmt.Sprintf("stack-%05d", i), fmt.Sprintf("project-%03d", i/40)
				if i == stacks-1 {
					project = "large"
				}
				if err := tx.InsertStack(store.Stack{ID: id, OrgID: p.org.ID, Project: project, Name: id}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	write(func(tx *store.Tx) error {
		_, err := tx.Exec("INSERT INTO collaborators (stack_id, user_id, permission) SELECT id, '" + p.user.User.ID + "', 101 FROM stacks WHERE id LIKE 'stack-%3'")
		return err
	})
	numbers := "WITH RECURSIVE numbers (n) AS (SELECT CAST(%d AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < %d) "
	stack := "'stack-' || SUBSTR('0000' || CAST(CASE WHEN n %% 10 = 9 THEN 9999 ELSE (n * 7919) %% 9999 END AS TEXT), LENGTH('0000' || CAST(CASE WHEN n %% 10 = 9 THEN 9999 ELSE (n * 7919) %% 9999 END AS TEXT)) - 4)"
	for from := 0; from < 100_000; from += 10_000 {
		write(func(tx *store.Tx) error {
			for _, statement := range []string{
				fmt.Sprintf(numbers+`INSERT INTO deployments (id, org_id, stack_id, project, stack, version, operation, initiator, requested_by, requester, configuration, created_at)
					SELECT 'd' || CAST(n AS TEXT), '%s', `+stack+`, '', '', n + 1, CASE WHEN n %% 3001 = 5 THEN 'destroy' WHEN n %% 5 = 0 THEN 'preview' ELSE 'update' END,
					CASE WHEN n %% 50000 = 7 THEN 'schedule' ELSE 'git-push' END, CASE WHEN n %% 40000 = 9 THEN 'eve' WHEN n %% 20 = 3 THEN '%s' ELSE 'bob' END, 'someone', '{}',
					1700000000000000 + n * 6000000 FROM numbers`, from, from+9999, p.org.ID, p.user.User.ID),
				fmt.Sprintf(numbers+`INSERT INTO jobs (id, deployment_id, org_id, stack_id, pool_id, pool_pinned, operation, version, skip_intermediate, status, reason, message,
					epoch, agent_id, agent_hostname, agent_version, poll_id, stock, cancel_requested, force_requested, steps, result, notes, queued_at, claimed_at, started_at,
					last_seen_at, ended_at, modified_at, drift_found)
					SELECT 'j' || d.id, d.id, d.org_id, d.stack_id, CASE WHEN n %% 25000 = 3 THEN 'rare' ELSE 'usual' END, 0, d.operation, d.version, 0,
					CASE WHEN n %% 17 = 0 OR n %% 30000 = 2 THEN 'failed' WHEN n %% 31 = 0 THEN 'skipped' ELSE 'succeeded' END,
					CASE WHEN n %% 17 = 0 THEN 'exit-code' WHEN n %% 30000 = 2 THEN 'lost' WHEN n %% 62 = 31 THEN 'cancelled' ELSE '' END, '', 1, 'a', 'host', '', '', 0, 0, 0,
					'[{"name":"pulumi update"}]', '[]', '[]', d.created_at, d.created_at, d.created_at + 1, d.created_at, d.created_at + 60000000, d.created_at,
					CASE WHEN n %% 17017 = 0 THEN 1 ELSE 0 END FROM numbers JOIN deployments d ON d.id = 'd' || CAST(n AS TEXT)`, from, from+9999),
				fmt.Sprintf(numbers+`INSERT INTO updates (id, stack_id, kind, preview, status, version, requested_by, deployment_id, program, created_at, started_at, finished_at, lease_hash,
					lease_expires_at, reason, state_blob, state_schema, resource_count, resource_changes, next_sequence, state_expired, events_expired, journal_version, checkpoint_sequence, token_id, message)
					SELECT 'u' || d.id, d.stack_id, 'update', 0, 'succeeded', d.version, d.requested_by, d.id, '', d.created_at, d.created_at, d.created_at, '', 0, '', '', 0, 0,
					'{"create":1,"same":40}', 0, 0, 0, 0, 0, '', 'Move checkout' FROM numbers JOIN deployments d ON d.id = 'd' || CAST(n AS TEXT) WHERE d.operation = 'update'`, from, from+9999),
			} {
				if _, err := tx.Exec(statement); err != nil {
					return fmt.Errorf("%w: %s", err, statement)
				}
			}
			return nil
		})
	}
	write(func(tx *store.Tx) error { // the newest deployments are queued and running
		if _, err := tx.Exec("UPDATE estate SET deployments = (SELECT COUNT(*) FROM deployments d WHERE d.stack_id = estate.stack_id)"); err != nil {
			return err
		}
		_, err := tx.Exec("UPDATE jobs SET status = CASE WHEN version > 99970 AND stack_id <> 'stack-09999' THEN 'running' ELSE 'not-started' END, reason = '', ended_at = 0 WHERE version > 99600")
		return err
	})
}
