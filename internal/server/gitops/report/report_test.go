package report_test

import (
	"strings"
	"testing"

	"workflowagent/internal/server/gitops/report"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/outbox"
	"workflowagent/internal/workflow"
)

func TestReports(t *testing.T) {
	each(t, func(f *fixture) {
		f.run()
		d := f.deploy("dev", first, workflow.OperationPreview, "pull-request")
		f.decide(outbox.Decision{})
		f.await("a pending status", func() bool {
			return f.state(first, preview) == vcs.ReportPending && f.state(first, outbox.Aggregate) == vcs.ReportRunning
		})
		f.finish(d, workflow.StatusRunning, "")
		f.await("a running status", func() bool { return f.state(first, preview) == vcs.ReportRunning })
		f.finish(d, workflow.StatusSucceeded, "")
		f.await("success", func() bool {
			return f.state(first, preview) == vcs.ReportSucceeded && f.state(first, outbox.Aggregate) == vcs.ReportSucceeded && strings.Contains(f.forge.comments[7], "succeeded")
		})
		f.quiet()
		f.forge.mu.Lock()
		defer f.forge.mu.Unlock()
		if r := f.forge.reports[first+" "+preview]; r.Summary != "✅ succeeded: +1" || r.URL != "https://console.example.com/acme/web/dev/deployments/1" || !strings.Contains(r.Details, "create") || r.Pull != 7 {
			t := f.t
			t.Errorf("status: %+v", r)
		}
		for _, text := range []string{f.forge.comments[7], f.forge.reports[first+" "+preview].Details} {
			if strings.Contains(text, secret) || !strings.Contains(text, "[secret]") {
				f.t.Errorf("a secret is not masked:\n%s", text)
			}
		}
	})
}

// A pull request has one comment, and one aggregate that fails if a stack fails.
func TestOneCommentForAllStacks(t *testing.T) {
	one(t, func(f *fixture) {
		dev, prod := f.deploy("dev", first, workflow.OperationPreview, "pull-request"), f.deploy("prod", first, workflow.OperationPreview, "pull-request")
		f.decide(outbox.Decision{})
		f.run()
		f.finish(dev, workflow.StatusSucceeded, "")
		f.finish(prod, workflow.StatusFailed, workflow.ReasonExitCode)
		f.await("a failed aggregate", func() bool {
			return f.state(first, outbox.Aggregate) == vcs.ReportFailed && strings.Contains(f.forge.comments[7], "web/dev") && strings.Contains(f.forge.comments[7], "web/prod")
		})
		f.quiet()
		if got := f.forge.reports[first+" "+outbox.Aggregate].Summary; f.forge.created != 1 || got != "1 of 2 stacks failed" {
			f.t.Errorf("%d comments, %q", f.forge.created, got)
		}
	})
}

func TestRow50OldCommitIsOutdated(t *testing.T) {
	one(t, func(f *fixture) {
		f.run()
		old := f.deploy("dev", first, workflow.OperationPreview, "pull-request")
		f.finish(old, workflow.StatusRunning, "")
		f.pull(second, false)
		f.deploy("prod", second, workflow.OperationPreview, "pull-request")
		f.finish(old, workflow.StatusSucceeded, "")
		f.await("an outdated report", func() bool { return strings.Contains(f.forge.comments[7], "outdated") })
		if got := f.state(second, preview); got != "" {
			f.t.Errorf("the new commit has the status of the old one: %s", got)
		}
	})
}

func TestRow75DestroyedStack(t *testing.T) {
	one(t, func(f *fixture) {
		f.run()
		d := f.deploy("dev", first, workflow.OperationDestroy, "review-stack")
		f.finish(d, workflow.StatusRunning, "")
		f.write(func(tx *store.Tx) error { return tx.DeleteStack("dev", "ada") }) // as the job does, before it ends
		f.finish(d, workflow.StatusSucceeded, "")
		f.await("that the stack was removed", func() bool {
			return strings.Contains(f.forge.comments[7], "| web/dev | destroy | ✅ succeeded | stack removed |") && f.state(first, outbox.Aggregate) == vcs.ReportSucceeded
		})
		if r := f.forge.reports[first+" "+outbox.Aggregate]; r.URL != "" {
			f.t.Errorf("the report has a link to a page that does not exist: %s", r.URL)
		}
	})
}

