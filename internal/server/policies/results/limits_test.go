package results_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/policies/findings"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// multiply adds n copies of an issue with other messages.
func (l *lab) multiply(message, prefix string, n int) {
	l.Helper()
	l.write(func(tx *store.Tx) error {
		const rest = `message, tag, level, severity, resource_type, resource_name, group_name, status, priority, assigned_to, reason,
			ignored_until, exceptions, version, observed_at, seen_at, modified_at, fixed_at, reopened, seen_in, evaluated_in`
		got, err := tx.Exec(fmt.Sprintf(`INSERT INTO policy_issues (id, stack_id, kind, pack, policy, urn, message_hash, %[1]s)
			WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %[2]d)
			SELECT id || '%[3]s' || i, stack_id, kind, pack, policy, urn, message_hash || '%[3]s' || i, %[1]s FROM policy_issues, n WHERE message = $1`, rest, n, prefix), message)
		if err == nil && got != int64(n) {
			l.Errorf("added %d issues, want %d", got, n)
		}
		return err
	})
}

// counts returns the numbers of the stack's open and fixed issues of updates.
func (l *lab) counts() (open, fixed int64) {
	l.Helper()
	f := store.IssueFilter{OrgID: l.org.ID, Reach: l.admin.Reach(l.org.ID), Where: []store.IssueCondition{{Column: "status", Op: "equals", Value: "fixed"}}}
	l.must(l.db.Read(l.Context(), func(tx *store.Tx) (err error) {
		if open, err = tx.CountUnfixedIssues(l.stack.ID, policies.Preventative); err == nil {
			fixed, err = tx.CountPolicyIssues(f)
		}
		return err
	}))
	return open, fixed
}

// TestManyIssues tests that the issues of a stack are bounded, and that an update reads only those that it can change.
func TestManyIssues(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		const most = 5000
		check := func(when string, wantOpen, wantFixed int64) {
			t.Helper()
			if open, fixed := l.counts(); open != wantOpen || fixed != wantFixed {
				t.Errorf("%s, the stack has %d open and %d fixed issues, want %d and %d", when, open, fixed, wantOpen, wantFixed)
			}
		}
		l.run(stacks.KindUpdate, violates("aws", "tags", "mandatory", "a", "one"), violates("aws", "tags", "mandatory", "b", "two"))
		l.run(stacks.KindUpdate, violates("aws", "tags", "mandatory", "a", "one"), evaluates("b", `"tags"`, ``))
		check("before", 1, 1)
		l.multiply("one", "x", most-2)
		l.run(stacks.KindUpdate, violates("aws", "tags", "mandatory", "a", "one"), violates("aws", "tags", "mandatory", "c", "three"),
			violates("aws", "tags", "mandatory", "c", "four"), violates("aws", "tags", "mandatory", "b", "two"))
		check("with more violations than issues", most, 1)

		// The others are fixed, and the oldest of the fixed ones are removed.
		l.multiply("two", "y", 10)
		l.run(stacks.KindUpdate, violates("aws", "tags", "mandatory", "a", "one"), evaluates("a", ``, `"tags"`))
		check("after most are fixed", 2, most)
		issues, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.PolicyIssue, error) {
			return tx.IssuesAt(l.stack.ID, policies.Preventative, []string{urn("a")}, []string{"none"})
		})
		if err != nil || len(issues) != 1 {
			t.Errorf("an update reads %d issues of a resource with one open issue, %v", len(issues), err)
		}
		l.run(stacks.KindUpdate, violates("aws", "tags", "mandatory", "b", "two"))
		check("after a violation returns", 3, most-1)
	})
}

// TestManyEvaluatedIssues tests that evaluations open a bounded number of issues.
func TestManyEvaluatedIssues(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		evaluate := func(messages ...string) {
			t.Helper()
			var list []findings.Violation
			for _, m := range messages {
				list = append(list, findings.Violation{Pack: "aws", Policy: "tags", Level: findings.Mandatory, URN: urn("a"), Message: m})
			}
			l.must(db.Write(t.Context(), l.stack.Scope(), func(tx *store.Tx) error {
				return l.results.Evaluated(tx, l.stack, results.Evaluation{ID: "e", Version: 3, Packs: []results.EvaluatedPack{{PackID: "p-aws", Pack: "aws", Number: 1, Violations: list}}})
			}))
		}
		evaluate("one")
		l.multiply("one", "x", 4998)
		evaluate("one", "two", "three")
		n, err := store.Read(t.Context(), db, func(tx *store.Tx) (int64, error) { return tx.CountUnfixedIssues(l.stack.ID, policies.Audit) })
		if err != nil || n != 5000 {
			t.Errorf("the stack has %d open issues, %v", n, err)
		}
	})
}

