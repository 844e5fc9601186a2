// Package joblog contains the log of a job, a deployment or a policy evaluation: the viewer on its page, and what the viewer
// reads.
package joblog

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	logs "workflowagent/internal/server/joblog"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// Deps are the services behind the logs.
type Deps struct {
	Deployments *deployments.Service
	Evaluations *evaluations.Service
}

// Model is what the viewer shows. Steps have numbers from 1; the agent's own lines and the server's
// notes follow them.
type Model struct {
	// Base is the path of the log.
	Base  string
	Steps []Step
	// Live means that the log can grow.
	Live bool
	// Try is the number of the claim whose log is shown; Last is that of the last claim.
	Try, Last int64
	// Only means that the logs of other claims have been removed.
	Only bool
	// Begin is the time from which the viewer counts.
	Begin time.Time
	// Failed opens the viewer at the cause of the failure, which is Cause, as step and line, or at the first error.
	// Lines start at 0.
	Failed bool
	Cause  string
}

// Step is one part of a log.
type Step struct {
	Number int
	Name   string
	// Status is the status in words of the console, or "".
	Status   string
	Duration time.Duration
	Lines    int64
	ExitCode *int
}

// Register registers the routes.
func Register(site *page.Site, d Deps) {
	ofDeployment := &pages{d.Deployments.Logs, "version", func(v *page.Visit) (store.Job, error) {
		return d.Deployments.LogJob(v.Context(), v.Stack, Reference(v))
	}}
	ofDeployment.register(site, "/{org}/{project}/{stack}/deployments/{version}/log")
	ofEvaluation := &pages{d.Evaluations.Logs, "evaluation", func(v *page.Visit) (store.Job, error) {
		return d.Evaluations.LogJob(v.Context(), v.Stack, v.Param("evaluation"))
	}}
	ofEvaluation.register(site, "/{org}/{project}/{stack}/evaluations/{evaluation}/log")
}

func (p *pages) register(site *page.Site, log string) {
	access := page.Stack(identity.StateRead)
	site.Raw(log+"/find", access, p.find)
	site.Raw(log+"/raw", access, p.rawAll)
	site.Raw(log+"/{step}", access, p.rows)
	site.Raw(log+"/{step}/raw", access, p.raw)
}

// pages are the parts of logs of one kind of jobs.
type pages struct {
	logs func() *logs.Store
	// name is the parameter of the path that names the job.
	name string
	// job returns the job that the path names, within its stack.
	job func(v *page.Visit) (store.Job, error)
}

// target is the part of a log that a request names.
type target struct {
	job    store.Job
	epoch  int64
	stream int
}

// Reference returns the reference to the deployment of a path: its number or its id.
func Reference(v *page.Visit) string {
	id := v.Param("version")
	if _, err := strconv.ParseInt(id, 10, 64); err == nil {
		return "#" + id
	}
	return id
}

func (p *pages) target(v *page.Visit) (target, error) {
	job, err := p.job(v)
	if err != nil {
		return target{}, err
	}
	t := target{job: job, epoch: job.Epoch}
	if try := v.Query("try"); try != "" {
		if t.epoch, err = number(try, "try"); err != nil {
			return target{}, err
		}
	}
	if step := v.Param("step"); step != "" {
		n, err := number(step, "step")
		if err != nil || n < 1 || n > 1<<20 {
			return target{}, fault.NotFound("the job has no step %s", step)
		}
		t.stream = int(n) - 1
	}
	return t, logs.CheckStream(job, t.epoch, t.stream)
}

func number(text, name string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fault.Invalid("%s must be a number", name)
	}
	return n, nil
}

// numberOr returns a number of the query, or other if it is missing.
func numberOr(v *page.Visit, name string, other int64) (int64, error) {
	text := v.Query(name)
	if text == "" {
		return other, nil
	}
	return number(text, name)
}

// Flags of a row.
const (
	flagError = 1 << iota
	flagWarning
	flagCut
	flagJoined
	flagNote
)

// rows sends lines as arrays of time in milliseconds, flags and text.
func (p *pages) rows(w http.ResponseWriter, v *page.Visit) error {
	t, err := p.target(v)
	if err != nil {
		return err
	}
	from, err := numberOr(v, "from", 0)
	if err != nil {
		return err
	}
	count, err := numberOr(v, "count", 500)
	if err != nil {
		return err
	}
	part, err := p.logs().Rows(v.Context(), t.job, t.epoch, t.stream, from, int(min(count, 1<<20)), v.Query("whole") != "")
	if err != nil {
		return err
	}
	rows := make([][3]any, 0, len(part.Rows))
	for _, r := range part.Rows {
		at := int64(0)
		if !r.Time.IsZero() {
			at = r.Time.UnixMilli()
		}
		rows = append(rows, [3]any{at, flags(r), r.Text})
	}
	return send(w, map[string]any{"from": part.From, "lines": part.Lines, "done": t.done(), "rows": rows})
}

