package doctor

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/checkup"
	"workflowagent/internal/protocol"
	"workflowagent/internal/reach"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

const (
	trialCleanup = 30 * time.Second
	probeTime    = 10 * time.Second
	// maxOutput limits the bytes that are read from the trial job's output.
	maxOutput = 1 << 20
	// maxSaid limits the bytes of that output that are shown.
	maxSaid = 300
)

type trial struct {
	server []*reach.Trace // traces of the URLs that jobs receive
	more   []*reach.Trace // traces of the URLs of --reach
}

// checkJob runs a trial job in the same way as a real job: with the same executor and container,
// and with the launch document on standard input. The trial job's runner only probes URLs.
func (e *examination) checkJob(ctx context.Context) checkup.Result {
	if e.opts.Executor == nil {
		return checkup.Fail(e.opts.ExecutorErr.Error(), "correct the configuration of deploy_target")
	}
	what := "a process of this host"
	if e.image != "" {
		what = "a container from " + e.image
	}
	asked := true
	if e.inPods() {
		image, named, err := e.podImage()
		if err != nil {
			return checkup.Fail(splitAdvice(err.Error(), ""))
		}
		e.image, asked, what = image, named, "a pod with "+image
	}
	began := time.Now()
	urls := e.trialURLs()
	report, said, err := e.tryJob(ctx, urls)
	if noImage, is := errors.AsType[*executor.Error](err); is && noImage.Reason == workflow.ReasonImage && !asked {
		return checkup.Warn(err.Error(), "name the image of your jobs with --job-image; if this is their image, check its registry and imagePullSecrets in the pod template")
	}
	if err != nil {
		const advice = "every job would fail like this: fix the cause, then run doctor again"
		if said == "" {
			return checkup.Fail(err.Error(), advice)
		}
		return checkup.Fail(err.Error(), advice, "it said: "+said)
	}
	if len(report.Traces) != len(urls)+len(e.opts.Reach) && !e.opts.Offline {
		return checkup.Fail("the trial job did not probe the requested URLs", "install agent and runner from one archive or package")
	}
	n := min(len(urls), len(report.Traces))
	e.trial = trial{report.Traces[:n], report.Traces[n:]}
	if len(report.Engines) > 0 {
		return e.engineReached(report.Engines)
	}
	version := e.versions("the runner in a job", termtext.OneLine(report.Version, 0))
	if version.Status != checkup.StatusOK {
		return version
	}
	return checkup.OK(fmt.Sprintf("%s ran the runner and ended, in %d ms", what, time.Since(began).Milliseconds()))
}

// engines returns the addresses at which a job might reach a container engine: the configured,
// forwarded and usual addresses.
func (e *examination) engines(forwarded map[string]string) []string {
	out := []string{
		"unix:///var/run/docker.sock", "unix:///run/docker.sock",
		"tcp://" + reach.Gateway + ":2375", "tcp://" + reach.Gateway + ":2376",
		"tcp://192.168.65.7:2375", // the address in Docker Desktop before 4.44.3 (CVE-2025-9074)
	}
	for _, own := range []string{e.facts.Host, forwarded["DOCKER_HOST"]} {
		if own == "" || slices.Contains(out, own) {
			continue
		}
		out = append(out, own)
		if u, err := url.Parse(own); err == nil && u.Scheme == "tcp" && u.Port() != "" {
			out = append(out, "tcp://"+reach.Gateway+":"+u.Port())
		}
	}
	if e.opts.Offline {
		out = slices.DeleteFunc(out, func(address string) bool { return !strings.HasPrefix(address, "unix://") })
	}
	return out
}

// engineReached returns the result for a job that can reach an engine.
func (e *examination) engineReached(addresses []string) checkup.Result {
	found := "a job can control the container engine at " + termtext.OneLine(strings.Join(addresses, ", "), 0) + ", so its code can be root on that host"
	if e.opts.Config.DeployTarget != config.TargetDocker {
		return checkup.Warn(found, "take the agent's user out of the group docker, or run jobs in containers (deploy_target: docker)")
	}
	return checkup.Fail(found, "let the engine listen on its socket only, or require certificates (--tlsverify); docker_network can keep jobs from the host's addresses")
}

