package report

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/gitops/render"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/changes/diff"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/outbox"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// maxRuns bounds the deployments that one report takes into account.
const maxRuns = 1000

// InitiatorReview is the initiator of the deployments of review stacks, whose outputs comments show.
const InitiatorReview = "review-stack"

// message is the newest state of a report: a report, a comment, or nothing.
type message struct {
	row     store.VCSReport
	repo    vcs.RepoID
	report  *vcs.Report
	comment *vcs.Comment
}

// run is a deployment that a report describes.
type run struct {
	store.DeploymentJob
	commit string
	org    string // name
	stack  *store.Stack
	update *store.Update
	policy results.Report
}

// facts are what a report describes.
type facts struct {
	row  store.VCSReport
	repo store.VCSRepo
	pull store.VCSPull
	runs []run // the newest of each stack
	// problems say why review stacks of the pull request are not as wanted.
	problems []string
}

func (s *Service) compose(ctx context.Context, to Integration, id string) (message, error) {
	f, err := store.Read(ctx, s.db, func(tx *store.Tx) (facts, error) { return read(tx, id) })
	m := message{row: f.row, repo: vcs.RepoID{ID: f.repo.RemoteID, Name: f.repo.Name}}
	if err != nil {
		return m, fmt.Errorf("reading the state to report: %w", err)
	}
	switch {
	case f.row.CommitID == "":
		m.comment, err = s.comment(ctx, to, f)
	case f.row.Context == outbox.Aggregate:
		m.report = aggregate(f)
		if len(f.runs) > 0 {
			m.report.URL = s.url(f.runs[0])
		}
	case len(f.runs) > 0:
		m.report, err = s.status(ctx, to, f)
	}
	return m, err
}

// read reads what a report describes, in one transaction.
func read(tx *store.Tx, id string) (f facts, err error) {
	if f.row, err = tx.VCSReport(id); err != nil {
		return f, err
	}
	if f.repo, err = tx.Repo(f.row.RepoID); err != nil {
		return f, err
	}
	var list []store.VCSCheckout
	if f.row.CommitID == "" {
		if f.pull, err = tx.PullByNumber(f.row.RepoID, f.row.Pull); err != nil {
			return f, err
		}
		list, err = tx.CheckoutsOfPull(f.row.RepoID, f.row.Pull, maxRuns)
	} else {
		list, err = tx.CheckoutsOfCommit(f.row.RepoID, f.row.Pull, f.row.CommitID, maxRuns)
	}
	if err != nil {
		return f, err
	}
	reviews, err := tx.ReviewStacksOfPull(f.row.RepoID, f.row.Pull)
	if err != nil {
		return f, err
	}
	for _, r := range reviews {
		if r.Problem != "" && (f.row.CommitID == "" || f.row.CommitID == r.CommitID) {
			f.problems = append(f.problems, fmt.Sprintf("The review stack %s/%s: %s.", r.Project, r.Name, strings.TrimSuffix(r.Problem, ".")))
		}
	}
	seen := map[string]bool{}
	for _, c := range list { // the newest first
		r := run{commit: c.CommitID}
		if r.DeploymentJob, err = tx.DeploymentSummary(c.DeploymentID); err != nil {
			return f, err
		}
		if f.row.StackID != "" && r.StackID != f.row.StackID || seen[r.StackID] {
			continue
		}
		seen[r.StackID] = true
		if err := r.complete(tx); err != nil {
			return f, err
		}
		f.runs = append(f.runs, r)
	}
	return f, nil
}

// complete reads the stack and the update of a run.
func (r *run) complete(tx *store.Tx) error {
	org, err := tx.Organization(r.OrgID)
	if err != nil {
		return err
	}
	r.org = org.Name
	st, err := tx.Stack(r.StackID)
	if errors.Is(err, store.ErrNotFound) { // such as a review stack that was destroyed
		return nil
	}
	if err != nil {
		return err
	}
	r.stack = &st
	list, err := tx.UpdatesOfDeployment(r.Deployment.ID, 1)
	if err != nil || len(list) == 0 {
		return err
	}
	r.update = &list[0]
	r.policy, err = results.Of(tx, list[0], render.MaxViolations)
	return err
}

