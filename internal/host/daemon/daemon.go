// Package daemon assembles the agent from its configuration. [Run] runs it with its log, control
// socket, health server and updates; [Examine] has the doctor check the same parts.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/control"
	"workflowagent/internal/agent/health"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/bootid"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/upkeep"
	"workflowagent/internal/procguard"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// Options configure [Run].
type Options struct {
	Version string
	Load    func() (*config.Config, error)
	Debug   bool   // log more
	EnvFile string // file with lines NAME=VALUE to add to the environment, if it exists

	UpdateStage                  string        // see [upkeep.Keeper]
	FirstUpdateCheck, CheckEvery time.Duration // 0 means the defaults
}

// Run runs the agent until a signal stops it. As a service it first waits for a configuration.
func Run(ctx context.Context, o Options) error {
	liveLong()
	if err := service.LoadEnvironment(o.EnvFile); err != nil {
		return config.Invalid(err)
	}
	s := &service.Supervision{}
	defer s.Close()
	c, err := service.AwaitConfiguration(ctx, o.Load, s)
	if err != nil || c == nil {
		return err
	}
	return run(ctx, c, o, s)
}

// liveLong changes two defaults of Go programs. By default, a crash or the signal of systemd's
// watchdog exits with code 2. For the agent that means an invalid configuration, after which no
// service manager restarts it, so the process ends by a signal instead. Also by default, a write to
// a log without a reader, as after a crash of journald, ends the process, although jobs matter
// more.
func liveLong() {
	debug.SetTraceback("crash")
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // ignoring it would be inherited by jobs
}

