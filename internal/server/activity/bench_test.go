package activity_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/activity"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// BenchmarkList measures pages of the activity of an organization with 10 000 stacks, 100 000 deployments in the last week,
// and 50 000 entries of the audit log.
func BenchmarkList(b *testing.B) {
	for engine, open := range map[string]func(testing.TB) *store.DB{"sqlite": storetest.SQLite, "postgres": storetest.Postgres} {
		b.Run(engine, func(b *testing.B) {
			db := open(b)
			generate(b, db)
			service := activity.New(db, storetest.Log())
			week := time.Now().Add(-7 * 24 * time.Hour)
			many := principal(identity.RoleMember)
			many.User.ID = "many"
			admin, member, guest := principal(identity.RoleAdmin), principal(identity.RoleMember), principal(identity.RoleCollaborator)
			first := must.Get(service.List(b.Context(), admin, "org", activity.Query{Since: week}))(b)
			for _, c := range []struct {
				name  string
				who   identity.Principal
				query activity.Query
			}{
				{"everything", admin, activity.Query{}},
				{"second page", admin, activity.Query{After: first.Next}},
				{"settings and access", admin, activity.Query{Part: activity.Access}},
				{"deletes", admin, activity.Query{Part: activity.Deletes}},
				{"production", admin, activity.Query{Part: activity.Production}},
				{"mine", admin, activity.Query{Part: activity.Mine}},
				{"a word that no entry has", admin, activity.Query{Text: "nemo"}},
				{"of a stack", admin, activity.Query{Stack: "project-001/stack-00050"}},
				{"of a project", admin, activity.Query{Stack: "project-001"}},
				{"of a member with grants", member, activity.Query{}},
				{"of a guest", guest, activity.Query{}},
				{"of a member with many grants", many, activity.Query{}},
			} {
				b.Run(c.name, func(b *testing.B) {
					var times []time.Duration
					c.query.Since = week
					for b.Loop() {
						began := time.Now()
						if _, err := service.List(b.Context(), c.who, "org", c.query); err != nil {
							b.Fatal(err)
						}
						times = append(times, time.Since(began))
					}
					slices.Sort(times)
					b.ReportMetric(float64(times[0].Microseconds())/1000, "min-ms")
					b.ReportMetric(float64(times[len(times)*95/100].Microseconds())/1000, "p95-ms")
				})
			}
		})
	}
}

func principal(role string) identity.Principal {
	return identity.Principal{Kind: identity.KindUser, User: store.User{ID: "user", Login: "ada"}, Roles: map[string]string{"org": role}}
}