// trialURLs returns the URLs that jobs receive: the URL in the agent's configuration, and the
// external URL that the server reports.
func (e *examination) trialURLs() []string {
	if e.opts.Offline {
		return nil
	}
	urls := []string{e.opts.Config.ServiceURL + protocol.StatusProbe}
	if external := strings.TrimRight(e.token.ExternalURL, "/"); external != "" && external != e.opts.Config.ServiceURL {
		urls = append(urls, external+protocol.StatusProbe)
	}
	return urls
}

func (e *examination) trialSpec() executor.Spec {
	return executor.Spec{
		JobID: "doctor-" + strings.ToLower(rand.Text()[:12]), Epoch: 1, Owner: e.opts.Owner,
		Labels: map[string]string{"doctor": "true"},
	}
}

// tryJob runs the trial job. If the job printed no report, said is the end of its output.
func (e *examination) tryJob(ctx context.Context, urls []string) (report *reach.Report, said string, err error) {
	ex := e.opts.Executor
	ca, err := e.opts.Config.CACertificates()
	if err != nil {
		return nil, "", fmt.Errorf("ca_certificate_file: %w", err)
	}
	forwarded, proxy := config.Reveal(e.opts.Config.ForwardedEnv()), config.Reveal(e.opts.Config.ProxyEnv())
	spec := e.trialSpec()
	if e.image != "" {
		spec.Image = &workflow.Image{Reference: e.image}
	}
	all := urls
	if !e.opts.Offline {
		all = append(all, e.opts.Reach...)
	}
	for _, u := range urls {
		spec.LoopbackOK = spec.LoopbackOK || protocol.OnLoopback(u)
	}
	launch, err := json.Marshal(protocol.Launch{
		ServiceURL: e.opts.Config.ServiceURL, ServerAddress: e.opts.Config.ServerAddress(), JobID: spec.JobID, JobToken: "none", CACertPEM: string(ca), ForwardedEnv: forwarded,
		Proxy: proxy, UserAgent: e.opts.UserAgent, Probe: &protocol.Probe{URLs: all, Seconds: int(probeTime.Seconds()), Engines: e.engines(forwarded)},
	})
	if err != nil {
		return nil, "", errors.New("the launch document cannot be encoded") // the cause could quote a secret
	}
	if e.opts.Temporary {
		// No agent removes the leftovers of a killed doctor with a temporary owner.
		if _, err := executor.Sweep(ctx, ex, e.opts.Owner, time.Now(), pullLimit+trialLimit, func(executor.Handle) bool { return false }); err != nil {
			return nil, "", err
		}
	}
	h, err := ex.Prepare(ctx, spec, e.opts.Progress)
	if err != nil {
		return nil, "", err
	}
	defer func() {
		// Clean up even if ctx is canceled.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), trialCleanup)
		defer cancel()
		if cerr := ex.Remove(clean, h); cerr != nil {
			err = errors.Join(err, fmt.Errorf("removing the trial job: %w", cerr))
		}
		if e.opts.Temporary && e.opts.Engine != nil {
			if cerr := e.opts.Engine.RemoveRunners(clean, e.opts.Owner); cerr != nil {
				err = errors.Join(err, cerr)
			}
		}
	}()
	if err := ex.Start(ctx, h, launch); err != nil {
		return nil, "", err
	}
	if late, ok := ex.(executor.Launcher); ok {
		if err := late.AwaitStart(ctx, h, e.opts.Progress); err != nil {
			return nil, "", err
		}
	}
	exit, err := ex.Wait(ctx, h)
	if err != nil {
		return nil, "", fmt.Errorf("the trial job did not finish in time: %w", err)
	}
	output, err := readOutput(ctx, ex, h)
	if err != nil {
		return nil, "", fmt.Errorf("reading the output of the trial job: %w", err)
	}
	if report := findReport(output); report != nil && exit.Success() {
		return report, "", nil
	}
	return nil, termtext.LastLine(string(output), maxSaid), exitError(exit)
}

