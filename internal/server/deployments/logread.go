package deployments

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

const (
	// pageLines and pageBytes bound one page of a stream. A page is a little larger
	// in memory and, because JSON escapes some characters, in the answer.
	pageLines = 1000
	pageBytes = 1 << 20
	// pageMemory is what reading one takes, in bytes.
	pageMemory = 2 * pageBytes
	// MaxStepLines is the most lines that a client may ask for in step mode.
	MaxStepLines = 499
)

// Page is a part of the log of a deployment.
type Page struct {
	Lines []Line
	Next  string // "" only when the deployment has ended and everything was read
}

// position is where a reader of a stream is. It travels as the continuation
// token "epoch.step.offset.flags.left", so the server keeps nothing about
// readers. Log may arrive after a reader has gone on to the next step; left
// says where it left the steps before, so that it gets such lines at the end.
type position struct {
	epoch  int64
	step   int        // len(steps): the agent's own stream; one more: the server's notes
	offset int64      // bytes; notes when they are read
	header bool       // the header of the step was sent
	told   waitReason // why the deployment waits, as last reported to the reader
	left   []int64
}

func parsePosition(token string) (position, error) {
	if token == "" {
		return position{epoch: 1}, nil
	}
	bad := fault.Invalid("Bad Request: the continuationToken is not one of this server")
	parts := strings.Split(token, ".")
	if len(parts) != 5 || len(token) > maxToken {
		return position{}, bad
	}
	var n [4]int64
	for i, part := range parts[:4] {
		v, err := strconv.ParseInt(part, 10, 64)
		if err != nil || v < 0 {
			return position{}, bad
		}
		n[i] = v
	}
	if n[0] < 1 || n[1] > 1<<20 || n[3]>>1 >= int64(waitReasons) {
		return position{}, bad
	}
	p := position{epoch: n[0], step: int(n[1]), offset: n[2], header: n[3]&1 != 0, told: waitReason(n[3] >> 1)}
	if parts[4] == "" {
		return p, nil
	}
	for part := range strings.SplitSeq(parts[4], "-") {
		v, err := strconv.ParseInt(part, 10, 64)
		if err != nil || v < 0 {
			return position{}, bad
		}
		p.left = append(p.left, v)
	}
	return p, nil
}

// maxToken bounds a continuation token, in bytes: a step takes few of them.
const maxToken = 16 << 10

func (p position) String() string {
	flags := int64(p.told) << 1
	if p.header {
		flags |= 1
	}
	left := make([]string, len(p.left))
	for i, v := range p.left {
		left[i] = strconv.FormatInt(v, 10)
	}
	return fmt.Sprintf("%d.%d.%d.%d.%s", p.epoch, p.step, p.offset, flags, strings.Join(left, "-"))
}

// next returns the beginning of the following step.
func (p position) next() position {
	return position{epoch: p.epoch, step: p.step + 1, told: p.told, left: append(p.left, p.offset)}
}

// view is what a reader of the log needs to know about a deployment, all of
// one moment.
type view struct {
	now    time.Time // of the database
	job    store.Job
	linked bool // an update of the deployment's operation exists
	wait   wait // for a queued deployment
}

func (s *Service) view(ctx context.Context, st store.Stack, deploymentID string) (view, error) {
	var v view
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		dj, err := find(tx, st, deploymentID)
		if err != nil {
			return err
		}
		v = view{now: tx.Now(), job: dj.Job}
		if dj.Job.Status == workflow.StatusNotStarted {
			if v.wait, err = s.whyQueued(tx, dj.Deployment, dj.Job); err != nil {
				return err
			}
		}
		kinds, err := tx.UpdateKindsOfDeployment(dj.ID)
		if err != nil {
			return err
		}
		for _, k := range kinds {
			v.linked = v.linked || updateMatches(dj.Operation, k)
		}
		return nil
	})
	return v, err
}

