package deployments_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestSearch selects deployments of an organization and of a stack by text.
func TestSearch(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		st := p.stack("a")
		for i, git := range []map[string]string{
			{"branch": "refs/heads/Main"}, {"branch": "refs/heads/feature/x"}, {"branch": "main", "commit": strings.Repeat("ab12", 10)}, {"branch": "50%_off"},
		} {
			body := asked(t, `{"operation": "update", "sourceContext": {"git": {"repoUrl": "https://git.example/secret-word.git", "branch": "other"}}}`)
			d, err := p.service.Create(t.Context(), p.user, st, body, "api")
			p.must(err)
			id := d.ID
			p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				_, err := tx.Exec("UPDATE deployments SET requester = $1 WHERE id = $2", fmt.Sprint("Äda", i+1), id)
				if err == nil {
					_, err = tx.Exec("UPDATE deployment_briefs SET branch = $1, commit_id = $2 WHERE deployment_id = $3", git["branch"], git["commit"], id)
				}
				return err
			}))
			p.change(id, func(j *store.Job) { j.Message = fmt.Sprintf("Waits for %d others.", i) })
		}
		for text, want := range map[string]string{
			"main": "a#1 a#3", " FEATURE/x ": "a#2", "ab12ab": "a#3", "äDA4": "a#4", "for 3 others": "a#4", "%": "a#4", "3": "a#3 a#4", "#3": "a#3", "#33": "",
			"secret-word": "", "repourl": "", "refs/heads": "a#1 a#2",
		} {
			for _, stackID := range []string{"", st.ID} {
				l, err := p.service.Page(t.Context(), p.user, p.org.ID, deployments.Query{Stage: deployments.StageQueued, StackID: stackID, Text: text})
				p.must(err)
				if got := versions(l); got != want || l.Next != "" {
					t.Errorf("%q selects %q, then %q, want %q", text, got, l.Next, want)
				}
			}
		}
		q := deployments.Query{Stage: deployments.StageQueued, Text: "main", Limit: 1}
		l, err := p.service.Page(t.Context(), p.user, p.org.ID, q)
		p.must(err)
		first, next := versions(l), l.Next
		q.After = next
		if l, err = p.service.Page(t.Context(), p.user, p.org.ID, q); err != nil || first != "a#1" || next == "" || versions(l) != "a#3" || l.Next != "" {
			t.Errorf("the pages are %q and %q, then %q, %v", first, versions(l), l.Next, err)
		}
		q.Text = strings.Repeat("x", 201)
		if _, err := p.service.Page(t.Context(), p.user, p.org.ID, q); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("a long text: %v, want an error", err)
		}
	})
}

// TestSearchIsBounded checks that a page considers a limited number of deployments, and that the next
// one continues there.
func TestSearchIsBounded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p := newPlant(t, db, deployments.Options{})
		write := func(fn func(tx *store.Tx) error) { p.must(db.Write(t.Context(), scope.Server(), fn)) }
		write(func(tx *store.Tx) error {
			return tx.InsertStack(store.Stack{ID: "stack0", OrgID: p.org.ID, Project: "p", Name: "stack0", CreatedAt: time.Now()})
		})
		const total, each = deployments.Searched + 350, 100 // the last 300 are queued
		for from := 0; from < total; from += each {
			write(func(tx *store.Tx) error {
				for i := from; i < min(from+each, total); i++ {
					if err := seedOne(tx, p, i, 1, total, time.Now().Add(-30*24*time.Hour)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		q := deployments.Query{Stage: deployments.StageFinished, Text: "#1"}
		l, err := p.service.Page(t.Context(), p.user, p.org.ID, q)
		p.must(err)
		if len(l.Items) > 0 || l.Next == "" {
			t.Fatalf("the first page is %q, then %q, want an empty page and another one", versions(l), l.Next)
		}
		q.After = l.Next
		if l, err = p.service.Page(t.Context(), p.user, p.org.ID, q); err != nil || versions(l) != "stack0#1" || l.Next != "" {
			t.Errorf("the second page is %q, then %q, %v", versions(l), l.Next, err)
		}
	})
}
