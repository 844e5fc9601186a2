package estate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/search"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// BenchmarkFind measures searches of the palette in 10 000 stacks with 100 000 deployments and 40 000 resources.
func BenchmarkFind(b *testing.B) {
	for engine, open := range map[string]func(testing.TB) *store.DB{"sqlite": storetest.SQLite, "postgres": storetest.Postgres} {
		b.Run(engine, func(b *testing.B) {
			db := open(b)
			generate(b, db, 10_000, 10)
			describe(b, db)
			service := search.New(db)
			for name, who := range map[string]identity.Principal{"admin": principal(identity.RoleAdmin), "member": principal(identity.RoleMember)} {
				for _, text := range []string{"", "stack-077", "#10", "10 stack-0123", "checkout price", "nothing-has-this", "queue stack-05"} {
					b.Run(name+"/"+text, func(b *testing.B) {
						var times []time.Duration
						found := 0
						for b.Loop() {
							began := time.Now()
							f, err := service.Find(b.Context(), who, "org", search.Parse(text))
							if err != nil {
								b.Fatal(err)
							}
							times = append(times, time.Since(began))
							found = len(f.Stacks) + len(f.Runs) + len(f.Resources)
						}
						slices.Sort(times)
						b.ReportMetric(float64(times[0].Microseconds())/1000, "min-ms")
						b.ReportMetric(float64(times[len(times)*95/100].Microseconds())/1000, "p95-ms")
						b.ReportMetric(float64(found), "found")
					})
				}
			}
		})
	}
}

// describe adds messages to the deployments, and resources to the stacks.
func describe(b *testing.B, db *store.DB) {
	b.Helper()
	for from := 0; from < 100_000; from += 10_000 {
		err := db.Write(b.Context(), scope.Server(), func(tx *store.Tx) error {
			_, err := tx.Exec(fmt.Sprintf(`INSERT INTO updates (id, stack_id, kind, status, deployment_id, message, preview, version, created_at, started_at, finished_at, requested_by, program,
					lease_hash, lease_expires_at, reason, state_blob, state_schema, resource_count, resource_changes, next_sequence)
				SELECT 'u' || id, stack_id, 'update', 'succeeded', id, 'Move checkout to the new price service ' || CAST(version AS TEXT), 0, version, created_at, created_at, created_at,
					'', '', $1, 0, '', '', 3, 0, '', 0
				FROM deployments WHERE created_at BETWEEN 1700000000000000 + %d AND 1700000000000000 + %d`, from, from+9999), []byte{})
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	err := db.Write(b.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE estate SET deployments = 10")
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	for from := 0; from < 10_000; from += 50 {
		err := db.Write(b.Context(), scope.Server(), func(tx *store.Tx) error {
			for i := from; i < from+50; i++ {
				var names []store.ResourceName
				for n := range 4 {
					names = append(names, store.ResourceName{Type: "aws:sqs/queue:Queue", Name: fmt.Sprintf("queue-%d-of-%d", n+15, i)})
				}
				if err := tx.SetResourceNames(fmt.Sprintf("stack-%05d", i), names); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