// generate adds 10 000 stacks and 100 000 deployments, of which every fourth only detects drift.
func generate(b *testing.B, db *store.DB) {
	b.Helper()
	const stacks, each = 10_000, 10
	write := func(fn func(tx *store.Tx) error) {
		b.Helper()
		must.OK(b, db.Write(b.Context(), scope.Server(), fn))
	}
	write(func(tx *store.Tx) error {
		if err := tx.InsertOrganization(store.Organization{ID: "org", Name: "acme"}); err != nil {
			return err
		}
		if err := tx.InsertUser(store.User{ID: "many", Login: "bob", Name: "Bob"}); err != nil {
			return err
		}
		return tx.InsertUser(store.User{ID: "user", Login: "ada", Name: "Ada"})
	})
	for from := 0; from < stacks; from += 500 {
		write(func(tx *store.Tx) error {
			for i := from; i < from+500; i++ {
				id := fmt.Sprintf("stack-%05d", i)
				if err := tx.InsertStack(store.Stack{ID: id, OrgID: "org", Project: fmt.Sprintf("project-%03d", i/40), Name: id}); err != nil {
					return err
				}
				if err := tx.SetStackTags(id, map[string]string{"env": []string{"prod", "staging", "dev"}[i%3]}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	begin := time.Now().Add(-6 * 24 * time.Hour).UnixMicro()
	for from := 0; from < stacks*each; from += 10_000 {
		write(func(tx *store.Tx) error {
			for _, statement := range []string{
				`INSERT INTO deployments (id, org_id, stack_id, project, stack, version, operation, initiator, requested_by, requester, configuration, created_at)
					SELECT 'd' || CAST(n AS TEXT), 'org', 'stack-' || SUBSTR('0000' || CAST((n * 7919) % 10000 AS TEXT), LENGTH('0000' || CAST((n * 7919) % 10000 AS TEXT)) - 4), '', '', n / 10000 + 1,
					CASE n % 4 WHEN 0 THEN 'detect-drift' ELSE 'update' END, 'api', CASE n % 9 WHEN 0 THEN 'user' ELSE '' END, 'ada', '{}', BEGIN + CAST(n AS BIGINT) * 4000000 FROM numbers`,
				`INSERT INTO jobs (id, deployment_id, org_id, stack_id, pool_id, pool_pinned, operation, version, skip_intermediate, status, reason, message,
					epoch, agent_id, agent_hostname, agent_version, poll_id, stock, cancel_requested, force_requested, steps, result, notes, queued_at, claimed_at, started_at,
					last_seen_at, ended_at, modified_at, drift_found)
					SELECT 'j' || d.id, d.id, d.org_id, d.stack_id, '', 0, d.operation, d.version, 0, 'succeeded', '', '', 1, '', '', '', '', 0, 0, 0, '[]', '[]', '[]', d.created_at, d.created_at,
					d.created_at, d.created_at, d.created_at + 60000000, d.created_at, CASE WHEN d.operation = 'detect-drift' AND n % 40 = 0 THEN 1 ELSE 0 END
					FROM numbers JOIN deployments d ON d.id = 'd' || CAST(n AS TEXT)`,
				`INSERT INTO updates (id, stack_id, kind, preview, status, version, requested_by, deployment_id, program, created_at, started_at, finished_at, lease_hash, lease_expires_at,
					reason, state_blob, state_schema, resource_count, resource_changes, next_sequence, message)
					SELECT 'u' || d.id, d.stack_id, 'update', 0, 'succeeded', d.version, d.requested_by, d.id, '', d.created_at, d.created_at + 1000, d.created_at + 2000, CAST('' AS BYTEA), 0,
					'', '', 0, 5, CASE n % 50 WHEN 1 THEN '{"delete":1,"same":4}' ELSE '{"update":2,"same":3}' END, 0, 'Move checkout to the new price service'
					FROM numbers JOIN deployments d ON d.id = 'd' || CAST(n AS TEXT) WHERE d.operation = 'update'`,
				`INSERT INTO audit_entries (id, org_id, at, actor_kind, actor_id, actor, token_id, token_name, action, subject_kind, subject_id, subject, address, way, detail, reads)
					SELECT 'a' || CAST(n AS TEXT), 'org', BEGIN + CAST(n AS BIGINT) * 4000000 + 77, 'user', 'user', 'ada', '', '', CASE n % 6 WHEN 0 THEN 'settings.changed' ELSE 'deployment.created' END,
					'stack', 'stack-00050', 'acme/project-001/stack-00050', '192.0.2.1', 'api', '{}', CASE n % 4 WHEN 2 THEN 3 ELSE 0 END FROM numbers WHERE n % 2 = 0`,
			} {
				_, err := tx.Exec(fmt.Sprintf("WITH RECURSIVE numbers (n) AS (SELECT %d UNION ALL SELECT n + 1 FROM numbers WHERE n < %d) ", from, from+9999) +
					strings.ReplaceAll(statement, "BEGIN", fmt.Sprint(begin)))
				if err != nil {
					return fmt.Errorf("%w: %s", err, statement)
				}
			}
			return nil
		})
	}
	write(func(tx *store.Tx) error {
		_, err := tx.Exec("INSERT INTO collaborators (stack_id, user_id, permission) SELECT stack_id, 'user', 101 FROM estate WHERE stack_id LIKE '%50'")
		if err != nil {
			return err
		}
		_, err = tx.Exec("INSERT INTO collaborators (stack_id, user_id, permission) SELECT stack_id, 'many', 101 FROM estate WHERE stack_id LIKE '%5'")
		return err
	})
	write(func(tx *store.Tx) error { _, err := tx.Exec("ANALYZE"); return err })
}