// status returns the report on one deployment.
func (s *Service) status(ctx context.Context, to Integration, f facts) (*vcs.Report, error) {
	r := f.runs[0]
	shown, secrets, err := s.describe(ctx, to, r)
	if err != nil {
		return nil, err
	}
	known, err := s.masked(ctx, secrets, &shown)
	if err != nil {
		return nil, err
	}
	out := &vcs.Report{
		ID: f.row.RemoteID, Context: f.row.Context, Commit: f.row.CommitID, Pull: int(f.row.Pull), State: stateOf(r.Job),
		Summary: render.Line(shown, known), URL: shown.URL,
	}
	if r.Job.Status.Final() {
		out.Details = render.Markdown(render.Comment{Marker: f.row.IntegrationID, Stacks: []render.Stack{shown}, URL: shown.URL, Secrets: known},
			render.Style{Limit: maxDetails, Folds: true})
	}
	return out, nil
}

// maxDetails is the maximum length of the details of a check in bytes.
const maxDetails = 60_000

// stateOf returns the state of the report on a job.
func stateOf(j store.Job) vcs.ReportState {
	switch j.Status {
	case workflow.StatusRunning:
		return vcs.ReportRunning
	case workflow.StatusSucceeded:
		return vcs.ReportSucceeded
	case workflow.StatusFailed:
		return vcs.ReportFailed
	case workflow.StatusSkipped:
		if j.Reason == workflow.ReasonSuperseded {
			return vcs.ReportNeutral
		}
		// A check that a repository requires must not pass because a user cancelled the deployment.
		return vcs.ReportFailed
	case workflow.StatusNotStarted, workflow.StatusAccepted:
	}
	return vcs.ReportPending
}

// aggregate returns the report on a whole commit. It concludes as soon as nothing runs.
func aggregate(f facts) *vcs.Report {
	count := map[vcs.ReportState]int{}
	for _, r := range f.runs {
		count[stateOf(r.Job)]++
	}
	out := &vcs.Report{ID: f.row.RemoteID, Context: outbox.Aggregate, Commit: f.row.CommitID, Pull: int(f.row.Pull)}
	total := len(f.runs)
	done := count[vcs.ReportSucceeded] + count[vcs.ReportNeutral] + count[vcs.ReportFailed]
	switch {
	case count[vcs.ReportFailed] > 0 && done == total:
		out.State, out.Summary = vcs.ReportFailed, fmt.Sprintf("%d of %s failed", count[vcs.ReportFailed], words.Count(total, "stack"))
	case done < total:
		out.State, out.Summary = vcs.ReportRunning, fmt.Sprintf("%d of %s finished", done, words.Count(total, "stack"))
	case len(f.problems) > 0:
		out.State, out.Summary = vcs.ReportFailed, render.Text(f.problems[0])
	case total == 0 && f.row.Note == outbox.NoteApproval:
		out.State, out.Summary = vcs.ReportAction, "needs approval: a member must approve this commit"
	case total == 0:
		out.State, out.Summary = vcs.ReportSucceeded, "no stack affected"
	default:
		out.State, out.Summary = vcs.ReportSucceeded, words.Count(total, "stack")+" finished"
	}
	return out
}

// comment returns the comment of a pull request, or nil if there is nothing to say.
func (s *Service) comment(ctx context.Context, to Integration, f facts) (*vcs.Comment, error) {
	if to.NoComments || to.NoDraftComments && f.pull.Draft || len(f.runs)+len(f.problems) == 0 {
		return nil, nil
	}
	c := render.Comment{Marker: f.row.IntegrationID, Notes: f.problems}
	var all []redact.Secret
	for _, r := range f.runs {
		shown, secrets, err := s.describe(ctx, to, r)
		if err != nil {
			return nil, err
		}
		shown.Outdated = r.commit != f.pull.Head
		c.Stacks = append(c.Stacks, shown)
		all = append(all, secrets...)
		c.URL = cmp.Or(c.URL, shown.URL)
	}
	var err error
	if c.Secrets, err = s.masked(ctx, all, pointers(c.Stacks)...); err != nil {
		return nil, err
	}
	limit := maxDetails
	if commenter, ok := to.Client.(vcs.Commenter); ok {
		limit = commenter.CommentLimit()
	}
	body := render.Markdown(c, render.Style{Limit: limit, Folds: to.Folds})
	return &vcs.Comment{ID: f.row.RemoteID, Marker: render.Mark(f.row.IntegrationID), Body: body}, nil
}

