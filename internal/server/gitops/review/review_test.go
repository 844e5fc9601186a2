package review_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/gitops/review"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

func TestRow70Opened(t *testing.T) {
	each(t, func(t *testing.T, p *plant) {
		p.open(first)
		p.expect("update not-started 1")
		r := p.row()
		if r.Name != "pr-acme-web-7" || r.TTL != 72*time.Hour {
			t.Errorf("%+v", r)
		}
		p.write(func(tx *store.Tx) error {
			tags, err := tx.StackTags(r.StackID)
			if err == nil && (tags[review.TagTemplate] != "dev" || tags[review.TagPull] != "7") {
				t.Errorf("tags %v", tags)
			}
			row, err := tx.DeploymentSettings(r.StackID)
			for _, part := range []string{
				`"repoUrl":"https://github.com/acme/web.git"`, `"repoDir":"infra"`, `"pullRequestTemplate":false`, `"make tools"`,
				`pulumi config cp --stack acme/web/dev --dest acme/web/pr-acme-web-7`,
			} {
				if !strings.Contains(row.Document, part) {
					t.Errorf("the settings lack %s: %s", part, row.Document)
				}
			}
			if strings.Contains(row.Document, "of the template") || row.Source != "github-review-stack" {
				t.Errorf("settings %+v", row)
			}
			return err
		})
		p.open(first) // the same again
		p.expect("update not-started 1")
	})
}

// TestSecretsOfTheTemplate gives review stacks the credentials of a template whose settings only name the
// repository. They are encrypted for another stack and address there.
func TestSecretsOfTheTemplate(t *testing.T) {
	p := newPlant(t, storetest.SQLite(t))
	_, err := p.queue.PatchSettings(t.Context(), p.user, p.template, []byte(`{"sourceContext":{"git":{"gitAuth":{"accessToken":{"secret":"token of the template"}}}}}`), "test")
	p.must(err)
	p.write(func(tx *store.Tx) error {
		p.change.Repo.CloneURL = "https://github.com/acme/renamed.git"
		return tx.SaveRepo(p.change.Repo)
	})
	p.open(first)
	p.expect("update not-started 1")
	list, _, err := p.queue.List(t.Context(), deployments.Filter{OrgID: p.org.ID, StackID: p.row().StackID, Page: 1, PageSize: 1})
	p.must(err)
	secrets, err := p.queue.KnownSecrets(t.Context(), list[0].Deployment.ID)
	p.must(err)
	values := map[string]bool{}
	for _, s := range secrets {
		values[s.Value] = true
	}
	if !values["token of the template"] || !values["of the template"] {
		t.Errorf("the job gets %d secrets", len(values))
	}
}

func TestNewCommits(t *testing.T) {
	each(t, func(_ *testing.T, p *plant) {
		p.open(first)
		p.settle()
		p.open(second)
		p.expect("update skipped 1", "update not-started 2")
		p.run(workflow.OperationUpdate, workflow.StatusRunning, 0)
		p.open(first)
		p.expect("update skipped 1", "update running 2", "update not-started 1")
	})
}

func TestRow71And72LabelsDecideOnlyOnce(t *testing.T) {
	each(t, func(t *testing.T, p *plant) {
		p.event(vcs.PullOpen, first, p.decision(p.template, vcs.ActionNone, vcs.ReasonLabel))
		p.settle()
		if len(p.rows()) != 0 {
			t.Fatal("a stack without the label")
		}
		p.open(first) // the label was added
		p.expect("update not-started 1")
		p.event(vcs.PullOpen, second, p.decision(p.template, vcs.ActionNone, vcs.ReasonLabel)) // and removed
		p.expect("update skipped 1", "update not-started 2")
	})
}

func TestRow73And74OneStackPerProject(t *testing.T) {
	each(t, func(_ *testing.T, p *plant) {
		other := p.stack("web", "other")
		p.open(first)
		p.settle()
		// Later, another template of the project matches.
		p.event(vcs.PullOpen, second, p.decision(p.template, vcs.ActionNone, vcs.ReasonNoPath), p.decision(other, vcs.ActionReview, vcs.ReasonPull))
		p.expect("update skipped 1", "update not-started 2")
	})
}

