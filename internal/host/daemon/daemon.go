// Package daemon assembles the agent from its configuration. [Run] runs the agent with its log,
// control socket, health server and updates. [Examine] runs the doctor on the same components.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/control"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/health"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/mirror"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/upkeep"
	"workflowagent/internal/memlimit"
	"workflowagent/internal/protocol"
	"workflowagent/internal/sys/bootid"
	"workflowagent/internal/sys/initsystem"
	"workflowagent/internal/sys/procguard"
	"workflowagent/internal/workflow"
)

// Options configure [Run].
type Options struct {
	Version string
	Load    func() (*config.Config, error)
	Debug   bool   // enables debug messages in the log
	EnvFile string // file with lines NAME=VALUE to add to the environment; ignored if missing

	UpdateStage                  string        // see [upkeep.Keeper]
	FirstUpdateCheck, CheckEvery time.Duration // 0 means the defaults
}

// Run runs the agent until a signal stops it. A service first waits for a configuration.
func Run(ctx context.Context, o Options) error {
	initsystem.LiveLong()
	if err := service.LoadEnvironment(o.EnvFile); err != nil {
		return config.Invalid(err)
	}
	s := &initsystem.Supervision{}
	defer s.Close()
	c, err := service.AwaitConfiguration(ctx, o.Load, s)
	if err != nil || c == nil {
		return err
	}
	return run(ctx, c, o, s)
}

func run(ctx context.Context, c *config.Config, o Options, s *initsystem.Supervision) error {
	if err := c.Validate(); err != nil {
		return config.Invalid(err)
	}
	logger, err := newLog(c, o.Debug)
	if err != nil {
		return err
	}
	log := logrus.NewEntry(logger)
	caPEM, err := prepare(c, log)
	if err != nil {
		return config.Invalid(err)
	}
	identity, err := instance.OpenIdentity(c.StateDirectory)
	if err != nil {
		return err
	}
	defer func() { _ = identity.Close() }() // only releases the lock, which the exit of the process releases anyway
	memlimit.Apply()
	if c.RunnerPoolID != "" {
		log = log.WithField("pool", c.RunnerPoolID)
	}
	place, err := newExecutor(c, log)
	if err != nil {
		return err
	}
	defer func() {
		if err := place.Close(); err != nil {
			log.WithError(err).Debug("closing the executor failed")
		}
	}()
	client, err := newClient(c, UserAgent(o.Version), caPEM, log)
	if err != nil {
		return config.Invalid(err)
	}
	defer client.Close()

	tracker := health.NewTracker(c.HealthThreshold)
	metrics := health.NewMetrics(o.Version)
	watch := health.Monitor{Tracker: tracker, Metrics: metrics}
	tokens, renew := newTokens(c, client, watch, log)
	options := agentOptions(c, o.Version, caPEM)
	options.Client, options.Tokens, options.Executor, options.Identity = client, tokens, place, identity
	options.Monitor, options.Log = watch, log
	if keeps, ok := place.(executor.WorkspaceKeeper); ok {
		options.Keeper = newKeeper(c, keeps, identity.ID, log)
	}
	if options.Pulumi, err = newMirror(c, caPEM, log); err != nil {
		return config.Invalid(err)
	}
	if options.BootID, err = bootid.Get(); err != nil {
		log.WithError(err).Warn("reading the boot ID failed: a restart of this host while a job is being started is not detected")
	}
	a, err := agent.New(options)
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
	over := make(chan struct{})
	stop := start(
		ctx, renew,
		func(ctx context.Context) { keeper.Run(ctx, c, caPEM) },
		func(ctx context.Context) { health.Serve(ctx, c.HTTPServerListen(), health.Handler(metrics, full), log) },
		serveControl(identity.Dir, control.Agent{Report: full, Drain: a.Drain, Over: over}, log),
	)
	defer stop()
	defer close(over)
	s.Say(func() string { return full().Line() }, a.Alive)
	return runUntilSignal(ctx, a, log)
}

// prepare protects the process's memory, logs the configuration's warnings and creates the state
// directory. It returns the configured CA certificates.
func prepare(c *config.Config, log *logrus.Entry) (caPEM []byte, err error) {
	if err := procguard.Protect(); err != nil {
		log.WithError(err).Warn("protecting the agent's memory from other processes of its user failed")
	}
	for _, warning := range c.Warnings() {
		log.Warn(warning)
	}
	if err := c.PrepareStateDirectory(); err != nil {
		return nil, err
	}
	return c.CACertificates()
}

func newClient(c *config.Config, userAgent string, caPEM []byte, log *logrus.Entry) (*protocol.Client, error) {
	return protocol.NewClient(protocol.Options{
		BaseURL:        c.ServiceURL,
		UserAgent:      userAgent,
		CACertPEM:      caPEM,
		RequestTimeout: c.Agent.RequestTimeout,
		Retry:          c.Retry,
		Breaker:        c.Breaker,
		Log:            log,
	})
}

// newMirror returns the mirror of pulumi's releases, or nil if none is configured.
func newMirror(c *config.Config, caPEM []byte, log *logrus.Entry) (*mirror.Mirror, error) {
	if c.Mirror.Location == "" {
		return nil, nil //nolint:nilnil // nil means that jobs run the pulumi of their image or host
	}
	transport, err := protocol.NewTransport(caPEM)
	if err != nil {
		return nil, err
	}
	return mirror.New(c.Mirror, filepath.Join(c.StateDirectory, "pulumi"), transport, log), nil
}

// agentOptions returns the options that are derived only from the configuration.
func agentOptions(c *config.Config, version string, caPEM []byte) agent.Options {
	return agent.Options{
		Rules:         c,
		Version:       version,
		UserAgent:     UserAgent(version),
		ServiceURL:    c.ServiceURL,
		ServerAddress: c.ServerAddress(),
		CACertPEM:     string(caPEM),
		Agent:         c.Agent,
		Mirrors:       c.Mirrors,
		Types:         types(c.EnabledWorkflowTypes),
		JobOutput:     newJobOutput(c),
		ForwardedEnv:  config.Reveal(c.ForwardedEnv()),
		ProxyEnv:      config.Reveal(c.ProxyEnv()),
		Retry:         c.Retry,
	}
}

// start runs tasks concurrently with the agent. stop cancels their context and waits for them.
func start(ctx context.Context, tasks ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, task := range tasks {
		running.Go(func() { task(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// serveControl opens the control socket and returns the task that serves it. If the socket cannot
// be opened, the agent still runs, because running jobs is more important than the commands that
// use the socket.
func serveControl(dir string, a control.Agent, log *logrus.Entry) func(context.Context) {
	socket, err := control.Listen(dir)
	if err != nil {
		log.WithError(err).Warn("opening the control socket failed: the commands status and drain do not reach this agent")
		return func(context.Context) {}
	}
	return func(ctx context.Context) { control.Serve(ctx, socket, a, log) }
}

// runUntilSignal runs the agent. The first signal stops the agent, and the second signal makes
// runUntilSignal return immediately.
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

// UserAgent returns the agent's User-Agent header.
func UserAgent(version string) string {
	return fmt.Sprintf("customer-managed-workflow-agent/%s (%s; %s)", version, runtime.GOOS, runtime.GOARCH)
}
