// Package doctor finds problems that prevent an agent from working, from its configuration to the
// environment of a job. Each check reports a finding and advice. No check claims a job or makes a
// lasting change.
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
	"workflowagent/internal/sys/diskspace"
)

// Status is the outcome of a check.
type Status string

// The possible outcomes. A check is skipped if it does not apply, or if a check that it needs
// failed or was skipped.
const (
	OK   Status = "ok"
	Warn Status = "warn" // the agent works, but with a problem
	Fail Status = "fail"
	Skip Status = "skip"
)

// Result is the result of one check.
type Result struct {
	Name   string `json:"name"`  // stable, for use by programs
	Title  string `json:"title"` // for display
	Status Status `json:"status"`
	// Found describes the finding in one line.
	Found string `json:"found"`
	// Details contains additional lines of the finding.
	Details []string `json:"details,omitempty"`
	// Advice is the suggested action, or empty if no action is needed.
	Advice       string `json:"advice,omitempty"`
	Milliseconds int64  `json:"milliseconds"`
}

// Report contains the results of all checks, in order.
type Report struct {
	Version string    `json:"version"` // the agent's version
	Time    time.Time `json:"time"`
	OK      bool      `json:"ok"` // true if no check failed
	Checks  []Result  `json:"checks"`
}

// Engine is the part of a Docker Engine that the doctor uses. [docker.Executor] implements it.
type Engine interface {
	Examine(ctx context.Context) (docker.Facts, error)
	EnsureImage(ctx context.Context, reference string, progress func(line string)) (arch string, err error)
	RemoveRunners(ctx context.Context, owner string) error
}

// Options configure [Run].
type Options struct {
	// Config is the configuration. If the configuration cannot be read, Config is nil and ConfigErr
	// contains the cause.
	Config    *config.Config
	ConfigErr error
	Version   string // the agent's version
	UserAgent string

	// Executor runs the trial job. For Docker, Engine is also set, and for Kubernetes, Cluster and
	// Pods. If no executor is available, Executor is nil and ExecutorErr contains the cause.
	Executor executor.Executor
	Engine   Engine
	Cluster  Cluster
	Pods     Pods
	// AgentNamespace is the namespace of the agent's own pod, or "".
	AgentNamespace string
	ExecutorErr    error

	// Client calls the server. It is nil if the configuration has no valid URL.
	Client *protocol.Client
	// Token returns the pool token. It is nil if no token is configured.
	Token func(ctx context.Context) (string, error)

	// Owner is the owner of the trial job's objects. It is usually an agent, whose next start
	// removes the leftovers of a killed doctor. If Temporary is true, only this host's doctor uses
	// the owner. The doctor then removes all objects of the owner, including those of an earlier
	// run.
	Owner     string
	Temporary bool
	// JobImage is the image of the trial job; "" means the default.
	JobImage string
	// Reach lists additional URLs that a job must reach.
	Reach []string
	// Offline skips all checks that use the network.
	Offline bool
	// Only lists the names of the checks to run. If it is empty, all checks run.
	Only []string

	// Progress is called with a line for each slow operation. It can be nil.
	Progress func(line string)
	// Done is called with each result as soon as the result is known, in the order of the report.
	// It can be nil.
	Done func(Result)

	// Proxy returns the proxy for a request. If it is nil, the environment determines the proxy.
	Proxy func(*http.Request) (*url.URL, error)
	// Limit is the default timeout of a check. 0 means 10 seconds.
	Limit time.Duration
	// Environ is the agent's environment. Jobs of the process target inherit its PATH.
	Environ []string
	// Disk returns the size and the free bytes of the file system at a path. If it is nil, the
	// operating system is queried.
	Disk func(path string) (size, free int64, err error)
}

const (
	usualLimit = 10 * time.Second
	pullLimit  = 10 * time.Minute
	trialLimit = 2 * time.Minute
)

// Run runs the checks, independent ones concurrently. When ctx is canceled, it skips the remaining
// checks. It always removes the trial job.
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
		o.Disk = diskspace.Of
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
