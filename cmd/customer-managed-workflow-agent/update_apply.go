package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/release"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/update"
	"workflowagent/internal/sleep"
)

// newUpdateApplyCommand returns the command of the service's helper, which belongs to
// whoever owns the installation.
func newUpdateApplyCommand(load loader) *cobra.Command {
	var h helper
	var envFile string
	cmd := &cobra.Command{
		Use:    "apply",
		Short:  "Install what the service's agent has verified, or end an update that was interrupted",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := loadEnvironment(envFile); err != nil {
				return usageError{err}
			}
			logger := logrus.New()
			logger.SetOutput(cmd.ErrOrStderr())
			h.log = logrus.NewEntry(logger)
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			install, err := ownInstallation(ctx)
			if err != nil {
				return err
			}
			h.load = load
			h.service = openUpdated(h.options, install, load, h.stage)
			return h.run(ctx, install)
		},
	}
	cmd.Flags().StringVar(&h.options.Name, "service", service.DefaultName, "name of the service")
	cmd.Flags().BoolVar(&h.options.User, "user", false, "the service is the current user's")
	cmd.Flags().StringVar(&h.stage, "stage", "", "directory with what the agent has verified")
	cmd.Flags().DurationVar(&h.patience, "patience", 0, "how long the new version may take to its first poll")
	cmd.Flags().StringVar(&envFile, "env-file", "", "file of lines NAME=VALUE to add to the environment, if it exists")
	return cmd
}

// helper installs updates of one service.
type helper struct {
	options  service.Options
	stage    string
	patience time.Duration
	load     loader          // of the service's configuration
	service  *updatedService // nil: no service manager runs
	log      *logrus.Entry
}

const (
	// busyTime is how long another update may take: a person may have begun it.
	busyTime  = 20 * time.Minute
	busyPause = 2 * time.Second
)

// run does what there is to do. An update that is refused is an error, one that was
// taken back is none: it has come to its end.
func (h *helper) run(ctx context.Context, install update.Installation) error {
	if err := install.Prove(); err != nil {
		return err
	}
	a := &update.Applier{Installation: install, Log: h.log, Patience: h.patience}
	if h.service != nil {
		a.Service, a.Ready = h.service, h.service.ready
	}
	request := filepath.Join(h.stage, update.RequestFile)
	if _, err := os.Lstat(request); h.stage == "" || errors.Is(err, os.ErrNotExist) {
		return h.conclude(ctx, a, func() (update.Result, error) { return a.Recover(ctx) })
	}
	// The agent does not ask then; somebody who has taken over its account might.
	if c, err := h.load(); err == nil && c.AutoUpdate == config.UpdateOff {
		return errors.Join(errors.New("an update was asked for, but auto_update is false"), dropRequest(h.stage))
	}
	var err error
	if a.Keys, err = release.BuiltinKeys(); err != nil {
		return errors.Join(err, dropRequest(h.stage))
	}
	h.log.WithField("stage", h.stage).Info("The agent asks for an update that it has verified")
	return h.conclude(ctx, a, func() (update.Result, error) { return a.Apply(ctx, h.stage) })
}

// dropRequest removes a request from a stage that belongs to somebody else, who may
// have put a link in the place of the directory: nothing outside of the agent's state is
// removed.
func dropRequest(stage string) error {
	state, err := os.OpenRoot(filepath.Dir(stage))
	if err != nil {
		return err
	}
	defer func() { _ = state.Close() }() // nothing was written through it
	return state.RemoveAll(filepath.Join(filepath.Base(stage), update.RequestFile))
}

// conclude brings an update to its end.
func (h *helper) conclude(ctx context.Context, a *update.Applier, work func() (update.Result, error)) error {
	var result update.Result
	err := whileBusy(ctx, func() (err error) {
		result, err = work()
		return err
	})
	if err != nil {
		return err
	}
	if result.Outcome == update.Nothing {
		if err := h.catchUp(ctx); err != nil {
			return err
		}
	}
	return a.Prove()
}

// catchUp restarts a service that does not run the current version yet, as when the
// helper of another service of the installation has installed it.
func (h *helper) catchUp(ctx context.Context) error {
	if h.service == nil {
		return nil
	}
	health, err := h.service.Health(ctx)
	if err != nil || health.Version == "" {
		return nil //nolint:nilerr // an agent that does not answer is the service manager's business
	}
	current, err := h.service.install.Current()
	if err != nil || health.Version == current {
		return err
	}
	if err := h.service.ready(ctx); err != nil {
		return fmt.Errorf("the service runs %s, and is not restarted with %s yet: %w", health.Version, current, err)
	}
	h.log.WithFields(logrus.Fields{"from": health.Version, "to": current}).Info("Restarting the service with the version that is installed")
	return h.service.Restart(ctx)
}

// whileBusy tries again while another update of the installation is on its way.
func whileBusy(ctx context.Context, do func() error) error {
	deadline := time.Now().Add(busyTime)
	for {
		err := do()
		if !errors.Is(err, update.ErrBusy) || time.Now().After(deadline) {
			return err
		}
		if sleep.For(ctx, busyPause) != nil {
			return err
		}
	}
}