func run(ctx context.Context, c *config.Config, o Options, s *service.Supervision) error {
	if err := c.Validate(); err != nil {
		return config.Invalid(err)
	}
	logger, err := newLog(c, o.Debug)
	if err != nil {
		return err
	}
	log := logrus.NewEntry(logger)
	if err := procguard.Protect(); err != nil {
		log.WithError(err).Warn("protecting the agent's memory from other processes of its user failed")
	}
	for _, warning := range c.Warnings() {
		log.Warn(warning)
	}
	if err := c.PrepareStateDirectory(); err != nil {
		return config.Invalid(err)
	}
	caPEM, err := c.CACertificates()
	if err != nil {
		return config.Invalid(err)
	}
	identity, err := instance.OpenIdentity(c.StateDirectory)
	if err != nil {
		return err
	}
	defer func() { _ = identity.Close() }() // only releases the lock, which ends with the process anyway
	if c.RunnerPoolID != "" {
		log = log.WithField("pool", c.RunnerPoolID)
	}
	executor, err := newExecutor(c, log)
	if err != nil {
		return err
	}
	defer func() {
		if err := executor.Close(); err != nil {
			log.WithError(err).Debug("closing the executor failed")
		}
	}()

	userAgent := UserAgent(o.Version)
	client, err := protocol.NewClient(protocol.Options{
		BaseURL:        c.ServiceURL,
		UserAgent:      userAgent,
		CACertPEM:      caPEM,
		RequestTimeout: c.RequestTimeout,
		Retry:          protocol.Retry{Count: c.RequestRetryCount, Wait: c.RequestRetryWait, MaxWait: c.RequestRetryMaxWait},
		Breaker:        protocol.Breaker{Failures: c.CircuitBreakerFailures, Timeout: c.CircuitBreakerTimeout},
		Log:            log,
	})
	if err != nil {
		return config.Invalid(err)
	}
	defer client.Close()

	tracker := health.NewTracker(c.HealthThreshold)
	metrics := health.NewMetrics(o.Version)
	watch := health.Monitor{Tracker: tracker, Metrics: metrics}
	tokens, renew := newTokens(c, client, watch, log)
	boot, err := bootid.Get()
	if err != nil {
		log.WithError(err).Warn("reading the boot ID failed: a restart of this host while a job is being started is not detected")
	}
	a, err := agent.New(agent.Options{
		Client:         client,
		Tokens:         tokens,
		Executor:       executor,
		Identity:       identity,
		Rules:          c,
		Monitor:        watch,
		Log:            log,
		Version:        o.Version,
		UserAgent:      userAgent,
		ServiceURL:     c.ServiceURL,
		CACertPEM:      string(caPEM),
		BootID:         boot,
		Types:          types(c.EnabledWorkflowTypes),
		Slots:          c.MaxConcurrentJobs,
		SingleRun:      c.SingleRun,
		LogJobOutput:   c.LogJobOutput,
		JobOutput:      newJobOutput(c),
		ImageOverride:  c.OverrideImageReference,
		ForwardedEnv:   config.Reveal(c.ForwardedEnv()),
		ProxyEnv:       config.Reveal(c.ProxyEnv()),
		PollInterval:   c.PollingInterval,
		KeepInterval:   c.PollingIntervalOverride,
		RequestTimeout: c.RequestTimeout,
		RetryWait:      c.RequestRetryWait,
		RetryMaxWait:   c.RequestRetryMaxWait,
		StatusInterval: c.JobStatusLoopInterval,
	})
	if err != nil {
		return err
	}
	logger.SetFormatter(jobFormatter{logger.Formatter, a.JobFields})
	log.WithFields(logrus.Fields{
		"version": o.Version, "agent_id": identity.ID, "service_url": c.ServiceURL,
		"deploy_target": string(c.DeployTarget), "config": c.File(), "state_directory": identity.Dir,
	}).Info("the agent has started")

	plain := health.Reports(a.Status, tracker, c)
	keeper := &upkeep.Keeper{
		Version: o.Version, Stage: o.UpdateStage, First: o.FirstUpdateCheck, Every: o.CheckEvery, Report: plain, Log: log,
	}
	full := func() status.Report {
		r := plain()
		r.Update = keeper.Status()
		return r
	}
	metrics.Watch(full)
	serving, endServing := context.WithCancel(ctx)
	over := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() { health.Serve(serving, c.HTTPServerListen(), health.Handler(metrics, full), log) })
	background.Go(func() { renew(serving) })
	background.Go(func() { keeper.Run(serving, c, caPEM) })
	if socket, err := control.Listen(identity.Dir); err != nil {
		// Running jobs matters more than answering these commands.
		log.WithError(err).Warn("opening the control socket failed: the commands status and drain do not reach this agent")
	} else {
		background.Go(func() { control.Serve(serving, socket, control.Agent{Report: full, Drain: a.Drain, Over: over}, log) })
	}
	defer background.Wait()
	defer endServing()
	defer close(over)
	s.Say(func() string { return full().Line() }, a.Alive)
	return runUntilSignal(ctx, a, log)
}

// runUntilSignal runs the agent; the first signal stops it, the second ends the wait for it.
func runUntilSignal(ctx context.Context, a *agent.Agent, log *logrus.Entry) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)

	ctx, abort := context.WithCancel(ctx)
	defer abort()
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	for stopping := false; ; {
		select {
		case err := <-done:
			if err == nil {
				log.Info("the agent has stopped")
			}
			return err
		case received := <-signals:
			if stopping {
				return errors.New("ended at once by a second signal; the next start resumes the running jobs")
			}
			stopping = true
			log.WithField("signal", received.String()).Info("stopping: the agent accepts no more jobs; running jobs continue without it")
			a.Stop()
		}
	}
}

func types(names []string) []workflow.Type {
	var out []workflow.Type
	for _, name := range names {
		out = append(out, workflow.Type(name))
	}
	return out
}

// UserAgent returns the name under which the agent calls the server.
func UserAgent(version string) string {
	return fmt.Sprintf("customer-managed-workflow-agent/%s (%s; %s)", version, runtime.GOOS, runtime.GOARCH)
}
