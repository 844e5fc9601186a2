package service

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
)

// Notify reports to systemd that the service is ready, then its status and, while alive returns
// true, the watchdog's signal. It returns when ctx has ended and systemd knows that the service
// stops. Without a listening service manager it does nothing.
func Notify(ctx context.Context, alive func() bool, status func() string) {
	reported := status()
	listening, err := daemon.SdNotify(false, daemon.SdNotifyReady+"\nSTATUS="+reported)
	if !listening || err != nil {
		return
	}
	defer func() { _, _ = daemon.SdNotify(false, daemon.SdNotifyStopping) }() // systemd may have stopped listening
	interval, err := daemon.SdWatchdogEnabled(false)
	watched := err == nil && interval > 0
	if !watched {
		interval = time.Minute
	}
	tick := time.NewTicker(min(interval/3, 10*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if watched && alive() {
			_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog) // the next one may succeed
		}
		if now := status(); now != reported {
			if _, err := daemon.SdNotify(false, "STATUS="+now); err == nil {
				reported = now
			}
		}
	}
}

// Managed reports whether a service manager started this process.
func Managed() bool {
	// launchd sets XPC_SERVICE_NAME in a user's whole session, to "0" for other processes.
	label := os.Getenv("XPC_SERVICE_NAME")
	if os.Getenv("NOTIFY_SOCKET") != "" || label != "" && label != "0" {
		return true
	}
	// Other units, such as Homebrew's, have no socket. The children of a service inherit
	// SYSTEMD_EXEC_PID with the ID of another process.
	return os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid())
}

// Supervision reports one line about the agent to the service manager, and whether the agent is
// alive. The first line marks the service as ready.
type Supervision struct {
	mu    sync.Mutex
	line  func() string
	alive func() bool

	started  bool
	end      context.CancelFunc
	notifier sync.WaitGroup
}

// Say sets both. A nil alive stands for an agent that waits for its configuration.
func (s *Supervision) Say(line func() string, alive func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line, s.alive = line, alive
	if s.started {
		return
	}
	s.started = true
	var ctx context.Context
	ctx, s.end = context.WithCancel(context.Background())
	s.notifier.Go(func() { Notify(ctx, s.isAlive, s.text) })
}

// Close reports that the service stops, if it was ready.
func (s *Supervision) Close() {
	s.mu.Lock()
	started := s.started
	s.mu.Unlock()
	if started {
		s.end()
		s.notifier.Wait()
	}
}

func (s *Supervision) text() string {
	s.mu.Lock()
	line := s.line
	s.mu.Unlock()
	return line()
}

func (s *Supervision) isAlive() bool {
	s.mu.Lock()
	alive := s.alive
	s.mu.Unlock()
	return alive == nil || alive()
}

// WaitingForConfiguration begins the status of a service without a token.
const WaitingForConfiguration = "waiting for a configuration"

const configPause = 2 * time.Second

// AwaitConfiguration returns the configuration once it identifies the agent. On a terminal it
// returns an error at once; a service waits, because its package was installed before it could be
// configured, and a restart would not help. It returns nil without an error when stopped.
func AwaitConfiguration(ctx context.Context, load func() (*config.Config, error), s *Supervision) (*config.Config, error) {
	c, err := load()
	if err != nil || HasIdentity(c) || !Managed() {
		return c, err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	const advice = WaitingForConfiguration + ": run customer-managed-workflow-agent configure"
	s.Say(func() string { return advice }, nil)
	log := logrus.New()
	log.SetOutput(os.Stderr)
	log.Warnf("no token is configured: run customer-managed-workflow-agent configure, or write it to %s", c.File())
	logged := ""
	tick := time.NewTicker(configPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, nil //nolint:nilnil // stopped before anything was configured, which is no error
		case <-tick.C:
		}
		c, err := load()
		if err == nil && HasIdentity(c) {
			log.Info("the configuration is complete")
			return c, nil
		}
		// A file that is being written may be invalid for a moment.
		if err != nil && err.Error() != logged {
			logged = err.Error()
			log.WithError(err).Warn("reading the configuration failed; trying again")
		}
	}
}

// HasIdentity reports whether the configuration identifies the agent. A sample's token does not count.
func HasIdentity(c *config.Config) bool { return c.HasToken() || c.UsesOIDC() }

// LoadEnvironment sets a file's variables that are unset, for managers that read no such files.
func LoadEnvironment(path string) error {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the environment file: %w", err)
	}
	variables, err := ParseEnvironment(string(data))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for name, value := range variables {
		if _, set := os.LookupEnv(name); set {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("%s: setting %s: %w", path, name, err)
		}
	}
	return nil
}
