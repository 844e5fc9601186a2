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
	"workflowagent/internal/checkup"
	"workflowagent/internal/host/service"
	"workflowagent/internal/protocol"
	"workflowagent/internal/sys/diskspace"
)

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
	Done func(checkup.Result)

	// Proxy returns the proxy for a request. If it is nil, the environment determines the proxy.
	Proxy func(*http.Request) (*url.URL, error)
	// Limit is the default timeout of a check. 0 means 10 seconds.
	Limit time.Duration
	// Service is the service of this machine that reads the configuration, or nil.
	Service *service.Registered
	// AsService makes a doctor that root runs become the user of Service. If that failed, ServiceErr
	// contains the cause.
	AsService  bool
	ServiceErr error
	// Environ is the agent's environment. Jobs of the process target inherit its PATH.
	Environ []string
	// Disk returns the size and the free bytes of the file system at a path. If it is nil, the
	// operating system is queried.
	Disk func(path string) (size, free int64, err error)
}

const (
	pullLimit  = 10 * time.Minute
	trialLimit = 2 * time.Minute
)

// Run runs the checks, independent ones concurrently. When ctx is canceled, it skips the remaining
// checks. It always removes the trial job.
func Run(ctx context.Context, o Options) checkup.Report {
	if o.Limit <= 0 {
		o.Limit = checkup.UsualLimit
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Disk == nil {
		o.Disk = diskspace.Of
	}
	e := &examination{opts: o}
	return checkup.Plan{Version: o.Version, Checks: e.plan(), Only: o.Only, Limit: o.Limit, Done: o.Done}.Run(ctx)
}
