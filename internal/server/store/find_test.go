package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// TestResourceNames finds resources by the beginnings of the parts of their names, of stacks that the caller sees, and
// follows the state, the organization and the end of the stack.
func TestResourceNames(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		newLives(t, db)
		all, none := store.Reach{All: []string{"id-acme"}}, store.Reach{}
		set := func(stack, state string, names ...store.ResourceName) {
			t.Helper()
			write(t, db, func(tx *store.Tx) error {
				if _, err := tx.Exec("UPDATE stacks SET state_blob = $2 WHERE id = $1", stack, state); err != nil {
					return err
				}
				return tx.SetReferences(stack, state, nil, names)
			})
		}
		find := func(reach store.Reach, text string) string {
			t.Helper()
			list := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.FoundResource, error) { return tx.FindResources("id-acme", reach, text) }))(t)
			var out []string
			for _, r := range list {
				out = append(out, r.Stack+":"+r.Name)
			}
			slices.Sort(out)
			return strings.Join(out, " ")
		}
		queue, topic := store.ResourceName{Type: "aws:sqs:Queue", Name: "Prod-Payment.Queue"}, store.ResourceName{Type: "aws:sns:Topic", Name: "prod_topic%"}
		set("id-a", "s1", queue, topic, queue)
		set("id-b", "s2", store.ResourceName{Type: "a:b:C", Name: "Ľubica"}, store.ResourceName{Type: "a:b:C", Name: strings.Repeat("long-", 200)})
		for text, want := range map[string]string{
			"PROD": "a:Prod-Payment.Queue a:prod_topic%", "payment": "a:Prod-Payment.Queue", "payment.q": "a:Prod-Payment.Queue", "ayment": "", "%": "", "topic%": "a:prod_topic%",
			"ľubica": "b:Ľubica", "": "", "prod-topic": "",
		} {
			if got := find(all, text); got != want {
				t.Errorf("%q finds %q, want %q", text, got, want)
			}
		}
		if got := find(all, strings.Repeat("long-", 30)); !strings.HasPrefix(got, "b:long-") {
			t.Errorf("a name that is cut off: %q", got)
		}
		if got := find(none, "prod"); got != "" {
			t.Errorf("a caller who sees no stack finds %q", got)
		}
		write(t, db, func(tx *store.Tx) error { return tx.SetReferences("id-a", "old", nil, nil) })
		if got := find(all, "prod"); got != "a:Prod-Payment.Queue a:prod_topic%" {
			t.Errorf("after a state that is no longer the current one: %q", got)
		}
		set("id-a", "s3", topic)
		if got := find(all, "prod"); got != "a:prod_topic%" {
			t.Errorf("after the next state: %q", got)
		}
		write(t, db, func(tx *store.Tx) error { return tx.DeleteStack("id-a", "ada") })
		if got := find(all, "prod"); got != "" {
			t.Errorf("after the deletion of the stack: %q", got)
		}
		var many []store.ResourceName
		for i := range 5000 {
			many = append(many, store.ResourceName{Type: "a:b:C", Name: fmt.Sprintf("bulk-of-parts-%d", i)})
		}
		set("id-b", "s4", many...)
		n := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]store.FoundResource, error) { return tx.FindResources("id-acme", all, "bulk") }))(t)
		if len(n) != 500 {
			t.Errorf("found %d of many resources", len(n))
		}
	})
}

// TestFindRuns finds deployments by number and with their messages, of stacks that the caller sees.
func TestFindRuns(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		l := newLives(t, db)
		l.fill()
		write(t, db, func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE updates SET message = 'Move checkout' WHERE deployment_id <> ''")
			return err
		})
		runs := func(find func(tx *store.Tx) ([]store.FoundRun, error)) (out []string) {
			t.Helper()
			for _, r := range must.Get(store.Read(t.Context(), db, find))(t) {
				out = append(out, fmt.Sprintf("%s#%d", r.Stack, r.Version))
			}
			return out
		}
		recent := func(reach store.Reach) []string {
			return runs(func(tx *store.Tx) ([]store.FoundRun, error) { return tx.RecentRuns("id-acme", reach) })
		}
		if got := recent(store.Reach{All: []string{"id-acme"}}); !slices.Contains(got, "b#1") || slices.Contains(got, "id-a#1") {
			t.Errorf("the newest deployments are %q", got)
		}
		if got := recent(store.Reach{Granted: []string{"id-acme"}, UserID: "nobody", Creator: "nobody"}); len(got) > 0 {
			t.Errorf("a caller who sees no stack finds %q", got)
		}
		if got := runs(func(tx *store.Tx) ([]store.FoundRun, error) { return tx.RunsByNumber([]string{"id-c", "id-b"}, 1) }); strings.Join(got, " ") != "c#1 b#1" {
			t.Errorf("the deployments with the number 1 are %q", got)
		}
		if got := runs(func(tx *store.Tx) ([]store.FoundRun, error) { return tx.RunsByNumber([]string{"id-b"}, 99) }); len(got) > 0 {
			t.Errorf("the deployments with the number 99 are %q", got)
		}
		if got := runs(func(tx *store.Tx) ([]store.FoundRun, error) { return tx.RunsByNumber(nil, 1) }); len(got) > 0 {
			t.Errorf("the deployments of no stack are %q", got)
		}
	})
}
