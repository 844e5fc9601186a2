package checkup

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/termtext"
)

// Check is one check of a plan.
type Check struct {
	Name, Title string
	// Needs lists checks that run first. If one of them fails or is skipped, this check is skipped.
	Needs []string
	// After lists checks that run first. Their outcome does not matter.
	After []string
	// Limit is the timeout of the check. 0 means the plan's.
	Limit time.Duration
	Run   func(ctx context.Context) Result
}

// Plan is the list of a doctor's checks in the order of the report. Each check comes after the checks
// that it needs.
type Plan struct {
	Version string // of the doctor's program
	Checks  []Check
	// Only lists the names of the checks to run, in addition to those that they need. If it is empty, all
	// checks run.
	Only []string
	// Limit is the default timeout of a check. 0 means [UsualLimit].
	Limit time.Duration
	// Done is called with each result as soon as the result is known, in the order of the report. It can
	// be nil.
	Done func(Result)
}

// UsualLimit is the default timeout of a check.
const UsualLimit = 10 * time.Second

// Run runs the checks, independent ones concurrently. When ctx is canceled, it skips the remaining
// checks.
func (p Plan) Run(ctx context.Context) Report {
	if p.Limit <= 0 {
		p.Limit = UsualLimit
	}
	report := Report{Version: p.Version, Time: time.Now().UTC(), OK: true}
	p.runAll(ctx, func(r Result) {
		report.Checks = append(report.Checks, r)
		report.OK = report.OK && r.Status != StatusFail
		if p.Done != nil {
			p.Done(r)
		}
	})
	return report
}

// chosen returns the checks to run: those that Only names, and the checks that they need.
func (p Plan) chosen() []Check {
	if len(p.Only) == 0 {
		return p.Checks
	}
	wanted := map[string]bool{}
	for _, name := range p.Only {
		wanted[name] = true
	}
	for _, c := range slices.Backward(p.Checks) { // each check comes after the checks that it needs
		for _, name := range c.Needs {
			wanted[name] = wanted[name] || wanted[c.Name]
		}
	}
	return slices.DeleteFunc(slices.Clone(p.Checks), func(c Check) bool { return !wanted[c.Name] })
}

// runAll runs each check as soon as the checks that it needs are done. It calls done with the
// results in order.
func (p Plan) runAll(ctx context.Context, done func(Result)) {
	type state struct {
		result Result
		ready  chan struct{}
	}
	checks := p.chosen()
	states := map[string]*state{}
	for _, c := range checks {
		states[c.Name] = &state{ready: make(chan struct{})}
	}
	for _, c := range checks {
		s := states[c.Name]
		go func() {
			defer close(s.ready)
			begin := time.Now()
			for _, name := range c.After {
				if earlier, there := states[name]; there {
					<-earlier.ready
				}
			}
			var missing []string
			for _, name := range c.Needs {
				need := states[name]
				<-need.ready
				if need.result.Status == StatusFail || need.result.Status == StatusSkip {
					missing = append(missing, need.result.Title)
				}
			}
			switch {
			case len(missing) > 0:
				s.result = Skip("not checked, because of: " + strings.Join(missing, ", "))
			case ctx.Err() != nil:
				s.result = Skip("not checked, because the doctor was stopped")
			default:
				begin = time.Now()
				s.result = p.runOne(ctx, c)
			}
			s.result = plain(s.result)
			s.result.Name, s.result.Title = c.Name, c.Title
			s.result.Milliseconds = time.Since(begin).Milliseconds()
		}()
	}
	for _, c := range checks {
		<-states[c.Name].ready
		done(states[c.Name].result)
	}
}

// plain returns a result whose texts are one printable line each: they can contain what other programs have
// sent, and a terminal must not interpret that, in JSON either.
func plain(r Result) Result {
	r.Found, r.Advice = termtext.OneLine(r.Found, 0), termtext.OneLine(r.Advice, 0)
	r.Details = slices.Clone(r.Details)
	for i, line := range r.Details {
		r.Details[i] = termtext.OneLine(line, 0)
	}
	return r
}

var errTooLong = errors.New("the check took too long")

func (p Plan) runOne(ctx context.Context, c Check) Result {
	limit := c.Limit
	if limit <= 0 {
		limit = p.Limit
	}
	limited, cancel := context.WithTimeoutCause(ctx, limit, errTooLong)
	defer cancel()
	r := c.Run(limited)
	if r.Status == StatusFail && errors.Is(context.Cause(limited), errTooLong) && r.Advice == "" {
		r.Advice = "the check took longer than " + limit.String() + ": try again, and find the cause of the delay"
	}
	return r
}