// TestRow74TwoProjects lets templates of two projects match: each gets its own review stack, and the
// second template of a project none.
func TestRow74TwoProjects(t *testing.T) {
	each(t, func(t *testing.T, p *plant) {
		db, second := p.templateOf("db", "dev"), p.templateOf("db", "test")
		decisions := vcs.ChooseTemplates([]vcs.Decision{
			p.decision(second, vcs.ActionReview, vcs.ReasonPull), p.decision(p.template, vcs.ActionReview, vcs.ReasonPull), p.decision(db, vcs.ActionReview, vcs.ReasonPull),
		})
		if decisions[0].Reason != vcs.ReasonOtherTemplate || decisions[0].Detail != "dev" {
			t.Errorf("the second template of the project: %+v", decisions[0])
		}
		p.event(vcs.PullOpen, first, decisions...)
		p.settle()
		made := map[string]bool{}
		for _, r := range p.rows() {
			made[r.Project+"/"+r.Name] = r.StackID != "" && r.Deployed == first
		}
		if want := map[string]bool{"web/pr-acme-web-7": true, "db/pr-acme-web-7": true}; !maps.Equal(made, want) {
			t.Errorf("review stacks with a deployment: %v, want %v", made, want)
		}
		p.event(vcs.PullClosed, first, p.decision(p.template, vcs.ActionSkip, vcs.ReasonClosed), p.decision(db, vcs.ActionSkip, vcs.ReasonClosed))
		p.settle()
		p.pass(time.Minute)
		p.settle()
		if rows := p.rows(); len(rows) != 0 {
			t.Errorf("review stacks of a closed pull request: %+v", rows)
		}
	})
}

func TestRow75Closed(t *testing.T) {
	each(t, func(t *testing.T, p *plant) {
		p.open(first)
		p.settle()
		p.run(workflow.OperationUpdate, workflow.StatusRunning, 0)
		p.open(second)
		p.settle()
		p.close()
		p.expect("update running 1", "update skipped 2", "destroy not-started 2")
		p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
		p.settle()
		p.remove()
		p.settle()
		if rows := p.rows(); len(rows) != 0 {
			t.Errorf("%+v", rows)
		}
	})
}

func TestRow75ClosedBeforeAnythingRan(t *testing.T) {
	each(t, func(t *testing.T, p *plant) {
		p.open(first)
		p.settle()
		id := p.row().StackID
		p.close()
		p.settle()
		p.pass(time.Minute)
		p.settle()
		if rows := p.rows(); len(rows) != 0 {
			t.Errorf("%+v", rows)
		}
		p.write(func(tx *store.Tx) error {
			if _, err := tx.Stack(id); err == nil {
				t.Error("the stack remains")
			}
			return nil
		})
	})
}

func TestRow76Reopened(t *testing.T) {
	each(t, func(t *testing.T, p *plant) {
		p.open(first)
		p.settle()
		p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
		p.close()
		p.expect("update succeeded 1", "destroy not-started 1")
		p.open(first)
		p.expect("update succeeded 1", "destroy skipped 1")
		// During the destroy, the update waits.
		p.close()
		p.settle()
		p.run(workflow.OperationDestroy, workflow.StatusRunning, 3)
		p.open(second)
		p.expect("update succeeded 1", "destroy skipped 1", "destroy running 1")
		before := p.row().StackID
		p.remove()
		p.expect("update not-started 2")
		if p.row().StackID == before {
			t.Error("the stack is not new")
		}
	})
}

func TestRow77BranchDeleted(t *testing.T) {
	each(t, func(_ *testing.T, p *plant) {
		p.open(first)
		p.settle()
		p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
		p.close()
		p.settle()
		p.run(workflow.OperationDestroy, workflow.StatusFailed, 3)
		p.expect("update succeeded 1", "destroy failed 1")
		p.pass(10 * time.Minute)
		p.expect("update succeeded 1", "destroy failed 1", "destroy not-started")
	})
}

func TestRow78CloseEventLost(t *testing.T) {
	each(t, func(_ *testing.T, p *plant) {
		p.open(first)
		p.settle()
		p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
		p.write(func(tx *store.Tx) error { // what a poll records
			row := p.change.Row
			row.State = string(vcs.PullMerged)
			return tx.SavePull(row)
		})
		p.pass(2 * time.Hour)
		p.expect("update succeeded 1", "destroy not-started 1")
	})
}

