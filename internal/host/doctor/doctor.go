// Package doctor finds what keeps an agent from working, from the configuration to the inside of a
// job. Each check reports a finding and advice; none claims work or makes a lasting change.
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

// The outcomes. A check is skipped if it does not apply or a check that it needs failed.
const (
	OK   Status = "ok"
	Warn Status = "warn" // the agent works, but not well
	Fail Status = "fail"
	Skip Status = "skip"
)

// Result is the outcome of one check.
type Result struct {
	Name   string `json:"name"`  // stable, for programs
	Title  string `json:"title"` // for users
	Status Status `json:"status"`
	// Found describes the finding in one line.
	Found string `json:"found"`
	// Details are further lines of Found.
	Details []string `json:"details,omitempty"`
	// Advice is the suggested action; empty if none is needed.
	Advice       string `json:"advice,omitempty"`
	Milliseconds int64  `json:"milliseconds"`
}

// Report holds the results of all checks, in order.
type Report struct {
	Version string    `json:"version"` // of the agent
	Time    time.Time `json:"time"`
	OK      bool      `json:"ok"` // no check failed
	Checks  []Result  `json:"checks"`
}

// Engine is the part of a Docker Engine that the doctor uses; [docker.Executor] implements it.
type Engine interface {
	Examine(ctx context.Context) (docker.Facts, error)
	EnsureImage(ctx context.Context, reference string, progress func(line string)) (arch string, err error)
	RemoveRunners(ctx context.Context, owner string) error
}

// Options configure [Run].
type Options struct {
	// Config is the configuration; nil if it cannot be read, with the cause in ConfigErr.
	Config    *config.Config
	ConfigErr error
	Version   string // of the agent
	UserAgent string

	// Executor runs the trial job, with Engine set for Docker; nil if none is available, with the
	// cause in ExecutorErr.
	Executor    executor.Executor
	Engine      Engine
	ExecutorErr error

	// Client calls the server; nil if the configuration has no valid URL.
	Client *protocol.Client
	// Token returns the pool's token; nil without one.
	Token func(ctx context.Context) (string, error)

	// Owner owns the trial job's objects. Usually it is an agent, whose janitor removes the
	// leftovers of a killed doctor. If Temporary is set, it is only this host's doctor, which
	// removes all objects of that owner, including those of an earlier run.
	Owner     string
	Temporary bool
	// JobImage is the image of the trial job; "" means the default.
	JobImage string
	// Reach are additional URLs that a job must reach.
	Reach []string
	// Offline skips all checks that use the network.
	Offline bool
	// Only limits the checks to these names; empty means all.
	Only []string

	// Progress receives a line for each slow operation; may be nil.
	Progress func(line string)
	// Done receives each result as soon as it is known, in order of the report; may be nil.
	Done func(Result)

	// Proxy chooses the proxy of a request; nil uses the environment.
	Proxy func(*http.Request) (*url.URL, error)
	// Limit is the default timeout of a check; 0 means 10 s.
	Limit time.Duration
	// Environ is the agent's environment, whose PATH the jobs of the process target inherit.
	Environ []string
	// Disk returns the free and total bytes of the file system at a path; nil queries the system.
	Disk func(path string) (free, total uint64, err error)
}

const (
	usualLimit = 10 * time.Second
	pullLimit  = 10 * time.Minute
	trialLimit = 2 * time.Minute
)

// Run runs independent checks concurrently. It ends with ctx and always removes the trial job.
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
