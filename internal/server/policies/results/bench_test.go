package results_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// BenchmarkPages measures what the pages about policies read, with 10 000 stacks, 100 000 open and 50 000 closed issues,
// 100 000 evaluations and 30 000 results of packs.
func BenchmarkPages(b *testing.B) {
	for engine, open := range map[string]func(testing.TB) *store.DB{"sqlite": storetest.SQLite, "postgres": storetest.Postgres} {
		b.Run(engine, func(b *testing.B) {
			db := open(b)
			fill(b, db)
			found := results.New(db, results.Options{Log: storetest.Log()})
			queue := evaluations.New(db, evaluations.Options{Log: storetest.Log()})
			groups := policies.New(db, policies.Options{Log: storetest.Log()})
			packs := []string{"pack-0", "pack-1", "pack-2", "pack-3", "pack-4", "pack-5", "pack-6"}
			org := store.Organization{ID: "org", Name: "acme"}
			who := func(role string) identity.Principal {
				return identity.Principal{Kind: identity.KindUser, User: store.User{ID: "user", Login: "ada"}, Roles: map[string]string{"org": role}}
			}
			admin, member, guest := who(identity.RoleAdmin), who(identity.RoleMember), who(identity.RoleCollaborator)
			is := func(column, op, value string) []store.IssueCondition {
				return []store.IssueCondition{{Column: column, Op: op, Value: value}}
			}
			issues := func(who identity.Principal, q results.Query, after string) func(context.Context) error {
				q.Size = 100
				return func(ctx context.Context) error {
					_, err := found.IssuePage(ctx, who, org, q, after)
					return err
				}
			}
			evaluated := func(who identity.Principal, q evaluations.Query) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := queue.Page(ctx, who, "org", q)
					return err
				}
			}
			matrix := func(who identity.Principal, by string) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := found.Compliance(ctx, who, org, by, "", 100)
					return err
				}
			}
			for _, c := range []struct {
				name string
				read func(ctx context.Context) error
			}{
				{"issues", issues(admin, results.Query{}, "")},
				{"issues, a later page", issues(admin, results.Query{}, "1700000050000000-i")},
				{"issues, all", issues(admin, results.Query{All: true}, "")},
				{"issues, closed", issues(admin, results.Query{Closed: true}, "")},
				{"issues of a pack that has none", issues(admin, results.Query{Where: is("policyPack", "equals", "none")}, "")},
				{"issues with a word that none has", issues(admin, results.Query{Where: is("message", "contains", "nemo")}, "")},
				{"issues of a stack", issues(admin, results.Query{StackID: "s9999"}, "")},
				{"issues of a member with grants", issues(member, results.Query{}, "")},
				{"issues of a guest", issues(guest, results.Query{}, "")},
				{"packs", func(ctx context.Context) error { _, err := found.OpenOfPacks(ctx, admin, org, packs); return err }},
				{"packs of a guest", func(ctx context.Context) error { _, err := found.OpenOfPacks(ctx, guest, org, packs); return err }},
				{"groups", func(ctx context.Context) error { _, _, err := groups.GroupPage(ctx, "org", "", 100); return err }},
				{"evaluations", evaluated(admin, evaluations.Query{})},
				{"evaluations, a later page", evaluated(admin, evaluations.Query{After: "1700000050000000-e"})},
				{"failed evaluations", evaluated(admin, evaluations.Query{State: evaluations.Failed})},
				{"unfinished evaluations", evaluated(admin, evaluations.Query{State: evaluations.Unfinished})},
				{"evaluations of a group", evaluated(admin, evaluations.Query{Group: "audit"})},
				{"evaluations of a stack", evaluated(admin, evaluations.Query{Stack: "project-009/s9999"})},
				{"evaluations of a member with grants", evaluated(member, evaluations.Query{})},
				{"evaluations of a guest", evaluated(guest, evaluations.Query{})},
				{"compliance", matrix(admin, results.ByStack)},
				{"compliance by severity", matrix(admin, results.BySeverity)},
			} {
				b.Run(c.name, func(b *testing.B) {
					var times []time.Duration
					for b.Loop() {
						began := time.Now()
						if err := c.read(b.Context()); err != nil {
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

// fill adds what [BenchmarkPages] reads. Users see the stacks of the organization only by grants.
func fill(b *testing.B, db *store.DB) {
	b.Helper()
	write := func(fn func(tx *store.Tx) error) {
		b.Helper()
		if err := db.Write(b.Context(), scope.Server(), fn); err != nil {
			b.Fatal(err)
		}
	}
	write(func(tx *store.Tx) error {
		if err := tx.InsertOrganization(store.Organization{ID: "org", Name: "acme"}); err != nil {
			return err
		}
		for i := range 7 {
			name := fmt.Sprint("pack-", i)
			if err := tx.InsertPolicyPack(store.PolicyPack{ID: name, OrgID: "org", Name: name}); err != nil {
				return err
			}
		}
		if err := tx.InsertPolicyGroup(store.PolicyGroup{ID: "audit", OrgID: "org", Name: "audit", EntityType: policies.Stacks, Mode: policies.Audit, AllStacks: true}); err != nil {
			return err
		}
		return tx.InsertUser(store.User{ID: "user", Login: "ada", Name: "Ada"})
	})
	levels := `'[{"name":"tags","level":"mandatory"},{"name":"size","level":"advisory"}]'`
	for _, rows := range []struct {
		n      int
		insert string
	}{
		{10_000, `INSERT INTO stacks (id, org_id, project, name, created_by, created_at, version, state_blob, state_schema, resource_count, active_update, last_update_at, config)
			SELECT 's' || i, 'org', 'project-00' || (i % 10), 's' || i, '', 0, 1, 'blob', 0, 0, '', 0, '' FROM n`},
		{150_000, `INSERT INTO policy_issues (id, org_id, stack_id, kind, pack, policy, urn, message_hash, message, tag, level, severity, resource_type, resource_name, group_name,
				status, priority, assigned_to, reason, ignored_until, exceptions, version, observed_at, seen_at, modified_at, fixed_at, reopened, seen_in, evaluated_in)
			SELECT 'i' || i, 'org', 's' || (i % 10000), 'preventative', 'pack-' || (i % 7), 'tags', 'urn:pulumi:prod::web::aws:s3/bucket:Bucket::bucket-' || i, i,
				'The bucket has no tag that says who pays for it, which the rules of the organization require: bucket-' || i, '1.0.0',
				CASE i % 2 WHEN 0 THEN 'mandatory' ELSE 'advisory' END, 'high', 'aws:s3/bucket:Bucket', 'bucket', 'default-policy-group',
				CASE WHEN i % 3 = 0 THEN 'fixed' ELSE 'open' END, 'p3', '', '', 0, '[]', 7, 1700000000000000 + i, 0, 0, CASE WHEN i % 3 = 0 THEN 1 ELSE 0 END, 0, '', '' FROM n`},
		{100_000, `INSERT INTO policy_evaluations (id, org_id, stack_id, group_id, cause, status, queued_at, modified_at, ended_at)
			SELECT 'e' || i, 'org', 's' || (i % 10000), 'audit', 'update', CASE WHEN i % 1000 = 0 THEN 'failed' ELSE 'succeeded' END, 1700000000000000 + i, 0, 1700000000000000 + i FROM n`},
		{30_000, `INSERT INTO policy_standings (stack_id, kind, pack, pack_id, number, tag, group_name, version, at, ran, problem, levels, counts)
			SELECT 's' || (i % 10000), 'audit', 'pack-' || (i / 10000), 'pack', 1, '1.0.0', 'audit', 7, 0, 1, '', ` + levels + `, '[{"policy":"tags","passed":3,"failed":1}]' FROM n`},
		{1, "INSERT INTO collaborators (stack_id, user_id, permission) SELECT id, 'user', 101 FROM stacks WHERE id LIKE 's%7'"},
	} {
		const each = 10_000
		for from := 0; from < rows.n; from += each {
			write(func(tx *store.Tx) error {
				_, err := tx.Exec(fmt.Sprintf("WITH RECURSIVE n (i) AS (SELECT %d UNION ALL SELECT i + 1 FROM n WHERE i < %d) ", from, min(from+each, rows.n)-1) + rows.insert)
				return err
			})
		}
	}
	if db.Shared() {
		write(func(tx *store.Tx) error { _, err := tx.Exec("ANALYZE"); return err })
	}
}
