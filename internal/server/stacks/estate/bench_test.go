package estate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// BenchmarkList measures pages of a list of 10 000 stacks with 100 000 deployments.
func BenchmarkList(b *testing.B) {
	for engine, open := range map[string]func(testing.TB) *store.DB{"sqlite": storetest.SQLite, "postgres": storetest.Postgres} {
		b.Run(engine, func(b *testing.B) {
			db := open(b)
			generate(b, db, 10_000, 10)
			service := estate.New(db, storetest.Log())
			admin := principal(identity.RoleAdmin)
			member := principal(identity.RoleMember)
			for _, c := range []struct {
				name  string
				who   identity.Principal
				query estate.Query
			}{
				{"by state, in projects", admin, estate.Query{Group: store.GroupByProject}},
				{"by name", admin, estate.Query{Sort: store.SortByName}},
				{"by change, in owners", admin, estate.Query{Sort: store.SortByChange, Group: store.GroupByOwner}},
				{"in tags", admin, estate.Query{Group: store.GroupByTag + "env"}},
				{"words", admin, estate.Query{Text: "prod stack-77 team", Group: store.GroupByProject}},
				{"failed", admin, estate.Query{States: []estate.State{estate.Failed}, Group: store.GroupByProject}},
				{"with a tag", admin, estate.Query{TagName: "env", TagValue: "prod", Sort: store.SortByResources}},
				{"starred", admin, estate.Query{Starred: true}},
				{"last page", admin, estate.Query{Group: store.GroupByProject, Page: 100}},
				{"of a member with grants", member, estate.Query{Group: store.GroupByProject}},
			} {
				b.Run(c.name, func(b *testing.B) {
					var times []time.Duration
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
	return identity.Principal{Kind: identity.KindUser, User: store.User{ID: "user"}, Roles: map[string]string{"org": role}}
}

// generate adds stacks with all kinds of states, and deployments of them.
func generate(b *testing.B, db *store.DB, stacks, deployments int) {
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
		return tx.InsertUser(store.User{ID: "user", Login: "ada", Name: "Ada"})
	})
	for from := 0; from < stacks; from += 500 {
		write(func(tx *store.Tx) error {
			for i := from; i < from+500; i++ {
				id := fmt.Sprintf("stack-%05d", i)
				if err := tx.InsertStack(store.Stack{ID: id, OrgID: "org", Project: fmt.Sprintf("project-%03d", i/40), Name: id, ResourceCount: int64(i % 300)}); err != nil {
					return err
				}
				tags := map[string]string{"owner": fmt.Sprint("team-", i%20), "env": []string{"prod", "staging", "dev"}[i%3], "vcs:repo": fmt.Sprint("repo-", i%50), "vcs:owner": "acme"}
				if err := tx.SetStackTags(id, tags); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for from := 0; from < stacks*deployments; from += 10_000 {
		write(func(tx *store.Tx) error { return addDeployments(tx, from, deployments) })
	}
	write(func(tx *store.Tx) error {
		for _, statement := range []string{
			`UPDATE estate SET last_kind = 'update', last_deployment = 10, last_by = 'user', last_message = 'Move checkout to the new price service',
				last_started_at = 1700000000000000 + resources, last_ended_at = 1700000060000000 + resources,
				changed_at = 1700000060000000 + resources, rank = CASE WHEN resources % 13 = 0 THEN 0 WHEN resources % 17 = 0 THEN 1 WHEN resources % 29 = 0 THEN 3 ELSE 5 END,
				last_result = CASE WHEN resources % 13 = 0 THEN 'failed' ELSE 'succeeded' END, drift = CASE WHEN resources % 17 = 0 THEN 'found' WHEN resources % 5 = 0 THEN '' ELSE 'none' END,
				queued = CASE WHEN resources % 29 = 0 THEN 1 ELSE 0 END,
				runs = 's73d1 s61d2 f60d3 s73d4 s61d5 s60d6 s73d7 s61d8 s60d9 s73d10 s61d11 s60d12 s73d13 s61d14 s60d15 s73d16 s61d17 s60d18 s61d19 s60d20'`,
			"INSERT INTO collaborators (stack_id, user_id, permission) SELECT stack_id, 'user', 101 FROM estate WHERE resources % 3 = 0",
			"INSERT INTO stars (user_id, stack_id, created_at) SELECT 'user', stack_id, 0 FROM estate WHERE resources = 7",
			"ANALYZE", // as servers and autovacuum do
		} {
			if _, err := tx.Exec(statement); err != nil {
				return fmt.Errorf("%w: %s", err, statement)
			}
		}
		return nil
	})
}

// addDeployments adds 10 000 deployments.
func addDeployments(tx *store.Tx, from, each int) error {
	stack := fmt.Sprintf("'stack-' || SUBSTR('0000' || CAST(n / %[1]d AS TEXT), LENGTH('0000' || CAST(n / %[1]d AS TEXT)) - 4)", each)
	_, err := tx.Exec(fmt.Sprintf(`WITH RECURSIVE numbers (n) AS (SELECT %d UNION ALL SELECT n + 1 FROM numbers WHERE n < %d)
		INSERT INTO deployments (id, org_id, stack_id, project, stack, version, operation, initiator, requested_by, requester, configuration, created_at)
		SELECT 'd' || CAST(n AS TEXT), 'org', %s, '', '', n %% %d + 1, 'update', 'api', 'user', 'ada', '{}', 1700000000000000 + n FROM numbers`, from, from+9999, stack, each))
	if err != nil {
		return err
	}
	_, err = tx.Exec(fmt.Sprintf(`INSERT INTO jobs (id, deployment_id, org_id, stack_id, pool_id, pool_pinned, operation, version, skip_intermediate, status, reason, message,
			epoch, agent_id, agent_hostname, agent_version, poll_id, stock, cancel_requested, force_requested, steps, result, notes, queued_at, claimed_at, started_at,
			last_seen_at, ended_at, modified_at)
		SELECT 'j' || id, id, org_id, stack_id, '', 0, operation, version, 0, 'succeeded', '', '', 1, '', '', '', '', 0, 0, 0, '[]', '[]', '[]', created_at, created_at,
			created_at, created_at, created_at + 60000000, created_at FROM deployments WHERE created_at BETWEEN 1700000000000000 + %d AND 1700000000000000 + %d`, from, from+9999))
	return err
}
