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

// Notify tells systemd that the service is up, and from then on what it does and,
// for as long as it is alive, that the watchdog has no cause to act. It returns
// when ctx has ended and systemd knows that the service stops. Without a service
// manager that listens it does nothing.
func Notify(ctx context.Context, alive func() bool, status func() string) {
	told := status()
	listening, err := daemon.SdNotify(false, daemon.SdNotifyReady+"\nSTATUS="+told)
	if !listening || err != nil {
		return
	}
	defer func() { _, _ = daemon.SdNotify(false, daemon.SdNotifyStopping) }() // nobody is left to tell
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
			_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog) // the next one may get through
		}
		if now := status(); now != told {
			if _, err := daemon.SdNotify(false, "STATUS="+now); err == nil {
				told = now
			}
		}
	}
}

// Managed reports whether a service manager started this process.
func Managed() bool {
	// launchd sets the second for everything in a user's session, to "0" for what
	// is not its own.
	label := os.Getenv("XPC_SERVICE_NAME")
	if os.Getenv("NOTIFY_SOCKET") != "" || label != "" && label != "0" {
		return true
	}
	// A unit that is not ours, such as Homebrew's, has no socket. The children of a
	// service inherit this variable with the number of another process.
	return os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid())
}

// Supervision tells the service manager one line about the agent, and whether it
// is alive. The first line says that the service is up.
type Supervision struct {
	mu    sync.Mutex
	line  func() string
	alive func() bool

	started  bool
	end      context.CancelFunc
	notifier sync.WaitGroup
}

// Say sets both. A nil alive is an agent that waits for a person.
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

// Close says that the service stops, if it was up.
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

// WaitingForConfiguration begins what a service says that has no token yet.
const WaitingForConfiguration = "waiting for a configuration"

// configPause is the time between two looks for a configuration.
const configPause = 2 * time.Second

// AwaitConfiguration returns the configuration as soon as it says who the agent is. A
// person gets the error at once; a service waits, because its package was
// installed before anybody could configure it, and a restart would not help.
// It returns nil and no error if it was told to stop before.
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
	log.Warnf("No token is configured: %s, or write it to %s", advice, c.File())
	told := ""
	tick := time.NewTicker(configPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, nil //nolint:nilnil // told to stop: nothing was configured, and nothing went wrong
		case <-tick.C:
		}
		c, err := load()
		if err == nil && HasIdentity(c) {
			log.Info("The configuration is there")
			return c, nil
		}
		// A file that is being written may be wrong for a moment.
		if err != nil && err.Error() != told {
			told = err.Error()
			log.WithError(err).Warn("The configuration cannot be read; looking again")
		}
	}
}

// HasIdentity reports whether the configuration says who the agent is. What a sample
// has in the place of a token says nothing.
func HasIdentity(c *config.Config) bool { return c.HasToken() || c.UsesOIDC() }

// LoadEnvironment sets the variables of an environment file that are not set
// already, for service managers that know no such files.
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
