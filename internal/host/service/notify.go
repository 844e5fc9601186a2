package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/retry"
	"workflowagent/internal/sys/initsystem"
)

// WaitingForConfiguration is the beginning of the status of a service without a token.
const WaitingForConfiguration = "waiting for a configuration"

const configPause = 2 * time.Second

// AwaitConfiguration returns the configuration as soon as it identifies the agent. A service waits
// for this, because a package is installed before the agent can be configured, and a restart would
// not help. Other processes do not wait. If ctx is canceled, AwaitConfiguration returns nil
// without an error.
func AwaitConfiguration(ctx context.Context, load func() (*config.Config, error), s *initsystem.Supervision) (*config.Config, error) {
	c, err := load()
	if err != nil || HasIdentity(c) || !initsystem.Managed() {
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

// Awaited reports whether the machine's service is running and waiting for the configuration in a file.
func Awaited(ctx context.Context, path string) bool {
	o, err := Options{}.withDefaults()
	if err != nil || o.Config != path {
		return false
	}
	s, err := Open(Options{})
	if err != nil {
		return false
	}
	state, err := s.Describe(ctx)
	return err == nil && state.PID != 0 && strings.Contains(state.Detail, WaitingForConfiguration)
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