// TestLargeCompliance tests that the compliance of stacks with large results is read in parts that fit in the memory for
// requests, and that this memory is returned.
func TestLargeCompliance(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		l.write(func(tx *store.Tx) error {
			for _, name := range []string{"s1", "s2", "s3"} {
				if err := tx.InsertStack(store.Stack{ID: name, OrgID: l.org.ID, Project: "proj", Name: name}); err != nil {
					return err
				}
				for _, pack := range []string{"aws", "gcp"} {
					err := tx.SavePolicyStanding(store.PolicyStanding{
						StackID: name, Kind: policies.Audit, Pack: pack, Group: "audit", Ran: true, Levels: []store.PolicyLevel{{Name: strings.Repeat("x", 1200<<10), Level: "mandatory"}},
					})
					if err != nil {
						return err
					}
				}
			}
			return nil
		})
		for _, each := range []struct {
			total int64
			kind  fault.Kind
		}{{12 << 20, ""}, {8 << 20, fault.KindTooLarge}} {
			ctx, done := budget.New(each.total, time.Second).BeginRead(t.Context())
			m, err := l.results.Compliance(ctx, l.admin, l.org, results.ByStack, "", 10)
			if fault.KindOf(err) != each.kind && (err != nil || each.kind != "") {
				t.Errorf("with %d bytes of memory: %v", each.total, err)
			} else if err == nil && (len(m.Rows) != 3 || m.Next != "" || len(m.Columns) != 2 || m.Rows[2].Scores[1] != 100) {
				t.Errorf("the compliance has %d rows, then %q, with %q", len(m.Rows), m.Next, m.Columns)
			}
			if err == nil {
				if list, err := l.results.Policies(ctx, l.admin, l.org); err != nil || len(list) != 2 {
					t.Errorf("the compliance has %d policies, %v", len(list), err)
				}
				if held := budget.Of(ctx).Held(); held != 0 {
					t.Errorf("the request holds %d bytes", held)
				}
			}
			done()
		}
		page, err := l.results.Compliance(t.Context(), l.admin, l.org, results.ByStack, "", 2)
		if err != nil || len(page.Rows) != 2 || page.Next != "proj/s2" {
			t.Errorf("the first page has %d rows, then %q, %v", len(page.Rows), page.Next, err)
		}
	})
}

// TestManyExceptions tests the bounds of exceptions, which each update of a stack reads.
func TestManyExceptions(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLab(t, db)
		create := func(n exceptions.New) error {
			_, _, err := l.exceptions.Create(t.Context(), l.admin, l.org, n)
			return err
		}
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprint(i, strings.Repeat("x", 700)))
		}
		if err := create(exceptions.New{Pack: "aws", Entries: entry("tags", names...), Reason: "r"}); fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "64 KiB") {
			t.Errorf("a large exception: %v", err)
		}
		l.write(func(tx *store.Tx) error {
			for i := range 100 {
				e := store.PolicyException{ID: fmt.Sprint("e", i), OrgID: l.org.ID, PackID: "p-aws", Pack: "aws", Digest: fmt.Sprint(i), Entries: entry("tags", "a")}
				if i == 0 {
					e.ExpiresAt = time.Unix(1, 0) // does not count
				}
				if _, err := tx.InsertPolicyException(e, []string{l.stack.ID}); err != nil {
					return err
				}
			}
			return nil
		})
		l.must(create(exceptions.New{Pack: "aws", Entries: entry("tags", "b"), Reason: "r"}))
		if err := create(exceptions.New{Pack: "aws", Entries: entry("tags", "c"), Reason: "r"}); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("too many exceptions of a stack: %v", err)
		}
		_, err := l.stacks.Create(t.Context(), l.admin, stacks.NewStack{Org: l.org, Project: "proj", Name: "other"})
		l.must(err)
		of := []store.ExceptionEntry{{Policies: []string{"tags"}, Targets: []string{"urn:pulumi:other::proj::aws:s3:Bucket::a"}}}
		l.must(create(exceptions.New{Pack: "aws", Entries: of, Reason: "r"}))

		// The policies of an old version are known, too.
		l.write(func(tx *store.Tx) error {
			for i := range 45 {
				err := tx.InsertPackVersion(store.PolicyPackVersion{
					ID: fmt.Sprint("n", i), PackID: "p-aws", Number: int64(i + 2), Tag: fmt.Sprint("n", i), Status: store.PackComplete, Levels: []store.PolicyLevel{{Name: "new"}}, Blob: fmt.Sprint("policy-packs/n", i),
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
		of[0].Policies = []string{"new", "size"}
		l.must(create(exceptions.New{Pack: "aws", Entries: of, Reason: "r"}))
		of[0].Policies = []string{"new", "nothing"}
		if err := create(exceptions.New{Pack: "aws", Entries: of, Reason: "r"}); fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), `"nothing"`) {
			t.Errorf("an unknown policy: %v", err)
		}
	})
}