// masked returns the set of the secrets of the given stacks. If they are too many to be masked, it
// removes what programs wrote from the stacks.
func (s *Service) masked(ctx context.Context, secrets []redact.Secret, shown ...*render.Stack) (*redact.Set, error) {
	set, err := redact.Build(ctx, secrets...)
	if _, limit := errors.AsType[*redact.LimitError](err); limit {
		s.log.WithError(err).Warn("masking the secrets of deployments failed; their report has no details")
		for _, stack := range shown {
			stack.Reason, stack.Changes, stack.Outputs, stack.Policy.Violations = "", changes.Tree{}, nil, nil
		}
		return redact.Build(ctx)
	}
	return set, err
}

func pointers[T any](list []T) []*T {
	all := make([]*T, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	return all
}

// describe returns a deployment as reports show it, and its secrets.
func (s *Service) describe(ctx context.Context, to Integration, r run) (render.Stack, []redact.Secret, error) {
	out := render.Stack{
		Project: r.Deployment.Project, Name: r.Deployment.Stack, Operation: r.Deployment.Operation, Status: r.Job.Status,
		Reason: strings.TrimSpace(cmp.Or(r.Job.Message, string(r.Job.Reason))), Commit: r.commit, URL: s.url(r),
		Removed: r.stack == nil,
	}
	if !r.Job.EndedAt.IsZero() && !r.Job.StartedAt.IsZero() {
		out.Took = r.Job.EndedAt.Sub(r.Job.StartedAt)
	}
	if r.stack == nil || !r.Job.Status.Final() {
		return out, nil, nil
	}
	secrets, err := s.opts.Secrets(ctx, r.Deployment.ID)
	if err != nil {
		// Without the secrets, nothing that a program wrote may be shown.
		s.log.WithError(err).WithField("deployment_id", r.Deployment.ID).Warn("reading the secrets of a deployment failed; its report has no details")
		out.Reason = ""
		return out, nil, nil
	}
	out.Policy = policyOf(r.policy)
	if r.update != nil {
		p := identity.Principal{Kind: identity.KindOrg, Org: store.Organization{ID: r.stack.OrgID, Name: r.org}, Admin: true}
		if out.Changes, err = s.opts.Stacks.Changes(ctx, p, *r.stack, *r.update); err != nil {
			return out, nil, err
		}
		if to.NoDiff {
			out.Changes.Rows = nil
		}
	}
	if r.Initiator == InitiatorReview && r.Job.Status == workflow.StatusSucceeded && r.Deployment.Operation == workflow.OperationUpdate {
		if out.Outputs, err = s.outputs(ctx, r.stack.ID); err != nil {
			return out, nil, err
		}
	}
	return out, secrets, nil
}

func policyOf(r results.Report) render.Policy {
	out := render.Policy{Mandatory: r.Mandatory, Advisory: r.Advisory, Excepted: r.Excepted, Missing: r.Missing}
	for _, v := range r.Violations {
		out.Violations = append(out.Violations, render.Violation{
			Pack: v.Pack, Policy: v.Policy, Level: v.Level, URN: v.URN, Message: v.Message, Exceptions: v.Exceptions,
		})
	}
	for _, name := range r.Unknown {
		out.Unknown = append(out.Unknown, name.Pack+" "+name.Policy)
	}
	return out
}

// url returns the page of a deployment, or "" if it has none because its stack was removed.
func (s *Service) url(r run) string {
	if r.stack == nil {
		return ""
	}
	return s.opts.Console.Deployment(r.org, r.Deployment.Project, r.Deployment.Stack, r.Deployment.Version)
}

// outputs returns the outputs of a stack, without the values of secrets.
func (s *Service) outputs(ctx context.Context, stackID string) ([]render.Output, error) {
	state, err := s.opts.Stacks.ExportOutputs(ctx, stackID)
	if err != nil || state.Empty() {
		return nil, err
	}
	var doc struct {
		Resources []struct {
			Outputs map[string]any `json:"outputs"`
		} `json:"resources"`
	}
	if err := json.Unmarshal(state.Deployment, &doc); err != nil {
		return nil, fmt.Errorf("reading the outputs of a stack: %w", err)
	}
	var out []render.Output
	for _, r := range doc.Resources {
		for name, value := range r.Outputs {
			text, secret := valueOf(value)
			out = append(out, render.Output{Name: name, Value: text, Secret: secret})
		}
	}
	slices.SortFunc(out, func(a, b render.Output) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// valueOf returns a value as text, in which secrets are hidden.
func valueOf(v any) (text string, secret bool) {
	v = diff.Hide(v)
	if text, ok := v.(string); ok {
		return text, text == diff.Secret
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		return "", false
	}
	return string(encoded), false
}
