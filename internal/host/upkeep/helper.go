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

// Helper installs updates for one service. It runs as the owner of the installation.
type Helper struct {
	Options service.Options
	Stage   string                         // directory with the release that the agent has verified; "" means none
	Timeout time.Duration                  // limits the wait for the new version's first poll; 0 means the default
	Load    func() (*config.Config, error) // loads the service's configuration
	Log     *logrus.Entry

	service *Service // nil if there is no service manager
}

const (
	// busyTime limits the wait while another update is in progress.
	busyTime  = 20 * time.Minute
	busyPause = 2 * time.Second
)

// Run completes an interrupted update. It then installs the requested release. A rollback is not an
// error.
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
	stage := h.Stage
	if _, err := os.Lstat(filepath.Join(stage, update.RequestFile)); errors.Is(err, os.ErrNotExist) {
		stage = ""
	}
	if stage != "" {
		if err := h.accept(a); err != nil {
			return errors.Join(err, dropRequest(stage))
		}
		h.Log.WithField("stage", stage).Info("the agent requests an update that it has verified")
	}
	result, err := whileBusy(ctx, func() (update.Result, error) { return a.Apply(ctx, stage) })
	if err == nil && result.Outcome == update.Nothing {
		err = h.catchUp(ctx)
	}
	if err != nil {
		return err
	}
	return a.Prove()
}

// accept returns an error for a request that an agent never makes, but that an intruder in the
// agent's account could make. Otherwise, it sets the applier's keys.
func (h *Helper) accept(a *update.Applier) (err error) {
	if c, err := h.Load(); err == nil && c.AutoUpdate == config.UpdateOff {
		return errors.New("an update was requested, but auto_update is false")
	}
	a.Keys, err = release.BuiltinKeys()
	return err
}

// dropRequest removes a request. It follows no link that leads out of the state directory.
func dropRequest(stage string) error {
	state, err := os.OpenRoot(filepath.Dir(stage))
	if err != nil {
		return err
	}
	defer func() { _ = state.Close() }() // nothing was written through it
	return state.RemoveAll(filepath.Join(filepath.Base(stage), update.RequestFile))
}

// catchUp restarts the service if it does not run the current version yet. For example, the helper
// of another service of the same installation may have installed that version.
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

// whileBusy calls apply, and retries while another update of the installation is in progress.
func whileBusy(ctx context.Context, apply func() (update.Result, error)) (update.Result, error) {
	wait, cancel := context.WithTimeout(ctx, busyTime)
	defer cancel()
	for {
		if result, err := apply(); !errors.Is(err, update.ErrBusy) || retry.Sleep(wait, busyPause) != nil {
			return result, err
		}
	}
}