func exitError(exit executor.Exit) error {
	how := fmt.Sprintf("with exit code %d and no report", exit.Code)
	switch {
	case exit.Lost:
		how = "without a trace: an agent that was just started may have removed it, so run doctor again"
	case exit.OOMKilled:
		how = "because it ran out of memory: raise docker_memory, or the memory limit in the pod template"
	case exit.Signal != "":
		how = "by " + exit.Signal
	}
	if exit.Detail != "" {
		how += " (" + termtext.OneLine(exit.Detail, 0) + ")"
	}
	return errors.New("the trial job ended " + how)
}

func readOutput(ctx context.Context, ex executor.Executor, h executor.Handle) ([]byte, error) {
	output, err := ex.Output(ctx, h)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	return io.ReadAll(io.LimitReader(output, maxOutput))
}

func findReport(output []byte) *reach.Report {
	for line := range bytes.Lines(output) {
		var report reach.Report
		if json.Unmarshal(line, &report) == nil && report.Version != "" {
			return &report
		}
	}
	return nil
}

func (e *examination) noTrial() checkup.Result {
	if e.opts.Offline {
		return offline()
	}
	return checkup.Skip("not checked, because no trial job ran")
}

func (e *examination) checkJobDNS(context.Context) checkup.Result {
	if len(e.trial.server) == 0 {
		return e.noTrial()
	}
	t := e.trial.server[0]
	var details []string
	if len(t.Resolvers) > 0 {
		details = []string{"name servers in the job: " + strings.Join(t.Resolvers, ", ")}
	}
	if !t.Reached(reach.StageDNS) {
		return checkup.Fail("in the job: "+t.Problem,
			t.Advice+"; containers get their name servers from the engine (its dns setting) and the network (docker_network)", details...)
	}
	return checkup.OK("in the job, "+checkup.Addresses(t), details...)
}

func (e *examination) checkJobServer(context.Context) checkup.Result {
	if len(e.trial.server) == 0 {
		return e.noTrial()
	}
	result := checkup.OK("jobs reach " + e.opts.Config.ServiceURL)
	if len(e.trial.server) == 1 && e.token.ExternalURL == "" {
		result.Details = []string{"the server does not report which URL pulumi gets in jobs; this is the URL that the agent uses"}
	}
	for i, t := range e.trial.server {
		what := e.opts.Config.ServiceURL + ", where the runner delivers logs and results"
		if i > 0 {
			what = e.token.ExternalURL + ", which pulumi gets (the server's --external-url)"
		}
		r := judge(t)
		if r.Status == checkup.StatusOK {
			r = checkup.Clock(t)
		}
		switch r.Status {
		case checkup.StatusFail:
			r.Found = "jobs do not reach " + what + ": " + r.Found
			r.Advice += "; " + e.egressAdvice()
			return r
		case checkup.StatusWarn:
			r.Found = "from a job, " + what + ": " + r.Found
			result = r
		}
		if i > 0 && result.Status == checkup.StatusOK {
			result.Found += " and " + e.token.ExternalURL
		}
	}
	return result
}

func (e *examination) egressAdvice() string {
	if e.inPods() {
		return "a pod may not reach all that the agent reaches: check the NetworkPolicies of namespace " + e.opts.Pods.Namespace() + ", the cluster's DNS, and proxies in env_forward_allowlist"
	}
	return "a container may not reach all that the host reaches: check docker_network, the engine's packet filter, and proxies in env_forward_allowlist"
}

func (e *examination) checkJobReach(context.Context) checkup.Result {
	if len(e.trial.more) == 0 {
		return checkup.Skip("nothing to reach: name what jobs need with --reach URL, such as the host of your repositories")
	}
	var details []string
	result := checkup.OK("")
	for _, t := range e.trial.more {
		if t.Failed == "" {
			details = append(details, fmt.Sprintf("%s: answers with status %d", t.URL, t.Code))
			continue
		}
		details = append(details, fmt.Sprintf("%s: %s", t.URL, t.Problem))
		if result.Status == checkup.StatusOK {
			result = checkup.Fail("", t.Advice)
		}
	}
	result.Found = "jobs reach all of the URLs"
	if result.Status == checkup.StatusFail {
		result.Found = "jobs do not reach all of the URLs"
	}
	result.Details = details
	return result
}
