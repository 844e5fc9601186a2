// Package doctor looks for what keeps an agent from doing its work: from the configuration over
// the network to the inside of a job. Each check says what it found, what is wrong and what to do
// about it; none claims work or changes anything that stays.
package doctor

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/docker"
	"workflowagent/internal/protocol"
)

// Status is the outcome of a check.
type Status string

// The outcomes. A check is skipped if it has nothing to look at, or if what it needs failed.
const (
	OK   Status = "ok"
	Warn Status = "warn" // the agent works, but not as it should
	Fail Status = "fail"
	Skip Status = "skip"
)

// Result is what one check found.
type Result struct {
	Name   string `json:"name"`  // stable, for programs
	Title  string `json:"title"` // for people
	Status Status `json:"status"`
	// Found is what was looked at and how it was, in one line.
	Found string `json:"found"`
	// Details are further lines of the same.
	Details []string `json:"details,omitempty"`
	// Advice is what to do; empty if there is nothing to do.
	Advice       string `json:"advice,omitempty"`
	Milliseconds int64  `json:"milliseconds"`
}

// Report is what all checks found, in their order.
type Report struct {
	Version string    `json:"version"` // of the agent
	Time    time.Time `json:"time"`
	OK      bool      `json:"ok"` // no check failed
	Checks  []Result  `json:"checks"`
}

// Engine is what the doctor asks a Docker Engine; [docker.Executor] implements it.
type Engine interface {
	Examine(ctx context.Context) (docker.Facts, error)
	EnsureImage(ctx context.Context, reference string, progress func(line string)) (arch string, err error)
	RemoveRunners(ctx context.Context, owner string) error
}

// Options say what to look at.
type Options struct {
	// Config is the configuration, or nil with the reason why there is none in ConfigErr.
	Config    *config.Config
	ConfigErr error
	Version   string // of the agent
	UserAgent string

	// Executor is the place where jobs run, with Engine beside it if it is Docker; or nil with
	// the reason why there is none in ExecutorErr.
	Executor    executor.Executor
	Engine      Engine
	ExecutorErr error

	// Client speaks to the server; nil if the configuration names none that makes sense.
	Client *protocol.Client
	// Token returns the pool's token; nil without one.
	Token func(ctx context.Context) (string, error)

	// Owner is whose objects those of the trial job are: an agent's, so that its janitor finds
	// what a killed doctor left; or, if Temporary, the doctor's own, and then all of them go, with
	// those that an earlier doctor left.
	Owner     string
	Temporary bool
	// JobImage is the image of the trial job; empty is the usual one.
	JobImage string
	// Reach are more URLs that a job must get to.
	Reach []string
	// Offline leaves out all that goes to the network.
	Offline bool
	// Only limits the checks to those with these names; empty is all.
	Only []string

	// Progress is told what takes long, line by line; nil: nobody is.
	Progress func(line string)
	// Done is given each result, in the order of the report, as soon as it is known; nil: nobody is.
	Done func(Result)

	// Proxy chooses the proxy of a request; nil is the one of the environment.
	Proxy func(*http.Request) (*url.URL, error)
	// Limit bounds each check but those that say otherwise; 0 is 10 s.
	Limit time.Duration
	// Environ is the agent's environment, whose PATH jobs of the process target get.
	Environ []string
	// Disk returns the free and the whole space of the file system at a path, in bytes; nil asks
	// the system.
	Disk func(path string) (free, total uint64, err error)
}

// The bounds of checks.
const (
	usualLimit = 10 * time.Second
	pullLimit  = 10 * time.Minute
	trialLimit = 2 * time.Minute
)

// Run makes the checks, those that need nothing of each other at once. It ends with ctx, and
// leaves nothing behind then either.
func Run(ctx context.Context, o Options) Report {
	if o.Limit <= 0 {
		o.Limit = usualLimit
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Done == nil {
		o.Done = func(Result) {}
	}
	if o.Disk == nil {
		o.Disk = diskSpace
	}
	e := &examination{opts: o}
	report := Report{Version: o.Version, Time: time.Now().UTC(), OK: true}
	runAll(ctx, e.plan(), func(r Result) {
		report.Checks = append(report.Checks, r)
		report.OK = report.OK && r.Status != Fail
		o.Done(r)
	})
	return report
}