func TestRow49SupersededPreviewIsNeutral(t *testing.T) {
	one(t, func(f *fixture) {
		f.run()
		old := f.deploy("dev", first, workflow.OperationPreview, "pull-request")
		f.finish(old, workflow.StatusSkipped, workflow.ReasonSuperseded)
		f.await("a neutral status", func() bool { return f.state(first, preview) == vcs.ReportNeutral })
		cancelled := f.deploy("dev", second, workflow.OperationPreview, "pull-request")
		f.finish(cancelled, workflow.StatusSkipped, workflow.ReasonCancelled)
		f.await("a failure, because a user cancelled the preview", func() bool { return f.state(second, outbox.Aggregate) == vcs.ReportFailed })
	})
}

func TestRow56NoStackAffected(t *testing.T) {
	one(t, func(f *fixture) {
		f.run()
		f.decide(outbox.Decision{})
		f.await("success", func() bool { return f.state(first, outbox.Aggregate) == vcs.ReportSucceeded })
		f.quiet()
		if got := f.forge.reports[first+" "+outbox.Aggregate].Summary; got != "no stack affected" || f.forge.created != 0 {
			f.t.Errorf("%q, %d comments", got, f.forge.created)
		}
	})
}

func TestRow59CommentsOnDrafts(t *testing.T) {
	one(t, func(f *fixture) {
		f.to.NoDraftComments = true
		f.run()
		d := f.deploy("dev", first, workflow.OperationPreview, "pull-request")
		f.pull(first, true)
		f.decide(outbox.Decision{})
		f.finish(d, workflow.StatusSucceeded, "")
		f.await("a status", func() bool { return f.state(first, preview) == vcs.ReportSucceeded })
		f.quiet()
		if f.forge.created != 0 {
			f.t.Fatal("a draft has a comment")
		}
		f.pull(first, false)
		f.decide(outbox.Decision{})
		f.await("the comment of the published pull request", func() bool { return strings.Contains(f.forge.comments[7], "succeeded") })
	})
}

func TestRow63ForkNeedsApproval(t *testing.T) {
	one(t, func(f *fixture) {
		f.run()
		f.decide(outbox.Decision{Approval: true})
		f.await("a check that needs an action", func() bool { return f.state(first, outbox.Aggregate) == vcs.ReportAction })
		f.quiet()
		if got := f.forge.reports[first+" "+outbox.Aggregate].Summary; !strings.HasPrefix(got, "needs approval") || f.forge.created != 0 {
			f.t.Errorf("%q, %d comments", got, f.forge.created)
		}
		// Once a member has approved the commit, its runs decide.
		d := f.deploy("dev", first, workflow.OperationPreview, "pull-request")
		f.finish(d, workflow.StatusSucceeded, "")
		f.await("success", func() bool { return f.state(first, outbox.Aggregate) == vcs.ReportSucceeded })
	})
}

func TestRow68MergeQueue(t *testing.T) {
	one(t, func(f *fixture) {
		f.run()
		s := f.subject
		s.Pull, s.Commit = 0, second
		f.decide(outbox.Decision{Subject: s})
		f.await("a concluded check", func() bool { return f.state(second, outbox.Aggregate) == vcs.ReportSucceeded })
		f.quiet()
		if f.forge.created != 0 {
			f.t.Error("a merge queue has a comment")
		}
	})
}

// The comment of a review stack shows outputs, but no secret ones.
func TestReviewOutputs(t *testing.T) {
	one(t, func(f *fixture) {
		f.run()
		d := f.deploy("dev", first, workflow.OperationUpdate, report.InitiatorReview)
		f.finish(d, workflow.StatusSucceeded, "")
		f.await("outputs", func() bool {
			c := f.forge.comments[7]
			return strings.Contains(c, "url = https://pr.example.com") && strings.Contains(c, "password = [secret]") && !strings.Contains(c, "AAAA")
		})
	})
}
