// Package outbox records what forges are to show about commits and pull requests, in the
// transactions that change it. Package report sends the records.
package outbox

import (
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Topic is the channel of notifications about due reports. The payload is the integration's id.
const Topic = "vcs-report"

// Aggregate is the context of the report on a whole commit of a pull request. It always concludes,
// so that a repository can require it.
const Aggregate = "pulumi"

// Delay is the time for which a report waits for further changes before it is sent.
const Delay = time.Second

// The notes of reports with the context [Aggregate].
const (
	NoteNone     = ""         // the runs decide
	NoteApproval = "approval" // a member must approve the commit
)

// Subject is a commit of a repository, of a pull request or pushed.
type Subject struct {
	IntegrationID string
	RepoID        string // of the [store.VCSRepo]
	Pull          int64  // 0 for pushes and tags
	Commit        string
}

func (s Subject) report(context, stackID string) store.VCSReport {
	return store.VCSReport{IntegrationID: s.IntegrationID, RepoID: s.RepoID, Pull: s.Pull, CommitID: s.Commit, Context: context, StackID: stackID}
}

// comment returns the report that is the pull request's comment.
func (s Subject) comment() store.VCSReport {
	s.Commit = ""
	return s.report("", "")
}

// Context returns the name of the report on a deployment. Users select it in the rules of their
// repositories.
func Context(project, stack string, op workflow.Operation) string {
	return fmt.Sprintf("%s/%s - %s deployment", project, stack, op)
}

// Track records that a deployment, which an event of a forge created, must be reported. The checkout
// of the deployment has the same subject.
func Track(tx *store.Tx, s Subject, d store.Deployment) error {
	var reports []store.VCSReport
	if s.Pull != 0 {
		reports = append(reports, s.comment(), s.report(Aggregate, "")) // in the order of [store.Tx.WantVCSReports]
	}
	reports = append(reports, s.report(Context(d.Project, d.Stack, d.Operation), d.StackID))
	for _, r := range reports {
		if err := want(tx, r, nil); err != nil {
			return err
		}
	}
	return nil
}

// Decision is what the server decided about the newest commit of a pull request.
type Decision struct {
	Subject
	// Approval is set if nothing runs before a member approves the commit.
	Approval bool
}

// Decide records a decision, so that the report on the whole commit concludes even if no deployment
// follows. The commit of a merge queue has no pull request.
func Decide(tx *store.Tx, d Decision) error {
	note := NoteNone
	if d.Approval {
		note = NoteApproval
	}
	if d.Pull != 0 {
		if err := want(tx, d.comment(), nil); err != nil {
			return err
		}
	}
	return want(tx, d.report(Aggregate, ""), &note)
}

// Again makes the report on a whole commit and the comment of its pull request be sent again.
func Again(tx *store.Tx, s Subject) error {
	if err := want(tx, s.comment(), nil); err != nil {
		return err
	}
	return want(tx, s.report(Aggregate, ""), nil)
}

// Changed records that the status of a stack's deployment has changed, if it is reported.
func Changed(tx *store.Tx, stackID, deploymentID string) error {
	c, err := tx.Checkout(deploymentID)
	if errors.Is(err, store.ErrNotFound) || err == nil && c.CommitID == "" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the checkout of a deployment: %w", err)
	}
	now := tx.Now()
	if err := tx.WantVCSReports(c, stackID, Aggregate, now, now.Add(Delay)); err != nil {
		return fmt.Errorf("recording a report: %w", err)
	}
	tx.Notify(Topic, c.IntegrationID)
	return nil
}

// want records that a report has changed. A nil note keeps the one that the report has.
func want(tx *store.Tx, r store.VCSReport, note *string) error {
	r.ID, r.WantedAt, r.TryAt = identity.NewID(), tx.Now(), tx.Now().Add(Delay)
	if err := tx.WantVCSReport(r, note); err != nil {
		return fmt.Errorf("recording a report: %w", err)
	}
	tx.Notify(Topic, r.IntegrationID)
	return nil
}
