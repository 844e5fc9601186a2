package doctor

import (
	"context"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor/docker"
	"workflowagent/internal/agent/executor/kubernetes"
	"workflowagent/internal/checkup"
	"workflowagent/internal/protocol"
	"workflowagent/internal/reach"
)

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
func (e *examination) plan() []checkup.Check {
	o := e.opts
	withConfig := func(run func(context.Context) checkup.Result) func(context.Context) checkup.Result {
		if o.Config == nil {
			return func(context.Context) checkup.Result { return checkup.Skip("no configuration can be read") }
		}
		return run
	}
	docker := o.Config != nil && o.Config.DeployTarget == config.TargetDocker
	checks := []checkup.Check{
		{Name: "config", Title: "configuration", Run: e.checkConfig},
		{Name: "files", Title: "files", Run: withConfig(e.checkFiles)},
		{Name: "service", Title: "service", Run: withConfig(e.checkService)},
		{Name: "proxy", Title: "proxy", Run: withConfig(e.checkProxy)},
		{Name: "dns", Title: "DNS", Needs: []string{"proxy"}, Run: e.checkDNS},
		{Name: "tcp", Title: "TCP", Needs: []string{"dns"}, Run: e.checkTCP},
		{Name: "tls", Title: "TLS", Needs: []string{"tcp"}, Run: e.checkTLS},
		{Name: "server", Title: "server", Needs: []string{"tcp"}, Run: e.checkServer},
		{Name: "clock", Title: "clock", Needs: []string{"server"}, Run: e.checkClock},
		{Name: "token", Title: "token and pool", Needs: []string{"server"}, Limit: 3 * o.Limit, Run: e.checkToken},
	}
	switch {
	case e.inPods():
		checks = append(
			checks,
			checkup.Check{Name: "cluster", Title: "Kubernetes cluster", Run: e.checkCluster},
			checkup.Check{Name: "rights", Title: "agent's rights", Needs: []string{"cluster"}, Run: e.checkRights},
			checkup.Check{Name: "namespace", Title: "jobs' namespace", Needs: []string{"cluster"}, Run: e.checkNamespace},
			checkup.Check{Name: "pod-template", Title: "pod template", Run: e.checkTemplate},
			checkup.Check{Name: "admission", Title: "admission", Needs: []string{"rights"}, Limit: 3 * o.Limit, Run: e.checkAdmission},
		)
	case docker:
		checks = append(
			checks,
			checkup.Check{Name: "engine", Title: "Docker Engine", Run: e.checkEngine},
			checkup.Check{Name: "engine-disk", Title: "engine's disk", Needs: []string{"engine"}, Run: e.checkEngineDisk},
			checkup.Check{Name: "image", Title: "job image", Needs: []string{"engine"}, Limit: pullLimit, Run: e.checkImage},
			checkup.Check{Name: "runner", Title: "runner binaries", After: []string{"engine"}, Run: e.checkEmbeddable},
		)
	default:
		checks = append(
			checks,
			checkup.Check{Name: "runner", Title: "runner binary", Run: withConfig(e.checkRunner)},
			checkup.Check{Name: "programs", Title: "programs of jobs", Limit: 3 * o.Limit, Run: e.checkPrograms},
		)
	}
	checks = append(
		checks,
		checkup.Check{Name: "state", Title: "state directory", Run: withConfig(e.checkState)},
		checkup.Check{Name: "disk", Title: "free disk", Run: withConfig(e.checkDisk)},
		checkup.Check{Name: "port", Title: "health server", Run: withConfig(e.checkPort)},
	)
	trialNeeds, limit := []string{"runner"}, trialLimit
	switch {
	case e.inPods():
		trialNeeds, limit = []string{"admission"}, trialLimit+o.Config.PodStartTimeout
	case docker:
		trialNeeds = []string{"image", "runner"}
	}
	return append(
		checks,
		// The token check determines which URL jobs receive.
		checkup.Check{Name: "job", Title: "a job", Needs: trialNeeds, After: []string{"token"}, Limit: limit, Run: e.checkJob},
		checkup.Check{Name: "job-dns", Title: "DNS in a job", Needs: []string{"job"}, Run: e.checkJobDNS},
		checkup.Check{Name: "job-server", Title: "server from a job", Needs: []string{"job"}, Run: e.checkJobServer},
		checkup.Check{Name: "job-reach", Title: "network of a job", Needs: []string{"job"}, Run: e.checkJobReach},
	)
}

func offline() checkup.Result { return checkup.Skip("skipped, because of --offline") }