func TestRow79DestroyFails(t *testing.T) {
	each(t, func(t *testing.T, p *plant) {
		p.open(first)
		p.settle()
		p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
		p.close()
		for _, pause := range []time.Duration{0, 10 * time.Minute, time.Hour, 6 * time.Hour} {
			p.pass(pause)
			p.settle()
			p.run(workflow.OperationDestroy, workflow.StatusFailed, 3)
		}
		p.pass(100 * time.Hour)
		p.settle()
		if r := p.row(); !r.Orphan || r.Problem == "" || r.Tries != 4 {
			t.Errorf("%+v", r)
		}
		p.open(second) // the stack is used again
		p.settle()
		if r := p.row(); r.Orphan || r.Problem != "" || r.Deployed != second {
			t.Errorf("%+v", r)
		}
	})
}

func TestRow80TemplateDeleted(t *testing.T) {
	each(t, func(_ *testing.T, p *plant) {
		p.open(first)
		p.settle()
		p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
		p.write(func(tx *store.Tx) error { return tx.DeleteStack(p.template.ID, "ada") })
		p.event(vcs.PullOpen, second)
		p.expect("update succeeded 1")
		p.event(vcs.PullMerged, second)
		p.expect("update succeeded 1", "destroy not-started 1")
	})
}

func TestRow81NameTaken(t *testing.T) {
	each(t, func(t *testing.T, p *plant) {
		mine := p.stack("web", "pr-acme-web-7")
		p.open(first)
		p.settle()
		if r := p.row(); r.StackID != "" || !strings.Contains(r.Problem, "web/pr-acme-web-7 exists") {
			t.Errorf("%+v", r)
		}
		p.close()
		p.settle()
		p.write(func(tx *store.Tx) error {
			_, err := tx.Stack(mine.ID)
			return err
		})
	})
}

func TestRow83TimeToLive(t *testing.T) {
	each(t, func(_ *testing.T, p *plant) {
		p.open(first)
		p.settle()
		p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
		p.pass(73 * time.Hour)
		p.expect("update succeeded 1", "destroy not-started 1")
		p.close()
		p.expect("update succeeded 1", "destroy not-started 1")
	})
}

func TestForkLosesApproval(t *testing.T) {
	each(t, func(_ *testing.T, p *plant) {
		p.open(first)
		p.settle()
		p.event(vcs.PullOpen, second, p.decision(p.template, vcs.ActionNone, vcs.ReasonFork))
		p.expect("update not-started 1")
	})
}

// TestRestoredStackIsNoReviewStack deletes and restores a review stack before its next check, and closes its pull
// request: the restored stack and its resources remain.
func TestRestoredStackIsNoReviewStack(t *testing.T) {
	each(t, func(t *testing.T, p *plant) {
		p.open(first)
		p.settle()
		p.run(workflow.OperationUpdate, workflow.StatusSucceeded, 3)
		id := p.row().StackID
		p.write(func(tx *store.Tx) error { return tx.DeleteStack(id, "ada") })
		p.write(func(tx *store.Tx) error {
			d, err := tx.DeletedStack(id)
			if err != nil {
				return err
			}
			return tx.RestoreStack(d, d.Name)
		})
		p.pass(2 * time.Hour)
		p.settle()
		if r := p.row(); !strings.Contains(r.Problem, "web/pr-acme-web-7 exists") {
			t.Errorf("while the pull request is open: %+v", r)
		}
		p.close()
		p.settle()
		p.pass(2 * time.Hour)
		p.settle()
		if rows := p.rows(); len(rows) != 0 {
			t.Errorf("%+v", rows)
		}
		p.write(func(tx *store.Tx) error {
			st, err1 := tx.Stack(id)
			queued, err2 := tx.QueuedJobsOfStack(id)
			if st.ResourceCount != 3 || len(queued) > 0 {
				t.Errorf("the restored stack has %d resources, and the deployments %+v wait", st.ResourceCount, queued)
			}
			return errors.Join(err1, err2)
		})
	})
}
