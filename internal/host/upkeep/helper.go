package upkeep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/release"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/update"
	"workflowagent/internal/retry"
)

// Helper installs updates of one service, as the owner of the installation.
type Helper struct {
	Options service.Options
	Stage   string                         // directory with the release that the agent verified; "" means none
	Timeout time.Duration                  // for the new version's first poll; 0 means the default
	Load    func() (*config.Config, error) // of the service
	Log     *logrus.Entry

	service *Service // nil without a service manager
}

const (
	// busyTime limits the wait for another update.
	busyTime  = 20 * time.Minute
	busyPause = 2 * time.Second
)

// Run completes an interrupted update, or installs the requested one. A rollback is not an error.
func (h *Helper) Run(ctx context.Context, install update.Installation) error {
	if h.service == nil {
		h.service = OpenService(h.Options, install, h.Load, h.Stage)
	}
	if err := install.Prove(); err != nil {
		return err
	}
	a := &update.Applier{Installation: install, Log: h.Log, Timeout: h.Timeout}
	if h.service != nil {
		a.Service, a.Ready = h.service, h.service.Ready
	}
	request := filepath.Join(h.Stage, update.RequestFile)
	if _, err := os.Lstat(request); h.Stage == "" || errors.Is(err, os.ErrNotExist) {
		return h.conclude(ctx, a, func() (update.Result, error) { return a.Recover(ctx) })
	}
	// The agent requests no update then, but an intruder in its account might.
	if c, err := h.Load(); err == nil && c.AutoUpdate == config.UpdateOff {
		return errors.Join(errors.New("an update was requested, but auto_update is false"), dropRequest(h.Stage))
	}
	var err error
	if a.Keys, err = release.BuiltinKeys(); err != nil {
		return errors.Join(err, dropRequest(h.Stage))
	}
	h.Log.WithField("stage", h.Stage).Info("the agent requests an update that it has verified")
	return h.conclude(ctx, a, func() (update.Result, error) { return a.Apply(ctx, h.Stage) })
}

// dropRequest removes a request, following no link out of the state directory of its owner.
func dropRequest(stage string) error {
	state, err := os.OpenRoot(filepath.Dir(stage))
	if err != nil {
		return err
	}
	defer func() { _ = state.Close() }() // nothing was written through it
	return state.RemoveAll(filepath.Join(filepath.Base(stage), update.RequestFile))
}

func (h *Helper) conclude(ctx context.Context, a *update.Applier, work func() (update.Result, error)) error {
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

// catchUp restarts a service that does not run the current version yet, for example because the
// helper of another service of the installation installed it.
func (h *Helper) catchUp(ctx context.Context) error {
	if h.service == nil {
		return nil
	}
	health, err := h.service.Health(ctx)
	if err != nil || health.Version == "" {
		return nil //nolint:nilerr // the service manager restarts an agent that does not answer
	}
	current, err := h.service.install.Current()
	if err != nil || health.Version == current {
		return err
	}
	if err := h.service.Ready(ctx); err != nil {
		return fmt.Errorf("the service runs %s, and is not restarted with %s yet: %w", health.Version, current, err)
	}
	h.Log.WithFields(logrus.Fields{"from": health.Version, "to": current}).Info("restarting the service with the installed version")
	return h.service.Restart(ctx)
}

// whileBusy retries while another update of the installation is in progress.
func whileBusy(ctx context.Context, do func() error) error {
	deadline := time.Now().Add(busyTime)
	for {
		err := do()
		if !errors.Is(err, update.ErrBusy) || time.Now().After(deadline) {
			return err
		}
		if retry.Sleep(ctx, busyPause) != nil {
			return err
		}
	}
}