// updateMatches tells whether an update that was started is the one that an
// operation makes.
func updateMatches(op workflow.Operation, u store.UpdateKind) bool {
	switch op {
	case workflow.OperationUpdate, workflow.OperationRemediateDrift:
		return u.Kind == "update" && !u.Preview
	case workflow.OperationPreview:
		return u.Preview && (u.Kind == "preview" || u.Kind == "update")
	case workflow.OperationRefresh:
		return u.Kind == "refresh" && !u.Preview
	case workflow.OperationDestroy:
		return u.Kind == "destroy" && !u.Preview
	case workflow.OperationDetectDrift:
		return u.Kind == "refresh" || u.Kind == "preview"
	default:
		return false
	}
}

// Log returns the part of a deployment's log that follows a continuation
// token; the empty token starts at the beginning.
func (s *Service) Log(ctx context.Context, st store.Stack, deploymentID, token string) (Page, error) {
	pos, err := parsePosition(token)
	if err != nil {
		return Page{}, err
	}
	v, err := s.view(ctx, st, deploymentID)
	if err != nil {
		return Page{}, err
	}
	if err := budget.Of(ctx).Take(ctx, pageMemory); err != nil {
		return Page{}, err
	}
	r := logReader{s: s, view: v, pos: pos, page: room{pageLines, pageBytes}}
	done, err := r.read(ctx)
	if err != nil {
		return Page{}, err
	}
	page := Page{Lines: r.out}
	if !done {
		page.Next = r.pos.String()
	}
	return page, nil
}

// logReader walks the streams of a deployment: the claims one after the other,
// the steps of each in order, at last what the agent and the server add.
type logReader struct {
	s *Service
	view
	pos  position
	page room // of out
	out  []Line
}

