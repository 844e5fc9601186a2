package results_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/store"
)

// TestEndedExceptions tests that exceptions which ended long ago are removed, or if there are many of them, that the others
// remain, and that no number is used again.
func TestEndedExceptions(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		long, lately := time.Now().Add(-3*365*24*time.Hour), time.Now().Add(-time.Hour)
		add := func(id string, change func(e *store.PolicyException)) {
			t.Helper()
			l.write(func(tx *store.Tx) error {
				e := store.PolicyException{ID: id, OrgID: l.org.ID, PackID: "p-aws", Pack: "aws", Digest: id, Entries: entry("tags", "a"), CreatedAt: long}
				change(&e)
				_, err := tx.InsertPolicyException(e, []string{l.stack.ID})
				return err
			})
		}
		add("removed", func(e *store.PolicyException) { e.RemovedAt = long })
		add("expired", func(e *store.PolicyException) { e.ExpiresAt = long })
		add("lately", func(e *store.PolicyException) { e.RemovedAt = lately })
		add("applies", func(*store.PolicyException) {})
		add("newest", func(e *store.PolicyException) { e.RemovedAt = long })
		left := func() string {
			t.Helper()
			list, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.PolicyException, error) {
				return tx.PolicyExceptions(store.ExceptionFilter{OrgID: l.org.ID, Limit: 100})
			})
			l.must(err)
			var ids []string
			for _, e := range list {
				ids = append(ids, e.ID)
			}
			return strings.Join(ids, " ")
		}
		l.must(l.exceptions.Sweep(t.Context()))
		if got := left(); got != "newest applies lately" {
			t.Errorf("the sweep leaves %q", got)
		}
		if e := l.except(exceptions.New{Pack: "aws", Entries: entry("tags", "b"), Reason: "r"}); e.Number != 6 {
			t.Errorf("the next exception has the number %d", e.Number)
		}
		list, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.EndedException, error) {
			return tx.EndedExceptions(long, 2, 10)
		})
		if err != nil || len(list) != 1 || list[0].ID != "lately" {
			t.Errorf("beyond the two newest, those that ended are %+v, %v", list, err)
		}
	})
}

// TestStorageOfPolicies tests that exceptions, and what packs report about an update, count for the quota, and that a full
// organization gives no more large exceptions.
func TestStorageOfPolicies(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		limit := quota.New(db, storetest.Log(), 20_000)
		l.exceptions = exceptions.NewService(db, limit)
		stored := func() int64 {
			t.Helper()
			l.must(limit.Measure(t.Context()))
			s, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.Storage, error) { return tx.Storage(l.org.ID) })
			l.must(err)
			return s.Measured
		}
		large := func(prefix string) exceptions.New {
			var names []string
			for i := range 20 {
				names = append(names, fmt.Sprint(prefix, i, strings.Repeat("x", 500)))
			}
			return exceptions.New{Pack: "aws", Entries: entry("tags", names...), Reason: "r"}
		}
		before := stored()
		e := l.except(large("a"))
		if got := stored() - before; got < 10_000 {
			t.Errorf("an exception of 10 kB counts as %d bytes", got)
		}
		if _, _, err := l.exceptions.Create(t.Context(), l.admin, l.org, large("b")); fault.KindOf(err) != fault.KindForbidden || !strings.Contains(err.Error(), "reached its quota") {
			t.Errorf("an exception beyond the quota: %v", err)
		}
		l.must(l.exceptions.Remove(t.Context(), l.admin, l.org, e.Name()))
		if got := stored() - before; got < 10_000 {
			t.Errorf("a removed exception, which remains readable, counts as %d bytes", got)
		}

		u := l.run(stacks.KindUpdate, violates("aws", "tags", "mandatory", "a", strings.Repeat("m", 1000)))
		bytes := func() int64 {
			t.Helper()
			n, err := store.Read(t.Context(), db, func(tx *store.Tx) (int64, error) { return tx.EventBytes(u.ID) })
			l.must(err)
			return n
		}
		first := bytes()
		l.write(func(tx *store.Tx) error {
			runs, err := tx.PolicyRuns(u.ID)
			if err == nil {
				runs[0].Levels = append(runs[0].Levels, store.PolicyLevel{Name: strings.Repeat("p", 3000), Level: "mandatory"})
				err = tx.SavePolicyRun(runs[0])
			}
			return err
		})
		if got := bytes() - first; got < 3000 {
			t.Errorf("levels of 3000 bytes count as %d bytes", got)
		}
		l.write(func(tx *store.Tx) error {
			_, err := tx.ExpireEvents(u.ID, 1000)
			return err
		})
		if got := bytes(); got > 1000 {
			t.Errorf("an update whose events have expired counts as %d bytes", got)
		}
	})
}
