package api_test

import (
	"testing"
	"time"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// TestPauses pauses a stack and the organization. Queued deployments wait, running ones continue.
func TestPauses(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		const org = "/api/orgs/acme/deployments"
		path := l.deployable("dev")
		state := func() [3]bool {
			t.Helper()
			var m struct{ Paused, StackPaused, OrganizationPaused bool }
			l.do("GET", path+"/metadata", nil).want(200, &m)
			return [3]bool{m.Paused, m.StackPaused, m.OrganizationPaused}
		}
		member := l.person("ann", "acme", "member")
		for _, verb := range []string{"/pause", "/resume"} {
			l.send(call{Method: "POST", Path: org + verb, Auth: member}).want(403, nil)
		}
		for _, tt := range []struct {
			path string
			want [3]bool
		}{{path, [3]bool{true, true, false}}, {org, [3]bool{true, false, true}}} {
			running := l.deploy(path, "update")
			_, jc := l.start("agent")
			queued := l.deploy(path, "update")
			for range 2 { // clients repeat the call
				l.do("POST", tt.path+"/pause", nil).want(200, nil)
			}
			if got := state(); got != tt.want {
				t.Errorf("%s: paused, by the stack, by the organization: %v, want %v", tt.path, got, tt.want)
			}
			l.end(jc, workflow.StatusSucceeded)
			l.becomes(path, running, "succeeded")
			l.nothing("agent")
			if d := l.details(path, queued); d.Status != "not-started" || !d.Paused {
				t.Errorf("%s: the queued deployment is %+v", tt.path, d)
			}
			l.do("POST", tt.path+"/resume", nil).want(200, nil)
			if got := state(); got != [3]bool{} {
				t.Errorf("%s: after resume: %v", tt.path, got)
			}
			_, jc = l.start("agent")
			l.end(jc, workflow.StatusSucceeded)
			l.becomes(path, queued, "succeeded")
		}

		// A pause does not extend the time in the queue.
		l.do("POST", path+"/pause", nil).want(200, nil)
		old, fresh := l.deploy(path, "update"), l.deploy(path, "update")
		err := l.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			for id, age := range map[string]time.Duration{old: 7*24*time.Hour + time.Minute, fresh: 7*24*time.Hour - time.Hour} {
				job, err := tx.JobOfDeployment(id)
				if err != nil {
					return err
				}
				job.QueuedAt = tx.Now().Add(-age)
				if err := tx.SaveJob(job); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := l.becomes(path, old, "skipped"); d.Reason != "queue-timeout" {
			t.Errorf("the expired deployment is %+v", d)
		}
		if d := l.details(path, fresh); d.Status != "not-started" {
			t.Errorf("the younger deployment is %+v", d)
		}
	})
}