// read fills a page; done means that nothing more can come.
func (r *logReader) read(ctx context.Context) (done bool, err error) {
	r.reportWait()
	for !r.page.full() {
		switch {
		case r.pos.epoch > r.job.Epoch:
			return r.job.Status.Final(), nil
		case r.pos.step > len(r.job.Steps):
			if r.pos.epoch < r.job.Epoch {
				r.pos = position{epoch: r.pos.epoch + 1, told: r.pos.told}
				continue
			}
			if !r.job.Status.Final() {
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

// reportWait adds why the deployment does not start, whenever the reason changes.
func (r *logReader) reportWait() {
	if r.wait.reason == waitTurn || r.wait.reason == r.pos.told {
		return
	}
	if r.pos.told == waitTurn {
		r.out = append(r.out, Line{Header: "Queued"})
	}
	r.pos.told = r.wait.reason
	r.out = append(r.out, Line{Time: r.now, Text: r.wait.text + "\n"})
}

// readStep adds what is there of the current step; moved means that the reader
// has gone on to the next one.
func (r *logReader) readStep(ctx context.Context) (moved bool, err error) {
	key := logKey(r.job.ID, r.pos.epoch, r.pos.step)
	// Whether the step is over is decided before its stream is read: what
	// arrives in between is then read the next time.
	over := r.over()
	lines, offset, err := r.s.logs.readLines(ctx, key, r.pos.offset, &r.page)
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
	if !over || len(lines) > 0 {
		return len(lines) > 0 && over, nil // look again: the end was not seen yet
	}
	r.pos = r.pos.next()
	return true, nil
}

// current tells whether the reader is at the claim that counts.
func (r *logReader) current() bool { return r.pos.epoch == r.job.Epoch }

// started tells whether the step shows a header though it has no line.
func (r *logReader) started() bool {
	if !r.current() || r.pos.step >= len(r.job.Steps) {
		return false
	}
	return r.job.Steps[r.pos.step].Status != workflow.StepNotStarted
}

// setupPatience is how long a reader waits for the agent to close step 0 when
// the runner has begun the next one.
const setupPatience = 10 * time.Second

// shipPatience is how long a reader waits for the last lines of a step when
// the next one has begun: log and status travel side by side. What takes
// longer is shown at the end.
const shipPatience = 300 * time.Millisecond

// over tells whether no more is expected from the current step. The runner
// does one step after the other, so the beginning of the next is the end of
// this one. Step 0 has another writer, the agent, which says when it is done;
// agents that know only the stock calls never do.
func (r *logReader) over() bool {
	if !r.current() || r.job.Status.Final() {
		return true
	}
	if r.pos.step >= len(r.job.Steps) {
		return false // the agent may speak until the job has ended
	}
	later, since := r.laterStarted()
	if !later || r.now.Sub(since) < shipPatience {
		return false
	}
	if r.pos.step > 0 || r.job.Stock {
		return true
	}
	st := r.job.Steps[0].Status
	return st == workflow.StepSucceeded || st == workflow.StepFailed || r.now.Sub(since) > setupPatience
}

// laterStarted tells whether and when a step after the current one was begun.
func (r *logReader) laterStarted() (bool, time.Time) {
	for _, st := range r.job.Steps[r.pos.step+1:] {
		if st.Status != workflow.StepNotStarted {
			return true, st.UpdatedAt // the database's clock, not the runner's
		}
	}
	return false, time.Time{}
}

// header returns the header of the current step, or false while it must be
// held back: the stock CLI turns to the update, for a few seconds only, as soon
// as it reads the header of the pulumi step.
func (r *logReader) header() (string, bool) {
	if r.pos.step >= len(r.job.Steps) {
		return "Agent", true
	}
	name := r.job.Steps[r.pos.step].Name
	if name != workflow.PulumiStepName(r.job.Operation) || r.linked {
		return name, true
	}
	st := r.job.Steps[r.pos.step].Status
	if r.job.Status.Final() || !r.current() || st == workflow.StepSucceeded || st == workflow.StepFailed {
		return name + " (not started)", true
	}
	return "", false
}

// readLate adds lines that arrived after the reader had left their step; more
// means that the page is full.
func (r *logReader) readLate(ctx context.Context) (more bool, err error) {
	for i := range r.pos.left {
		if i > len(r.job.Steps) {
			break
		}
		lines, offset, err := r.s.logs.readLines(ctx, logKey(r.job.ID, r.pos.epoch, i), r.pos.left[i], &r.page)
		if err != nil {
			return false, err
		}
		if len(lines) > 0 {
			name := "Agent"
			if i < len(r.job.Steps) {
				name = r.job.Steps[i].Name
			}
			r.out = append(r.out, Line{Header: name + " (late lines)"})
			r.out = append(r.out, lines...)
			r.pos.left[i] = offset
		}
		if r.page.full() {
			return true, nil
		}
	}
	return false, nil
}

// readNotes adds what the server itself has to say.
func (r *logReader) readNotes() {
	if r.pos.offset >= int64(len(r.job.Notes)) {
		return
	}
	if !r.pos.header {
		r.out = append(r.out, Line{Header: "Server"})
		r.pos.header = true
	}
	for _, n := range r.job.Notes[r.pos.offset:] {
		r.out = append(r.out, Line{Time: n.At, Text: n.Text + "\n"})
	}
	r.pos.offset = int64(len(r.job.Notes))
}

// StepPage is a part of the log of one step.
type StepPage struct {
	Name  string
	Lines []Line
	Next  *int64 // nil: nothing more for now
}

// StepLog returns lines of one step of the current claim; offset counts lines.
func (s *Service) StepLog(ctx context.Context, st store.Stack, deploymentID string, job, step int, offset int64, count int) (StepPage, error) {
	if count < 1 || count > MaxStepLines {
		return StepPage{}, fault.Invalid("Bad Request: Count must be less than 500 and more than 0")
	}
	if offset < 0 {
		return StepPage{}, fault.Invalid("Bad Request: the offset must not be negative")
	}
	v, err := s.view(ctx, st, deploymentID)
	if err != nil {
		return StepPage{}, err
	}
	if job != 0 || step < 0 || step > len(v.job.Steps) {
		return StepPage{}, fault.NotFound("Not Found: the deployment has no step %d of a job %d", step, job)
	}
	page := StepPage{Name: "Agent"}
	if step < len(v.job.Steps) {
		page.Name = v.job.Steps[step].Name
	}
	if err := budget.Of(ctx).Take(ctx, pageMemory); err != nil {
		return StepPage{}, err
	}
	lines, more, err := s.logs.readFrom(ctx, logKey(v.job.ID, v.job.Epoch, step), offset, count)
	if err != nil {
		return StepPage{}, err
	}
	page.Lines = lines
	if more {
		next := offset + int64(len(lines))
		page.Next = &next
	}
	return page, nil
}
