package home_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/console/home"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// BenchmarkNumbers measures what the numbers of the navigation add to each page.
func BenchmarkNumbers(b *testing.B) {
	for engine, open := range map[string]func(testing.TB) *store.DB{"sqlite": storetest.SQLite, "postgres": storetest.Postgres} {
		b.Run(engine, func(b *testing.B) {
			db := open(b)
			populate(b, db)
			log := storetest.Log()
			counters := home.Counters{
				Deployments: deployments.New(db, deployments.Options{Log: log}), Pools: pools.New(db, log), Stacks: stacks.New(db, stacks.Options{Log: log}), Estate: estate.New(db, log), Invitations: invitations.New(db, log),
			}
			for _, role := range []string{identity.RoleAdmin, identity.RoleMember, identity.RoleCollaborator} {
				b.Run(role, func(b *testing.B) {
					who := identity.Principal{Kind: identity.KindUser, User: store.User{ID: "user"}, Roles: map[string]string{"org": role}}
					var times []time.Duration
					for b.Loop() {
						began := time.Now()
						n, err := counters.Numbers(b.Context(), who, store.Organization{ID: "org", Name: "acme"})
						if err != nil {
							b.Fatal(err)
						}
						if times = append(times, time.Since(began)); len(times) == 1 {
							b.Logf("%+v", n)
						}
					}
					slices.Sort(times)
					b.ReportMetric(float64(times[0].Microseconds())/1000, "min-ms")
					b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "median-ms")
					b.ReportMetric(float64(times[len(times)*95/100].Microseconds())/1000, "p95-ms")
				})
			}
		})
	}
}

// populate adds 10 000 stacks, of which some are failed, drifted or running, 100 000 deployments, of which 300 are queued and
// 30 run, and a pool with 100 agents.
func populate(b *testing.B, db *store.DB) {
	b.Helper()
	write := func(fn func(tx *store.Tx) error) {
		b.Helper()
		if err := db.Write(b.Context(), scope.Server(), fn); err != nil {
			b.Fatal(err)
		}
	}
	write(func(tx *store.Tx) error {
		if err := tx.InsertOrganization(store.Organization{ID: "org", Name: "acme", StackPermission: store.ReadPermission}); err != nil {
			return err
		}
		if err := tx.InsertPool(store.AgentPool{ID: "pool", OrgID: "org", Name: "pool"}); err != nil {
			return err
		}
		for i := range 100 {
			if err := tx.SaveAgent(store.PoolAgent{PoolID: "pool", AgentID: fmt.Sprint(i), LastSeenAt: tx.Now()}); err != nil {
				return err
			}
		}
		return tx.InsertUser(store.User{ID: "user", Login: "ada"})
	})
	for from := 0; from < 10_000; from += 500 {
		write(func(tx *store.Tx) error {
			for i := from; i < from+500; i++ {
				if err := tx.InsertStack(store.Stack{ID: fmt.Sprint("s", i), OrgID: "org", Project: fmt.Sprint("p", i/40), Name: fmt.Sprint("s", i), ResourceCount: int64(i)}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for from := 0; from < 100_000; from += 10_000 {
		write(func(tx *store.Tx) error {
			return run(tx, fmt.Sprintf(`WITH RECURSIVE numbers (n) AS (SELECT CAST(%[1]d AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < %[2]d)
				INSERT INTO deployments (id, org_id, stack_id, project, stack, version, operation, initiator, requested_by, requester, configuration, created_at)
				SELECT 'd' || CAST(n AS TEXT), 'org', 's' || CAST(n %% 10000 AS TEXT), '', '', n + 1, 'update', 'api', 'user', 'ada', '{}', 1700000000000000 + n FROM numbers`, from, from+9999),
				fmt.Sprintf(`INSERT INTO jobs (id, deployment_id, org_id, stack_id, pool_id, pool_pinned, operation, version, skip_intermediate, status, reason, message,
					epoch, agent_id, agent_hostname, agent_version, poll_id, stock, cancel_requested, force_requested, steps, result, notes, queued_at, claimed_at, started_at,
					last_seen_at, ended_at, modified_at)
				SELECT 'j' || id, id, org_id, stack_id, 'pool', 0, operation, version, 0, CASE WHEN version > 99970 THEN 'running' WHEN version > 99670 THEN 'not-started' ELSE 'succeeded' END, '', '', 1, '1', 'host', '', '', 0, 0, 0,
					'[]', '[]', '[]', created_at, created_at, created_at, created_at, CASE WHEN version > 99670 THEN 0 ELSE created_at + 60000000 END, created_at
				FROM deployments WHERE created_at BETWEEN 1700000000000000 + %d AND 1700000000000000 + %d`, from, from+9999))
		})
	}
	write(func(tx *store.Tx) error {
		return run(tx, `UPDATE estate SET rank = CASE WHEN resources % 13 = 0 THEN 0 WHEN resources % 17 = 0 THEN 1 WHEN resources > 9970 THEN 2 ELSE 5 END`,
			`INSERT INTO updates (id, stack_id, kind, preview, status, version, requested_by, deployment_id, program, created_at, started_at, finished_at, lease_hash,
				lease_expires_at, reason, state_blob, state_schema, resource_count, resource_changes, next_sequence, state_expired, events_expired, journal_version, checkpoint_sequence, token_id, message)
				SELECT 'u' || id, id, 'update', 0, 'running', 1, 'user', '', '', 0, 0, 0, '', 9000000000000000, '', '', 0, 0, '', 0, 0, 0, 0, 0, '', '' FROM stacks WHERE resource_count > 9970`,
			"UPDATE stacks SET active_update = 'u' || id WHERE resource_count > 9970",
			"INSERT INTO collaborators (stack_id, user_id, permission) SELECT id, 'user', 101 FROM stacks WHERE resource_count % 3 = 0",
			"ANALYZE") // as servers and autovacuum do
	})
}

func run(tx *store.Tx, statements ...string) error {
	for _, s := range statements {
		if _, err := tx.Exec(s); err != nil {
			return fmt.Errorf("%w: %s", err, s)
		}
	}
	return nil
}
