package joblog

import (
	"context"
	"time"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

const (
	// pageLines and pageBytes bound one page of a stream. A page uses slightly more memory than
	// pageBytes. Its response can be larger because of JSON escapes.
	pageLines = 8000
	pageBytes = 1 << 20
	// pageMemory is the memory required to read a page, in bytes.
	pageMemory = 3 * pageBytes
	// maxStepLines is the maximum number of lines in a response to a step request.
	maxStepLines = 499
)

// Page is a part of a deployment's log.
type Page struct {
	Lines []Line
	Next  string // "" only if the deployment has finished and the reader has received the whole log
}

// View is the state of a deployment that determines its visible log. It is read in one transaction.
type View struct {
	Now    time.Time // database time
	Job    store.Job
	Linked bool // whether an update for the deployment's operation exists
	Wait   Wait
}

// Wait is the reason why a queued deployment does not start.
type Wait struct {
	Reason int64  // 0 means nothing to report; continuation tokens contain the number
	Text   string // sentences that clients display
}

// Read returns the page of a deployment's log after a continuation token. The token "" starts at
// the beginning.
func (l *Store) Read(ctx context.Context, v View, token string) (Page, error) {
	pos, err := parsePosition(token)
	if err != nil {
		return Page{}, err
	}
	if v.Job.LogExpired {
		return Page{Lines: expired(v.Job)}, nil
	}
	if err := budget.Of(ctx).Take(ctx, pageMemory); err != nil {
		return Page{}, err
	}
	r := reader{store: l, View: v, pos: pos, page: room{pageLines, pageBytes}}
	done, err := r.read(ctx)
	if err != nil {
		return Page{}, err
	}
	if len(r.out) == 0 {
		budget.Of(ctx).Give(pageMemory) // the caller might read again
	}
	page := Page{Lines: r.out}
	if !done {
		page.Next = r.pos.String()
	}
	return page, nil
}

// expired returns the lines that replace a removed log.
func expired(job store.Job) []Line {
	return []Line{{
		Time: job.EndedAt,
		Text: "The log of this deployment has expired: the server keeps logs for the time in its setting keep_logs_for.\n",
	}}
}

// reader reads a deployment's streams in order: the steps of each claim, then the agent's lines and
// the server's notes.
type reader struct {
	store *Store
	View
	pos  position
	page room // remaining room in out
	out  []Line
}

// read fills a page. done reports whether the log is complete.
func (r *reader) read(ctx context.Context) (done bool, err error) {
	r.reportWait()
	for !r.page.full() {
		switch {
		case r.pos.epoch > r.Job.Epoch:
			return r.Job.Status.Final(), nil
		case r.pos.step > len(r.Job.Steps):
			if r.pos.epoch < r.Job.Epoch {
				r.pos = position{epoch: r.pos.epoch + 1, told: r.pos.told}
				continue
			}
			if !r.Job.Status.Final() {
				return false, nil
			}
			if more, err := r.readLate(ctx); err != nil || more {
				return false, err
			}
			r.readNotes()
			return true, nil
		}
		moved, err := r.readStep(ctx)
		if err != nil || !moved {
			return false, err
		}
	}
	return false, nil
}

// reportWait adds the reason why the deployment does not start, if that reason has changed.
func (r *reader) reportWait() {
	if r.Wait.Reason == 0 || r.Wait.Reason == r.pos.told {
		return
	}
	if r.pos.told == 0 {
		r.out = append(r.out, Line{Header: "Queued"})
	}
	r.pos.told = r.Wait.Reason
	r.out = append(r.out, Line{Time: r.Now, Text: r.Wait.Text + "\n"})
}

// readStep adds the available lines of the current step. moved reports whether the reader advanced
// to the next step.
func (r *reader) readStep(ctx context.Context) (moved bool, err error) {
	key := Key(r.Job.ID, r.pos.epoch, r.pos.step)
	// over is called before the read, so that the next call reads lines that arrive in between.
	over := r.over()
	lines, offset, err := r.store.readLines(ctx, key, r.pos.offset, &r.page)
	if err != nil {
		return false, err
	}
	if !r.pos.header && (len(lines) > 0 || r.started()) {
		header, ok := r.header()
		if !ok {
			return false, nil
		}
		r.out = append(r.out, Line{Header: header})
		r.page.lines--
		r.pos.header = true
	}
	r.out = append(r.out, lines...)
	r.pos.offset = offset
	if r.sized() && offset >= *r.Job.Steps[r.pos.step].LogBytes {
		r.pos = r.pos.next()
		return true, nil
	}
	if !over || len(lines) > 0 {
		return len(lines) > 0 && over, nil // the stream has more lines
	}
	r.pos = r.pos.next()
	return true, nil
}

func (r *reader) current() bool { return r.pos.epoch == r.Job.Epoch }

// started reports whether to show the header of a step that has no lines.
func (r *reader) started() bool {
	if !r.current() || r.pos.step >= len(r.Job.Steps) {
		return false
	}
	return r.Job.Steps[r.pos.step].Status != workflow.StepNotStarted
}

// setupPatience is the maximum wait for the agent to complete step 0 after the next step has
// started.
const setupPatience = 10 * time.Second

// Log and statuses arrive in parallel. Lines that arrive after the reader has left their step are
// shown at the end.
const (
	// shipPatience is the minimum wait for a step's last lines after the next step has started, if
	// the sender did not report how many lines the step has.
	shipPatience = 300 * time.Millisecond
	// missingPatience is the maximum wait for lines that the sender has reported.
	missingPatience = time.Minute
)

// over reports whether the current step's log is complete. The runner starts a step only after the
// previous step has finished. The agent writes step 0 and reports its completion, unless the agent
// uses only the stock API.
func (r *reader) over() bool {
	if !r.current() || r.Job.Status.Final() {
		return true
	}
	if r.pos.step >= len(r.Job.Steps) {
		return false // the agent can write until the job has finished
	}
	st := r.Job.Steps[r.pos.step]
	if r.sized() && r.pos.offset < *st.LogBytes && r.Now.Sub(st.UpdatedAt) < missingPatience {
		return false
	}
	later, since := r.laterStarted()
	if !later || r.Now.Sub(since) < shipPatience {
		return false
	}
	if r.pos.step > 0 || r.Job.Stock {
		return true
	}
	return st.Status == workflow.StepSucceeded || st.Status == workflow.StepFailed || r.Now.Sub(since) > setupPatience
}

// sized reports whether the size of the current step's log is known, and the server stores all of it.
func (r *reader) sized() bool {
	if !r.current() || r.pos.step >= len(r.Job.Steps) {
		return false
	}
	size := r.Job.Steps[r.pos.step].LogBytes
	return size != nil && *size <= r.store.limit
}

func (r *reader) laterStarted() (bool, time.Time) {
	for _, st := range r.Job.Steps[r.pos.step+1:] {
		if st.Status != workflow.StepNotStarted {
			return true, st.UpdatedAt // database time, not the runner's
		}
	}
	return false, time.Time{}
}

// header returns the header of the current step. It returns false to delay the header of the pulumi
// step: after the stock CLI has read that header, it polls for the update for only a few seconds.
func (r *reader) header() (string, bool) {
	name := streamName(r.Job, r.pos.step)
	if r.pos.step >= len(r.Job.Steps) || name != workflow.PulumiStepName(r.Job.Operation) || r.Linked {
		return name, true
	}
	st := r.Job.Steps[r.pos.step].Status
	if r.Job.Status.Final() || !r.current() || st == workflow.StepSucceeded || st == workflow.StepFailed {
		return name + " (not started)", true
	}
	return "", false
}

// readLate adds lines that arrived after the reader left their step. more reports whether the page
// is full.
func (r *reader) readLate(ctx context.Context) (more bool, err error) {
	for i := range r.pos.left {
		if i > len(r.Job.Steps) {
			break
		}
		lines, offset, err := r.store.readLines(ctx, Key(r.Job.ID, r.pos.epoch, i), r.pos.left[i], &r.page)
		if err != nil {
			return false, err
		}
		if len(lines) > 0 {
			r.out = append(r.out, Line{Header: streamName(r.Job, i) + " (late lines)"})
			r.out = append(r.out, lines...)
			r.pos.left[i] = offset
		}
		if r.page.full() {
			return true, nil
		}
	}
	return false, nil
}

func (r *reader) readNotes() {
	if r.pos.offset >= int64(len(r.Job.Notes)) {
		return
	}
	if !r.pos.header {
		r.out = append(r.out, Line{Header: "Server"})
		r.pos.header = true
	}
	for _, n := range r.Job.Notes[r.pos.offset:] {
		r.out = append(r.out, Line{Time: n.At, Text: n.Text + "\n"})
	}
	r.pos.offset = int64(len(r.Job.Notes))
}

// StepPage is a part of one step's log.
type StepPage struct {
	Name  string
	Lines []Line
	Next  *int64 // nil if no more lines are available
}

// ReadStep returns a page of a step's lines in the current claim. offset is a line number.
func (l *Store) ReadStep(ctx context.Context, v View, step int, offset int64, count int) (StepPage, error) {
	if count < 1 || count > maxStepLines {
		return StepPage{}, fault.Invalid("Count must be less than 500 and more than 0")
	}
	if offset < 0 {
		return StepPage{}, fault.Invalid("the offset must not be negative")
	}
	if step < 0 || step > len(v.Job.Steps) {
		return StepPage{}, fault.NotFound("the deployment has no step %d", step)
	}
	if v.Job.LogExpired {
		page := StepPage{Name: streamName(v.Job, step)}
		if offset == 0 {
			page.Lines = expired(v.Job)
		}
		return page, nil
	}
	if err := budget.Of(ctx).Take(ctx, pageMemory); err != nil {
		return StepPage{}, err
	}
	lines, more, err := l.readFrom(ctx, Key(v.Job.ID, v.Job.Epoch, step), offset, count)
	if err != nil {
		return StepPage{}, err
	}
	page := StepPage{Name: streamName(v.Job, step), Lines: lines}
	if more {
		next := offset + int64(len(lines))
		page.Next = &next
	}
	return page, nil
}

// streamName returns the name of a step or, after the last step, of the agent's own stream.
func streamName(job store.Job, step int) string {
	if step < len(job.Steps) {
		return job.Steps[step].Name
	}
	return "Agent"
}
