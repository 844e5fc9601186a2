package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor/docker"
	"workflowagent/internal/agent/executor/kubernetes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/reach"
)

type check struct {
	name, title string
	// needs lists checks that run first. If one of them fails or is skipped, this check is skipped.
	needs []string
	limit time.Duration
	run   func(ctx context.Context) Result
	// after lists checks that run first. Their outcome does not matter.
	after []string
}

// examination contains the findings that later checks need. The comments name the checks that set
// them.
type examination struct {
	opts Options

	way   *reach.Trace        // proxy
	token protocol.TokenCheck // token
	facts docker.Facts        // engine
	image string              // image; in Kubernetes job
	trial trial               // job

	cluster kubernetes.Facts // cluster
}

// plan returns the checks in the order of the report. Each check comes after the checks that it
// needs.
func (e *examination) plan() []check {
	o := e.opts
	withConfig := func(run func(context.Context) Result) func(context.Context) Result {
		if o.Config == nil {
			return func(context.Context) Result { return skip("no configuration can be read") }
		}
		return run
	}
	docker := o.Config != nil && o.Config.DeployTarget == config.TargetDocker
	checks := []check{
		{name: "config", title: "configuration", run: e.checkConfig},
		{name: "proxy", title: "proxy", run: withConfig(e.checkProxy)},
		{name: "dns", title: "DNS", needs: []string{"proxy"}, run: e.checkDNS},
		{name: "tcp", title: "TCP", needs: []string{"dns"}, run: e.checkTCP},
		{name: "tls", title: "TLS", needs: []string{"tcp"}, run: e.checkTLS},
		{name: "server", title: "server", needs: []string{"tcp"}, run: e.checkServer},
		{name: "clock", title: "clock", needs: []string{"server"}, run: e.checkClock},
		{name: "token", title: "token and pool", needs: []string{"server"}, limit: 3 * o.Limit, run: e.checkToken},
	}
	switch {
	case e.inPods():
		checks = append(
			checks,
			check{name: "cluster", title: "Kubernetes cluster", run: e.checkCluster},
			check{name: "rights", title: "agent's rights", needs: []string{"cluster"}, run: e.checkRights},
			check{name: "namespace", title: "jobs' namespace", needs: []string{"cluster"}, run: e.checkNamespace},
			check{name: "pod-template", title: "pod template", run: e.checkTemplate},
			check{name: "admission", title: "admission", needs: []string{"rights"}, limit: 3 * o.Limit, run: e.checkAdmission},
		)
	case docker:
		checks = append(
			checks,
			check{name: "engine", title: "Docker Engine", run: e.checkEngine},
			check{name: "engine-disk", title: "engine's disk", needs: []string{"engine"}, run: e.checkEngineDisk},
			check{name: "image", title: "job image", needs: []string{"engine"}, limit: pullLimit, run: e.checkImage},
			check{name: "runner", title: "runner binaries", after: []string{"engine"}, run: e.checkEmbeddable},
		)
	default:
		checks = append(
			checks,
			check{name: "runner", title: "runner binary", run: withConfig(e.checkRunner)},
			check{name: "programs", title: "programs of jobs", limit: 3 * o.Limit, run: e.checkPrograms},
		)
	}
	checks = append(
		checks,
		check{name: "state", title: "state directory", run: withConfig(e.checkState)},
		check{name: "disk", title: "free disk", run: withConfig(e.checkDisk)},
		check{name: "port", title: "health server", run: withConfig(e.checkPort)},
	)
	trialNeeds, limit := []string{"runner"}, trialLimit
	switch {
	case e.inPods():
		trialNeeds, limit = []string{"admission"}, trialLimit+o.Config.PodStartTimeout
	case docker:
		trialNeeds = []string{"image", "runner"}
	}
	checks = append(
		checks,
		// The token check determines which URL jobs receive.
		check{name: "job", title: "a job", needs: trialNeeds, after: []string{"token"}, limit: limit, run: e.checkJob},
		check{name: "job-dns", title: "DNS in a job", needs: []string{"job"}, run: e.checkJobDNS},
		check{name: "job-server", title: "server from a job", needs: []string{"job"}, run: e.checkJobServer},
		check{name: "job-reach", title: "network of a job", needs: []string{"job"}, run: e.checkJobReach},
	)
	for i := range checks {
		if checks[i].limit == 0 {
			checks[i].limit = o.Limit
		}
	}
	return only(checks, o.Only)
}

// only returns the named checks and the checks that they need. If names is empty, it returns all
// checks.
func only(checks []check, names []string) []check {
	if len(names) == 0 {
		return checks
	}
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	for _, c := range slices.Backward(checks) { // each check comes after the checks that it needs
		for _, name := range c.needs {
			wanted[name] = wanted[name] || wanted[c.name]
		}
	}
	return slices.DeleteFunc(checks, func(c check) bool { return !wanted[c.name] })
}

// runAll runs each check as soon as the checks that it needs are done. It calls done with the
// results in order.
func runAll(ctx context.Context, checks []check, done func(Result)) {
	type state struct {
		result Result
		ready  chan struct{}
	}
	states := map[string]*state{}
	for _, c := range checks {
		states[c.name] = &state{ready: make(chan struct{})}
	}
	for _, c := range checks {
		s := states[c.name]
		go func() {
			defer close(s.ready)
			begin := time.Now()
			for _, name := range c.after {
				if earlier, there := states[name]; there {
					<-earlier.ready
				}
			}
			var missing []string
			for _, name := range c.needs {
				need := states[name]
				<-need.ready
				if need.result.Status == Fail || need.result.Status == Skip {
					missing = append(missing, need.result.Title)
				}
			}
			switch {
			case len(missing) > 0:
				s.result = Result{Status: Skip, Found: "not checked, because of: " + strings.Join(missing, ", ")}
			case ctx.Err() != nil:
				s.result = Result{Status: Skip, Found: "not checked, because the doctor was stopped"}
			default:
				begin = time.Now()
				s.result = runOne(ctx, c)
			}
			s.result.Name, s.result.Title = c.name, c.title
			s.result.Milliseconds = time.Since(begin).Milliseconds()
		}()
	}
	for _, c := range checks {
		<-states[c.name].ready
		done(states[c.name].result)
	}
}

func runOne(ctx context.Context, c check) Result {
	limited, cancel := context.WithTimeoutCause(ctx, c.limit, errTooLong)
	defer cancel()
	r := c.run(limited)
	if r.Status == Fail && errors.Is(context.Cause(limited), errTooLong) && r.Advice == "" {
		r.Advice = "the check took longer than " + c.limit.String() + ": try again, and find the cause of the delay"
	}
	return r
}

var errTooLong = errors.New("the check took too long")

// Constructors for the results of checks. A result without advice requires no action.
func ok(found string, details ...string) Result {
	return Result{Status: OK, Found: found, Details: details}
}

func skip(found string) Result { return Result{Status: Skip, Found: found} }

func warn(found, advice string, details ...string) Result {
	return Result{Status: Warn, Found: found, Advice: advice, Details: details}
}

func fail(found, advice string, details ...string) Result {
	return Result{Status: Fail, Found: found, Advice: advice, Details: details}
}

func offline() Result { return skip("skipped, because of --offline") }
