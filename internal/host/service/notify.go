package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/retry"
)

// Managed reports whether a service manager started this process.
func Managed() bool {
	// launchd sets XPC_SERVICE_NAME in a user's entire session. For processes that are not
	// services, the value is "0".
	label := os.Getenv("XPC_SERVICE_NAME")
	if os.Getenv("NOTIFY_SOCKET") != "" || label != "" && label != "0" {
		return true
	}
	// Other units, such as Homebrew's, have no notify socket. The children of a service inherit
	// SYSTEMD_EXEC_PID, but it contains the ID of another process.
	return os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid())
}

// Supervision reports to the service manager a one-line status of the agent, and whether the agent
// is alive. The first status marks the service as ready.
type Supervision struct {
	mu    sync.Mutex
	line  func() string
	alive func() bool

	end      context.CancelFunc // nil before the first line
	notifier sync.WaitGroup
}

// Say sets the functions that return the status and check whether the agent is alive. If alive is
// nil, the agent is waiting for its configuration.
func (s *Supervision) Say(line func() string, alive func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line, s.alive = line, alive
	if s.end == nil {
		var ctx context.Context
		ctx, s.end = context.WithCancel(context.Background())
		s.notifier.Go(func() { s.notify(ctx) })
	}
}

// Close reports that the service is stopping, if it was ready.
func (s *Supervision) Close() {
	s.mu.Lock()
	end := s.end
	s.mu.Unlock()
	if end != nil {
		end()
		s.notifier.Wait()
	}
}

func (s *Supervision) now() (line string, alive bool) {
	s.mu.Lock()
	getLine, getAlive := s.line, s.alive
	s.mu.Unlock()
	return getLine(), getAlive == nil || getAlive()
}

// notify reports to systemd that the service is ready. It then regularly reports the status and,
// while the agent is alive, the watchdog's signal. When ctx is canceled, notify reports that the
// service is stopping and returns. If no service manager is listening, it does nothing.
func (s *Supervision) notify(ctx context.Context) {
	reported, _ := s.now()
	listening, err := daemon.SdNotify(false, daemon.SdNotifyReady+"\nSTATUS="+reported)
	if !listening || err != nil {
		return
	}
	defer func() { _, _ = daemon.SdNotify(false, daemon.SdNotifyStopping) }() // systemd might no longer be listening
	interval, err := daemon.SdWatchdogEnabled(false)
	watched := err == nil && interval > 0
	if !watched {
		interval = time.Minute
	}
	for retry.Sleep(ctx, min(interval/3, 10*time.Second)) == nil {
		line, alive := s.now()
		if watched && alive {
			_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog) // the next signal can succeed
		}
		if line != reported {
			if _, err := daemon.SdNotify(false, "STATUS="+line); err == nil {
				reported = line
			}
		}
	}
}

// WaitingForConfiguration is the beginning of the status of a service without a token.
const WaitingForConfiguration = "waiting for a configuration"

const configPause = 2 * time.Second

// AwaitConfiguration returns the configuration as soon as it identifies the agent. A service waits
// for this, because a package is installed before the agent can be configured, and a restart would
// not help. Other processes do not wait. If ctx is canceled, AwaitConfiguration returns nil
// without an error.
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
	for logged := ""; retry.Sleep(ctx, configPause) == nil; {
		c, err := load()
		if err == nil && HasIdentity(c) {
			log.Info("the configuration is complete")
			return c, nil
		}
		// A file that is being written can be invalid temporarily.
		if err != nil && err.Error() != logged {
			logged = err.Error()
			log.WithError(err).Warn("reading the configuration failed; trying again")
		}
	}
	return nil, nil //nolint:nilnil // stopped before anything was configured, which is no error
}

// HasIdentity reports whether the configuration identifies the agent. A token from the sample does
// not count.
func HasIdentity(c *config.Config) bool { return c.HasToken() || c.UsesOIDC() }

// LoadEnvironment sets those variables in an environment file that are not already set. It is for
// service managers that do not read environment files.
func LoadEnvironment(path string) error {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
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