func (t target) done() bool { return t.epoch < t.job.Epoch || t.job.Status.Final() }

func flags(r logs.Row) (f int) {
	switch r.Severity {
	case logs.Error:
		f = flagError
	case logs.Warning:
		f = flagWarning
	case logs.Normal:
	}
	for flag, set := range map[int]bool{flagCut: r.Cut, flagJoined: r.Joined, flagNote: r.Note} {
		if set {
			f |= flag
		}
	}
	return f
}

// find sends the numbers of matching lines as pairs of step and line.
func (p *pages) find(w http.ResponseWriter, v *page.Visit) error {
	t, err := p.target(v)
	if err != nil {
		return err
	}
	found, err := p.logs().Find(v.Context(), t.job, t.epoch, logs.Query{
		Text: v.Query("q"), Regexp: v.Query("regex") != "", Case: v.Query("case") != "", Errors: v.Query("errors") != "",
	})
	if err != nil {
		return err
	}
	hits := make([][2]int64, 0, len(found.Hits))
	for _, h := range found.Hits {
		hits = append(hits, [2]int64{int64(h.Stream) + 1, h.Line})
	}
	return send(w, map[string]any{"hits": hits, "total": found.Total, "partial": found.Partial})
}

func send(w http.ResponseWriter, body any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding a part of a log: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(encoded) //nolint:errcheck // the browser might have disconnected
	return nil
}

// Load returns the model of the log of a job. try is the number of a claim, or 0 for the last one.
func Load(ctx context.Context, of *logs.Store, job store.Job, base string, try int64, now time.Time) (Model, error) {
	if try < 1 || try > job.Epoch {
		try = job.Epoch
	}
	counts, err := of.Counts(ctx, job, try)
	if err != nil {
		return Model{}, err
	}
	m := Model{
		Base: base, Try: try, Last: job.Epoch, Begin: job.ClaimedAt,
		Live: try == job.Epoch && !job.Status.Final(), Failed: try == job.Epoch && job.Status == workflow.StatusFailed && !job.DriftFound,
	}
	if c := job.Cause; m.Failed && c != nil && c.Line > 0 {
		m.Cause = fmt.Sprintf("%d:%d", c.Step+1, c.Line-1)
	}
	for i, lines := range counts {
		if i >= len(job.Steps) && lines == 0 {
			continue // the agent and the server have rarely something to say
		}
		one := Step{Number: i + 1, Name: logs.StreamName(job, i), Lines: lines}
		if i < len(job.Steps) && try == job.Epoch {
			one.setState(job.Steps[i], job, now)
		}
		m.Steps = append(m.Steps, one)
	}
	return m, nil
}

func (s *Step) setState(state store.StepState, job store.Job, now time.Time) {
	s.ExitCode = state.ExitCode
	switch state.Status {
	case workflow.StepRunning:
		s.Status = "running"
		if job.Status.Final() {
			s.Status = "failed"
		}
	case workflow.StepSucceeded:
		s.Status = "succeeded"
	case workflow.StepFailed:
		s.Status = "failed"
	case workflow.StepSkipped:
		s.Status = "skipped"
	default:
		s.Status = "queued"
		if job.Status.Final() {
			s.Status = "skipped"
		}
	}
	if s.Status == "failed" && job.DriftFound {
		s.Status = view.StatusWord(waiting.StateDrift)
	}
	if state.StartedAt.IsZero() {
		return
	}
	end := now
	if !state.FinishedAt.IsZero() {
		end = state.FinishedAt
	} else if job.Status.Final() {
		end = job.EndedAt
	}
	s.Duration = max(0, end.Sub(state.StartedAt))
}

// follower follows the log of a job of a stack.
type follower interface {
	FollowLog(ctx context.Context, st store.Stack, id string, grew func(deployments.LogSize) error) error
}

// Feed sends the number of lines of each step to an open page, when the log has grown.
func Feed(f follower, st store.Stack, id string) view.Feed {
	return func(ctx context.Context, send func(event string, data any) error) error {
		return f.FollowLog(ctx, st, id, func(s deployments.LogSize) error {
			return send("log", map[string]any{"try": s.Epoch, "step": s.Stream + 1, "lines": s.Lines, "done": s.Done})
		})
	}
}

// took returns the duration of a finished step. That of a running one would change with each
// rendering.
func took(s Step) string {
	if s.Duration == 0 || s.Status == "running" {
		return ""
	}
	return words.Duration(s.Duration)
}
