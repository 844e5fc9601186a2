package upkeep

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/host/release"
	"workflowagent/internal/host/update"
	"workflowagent/internal/protocol"
)

// Updater keeps the running agent up to date.
type Updater struct {
	Config  *config.Config
	Version string // of this process
	// Stage is the directory from which the service's helper installs; "" means no helper.
	Stage        string
	First, Every time.Duration // 0 means the defaults
	CACertPEM    []byte
	Report       func() status.Report
	Log          *logrus.Entry

	mu     sync.Mutex
	keeper *Keeper       // nil until the mode is known, and if updates are off
	off    status.Update // without a keeper
}

// Status returns what is known about newer releases.
func (u *Updater) Status() status.Update {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.keeper == nil {
		return u.off
	}
	return u.keeper.Status()
}

// Run checks for releases until ctx ends. It logs why if auto_update has no effect.
func (u *Updater) Run(ctx context.Context) {
	if keeper := u.open(ctx); keeper != nil {
		keeper.Run(ctx)
	}
}

func (u *Updater) open(ctx context.Context) *Keeper {
	finder, err := NewFinder(u.Config, u.CACertPEM, filepath.Join(u.Config.StateDirectory, "releases-seen.json"))
	var install update.Installation
	mode := plan(u.Config, u.Version, u.Stage, err, func() (err error) {
		install, err = update.FindOwn(ctx)
		return err
	})
	asked := u.Config.AutoUpdate == config.UpdateOn
	if mode.Mode == status.UpdateOff {
		if asked {
			u.Log.Warnf("auto_update has no effect: %s", mode.State)
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.off = mode
		return nil
	}
	o := Options{
		Source: finder, Version: u.Version, Advice: mode.State, Report: u.Report, Log: u.Log, First: u.First, Every: u.Every,
	}
	if mode.Mode == status.UpdateInstalls {
		o.Install, o.Stage = &install, u.Stage
	} else if asked {
		u.Log.Warnf("auto_update can only announce releases here: %s", mode.State)
	}
	keeper := New(o)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.keeper = keeper
	return keeper
}

// plan returns what an agent does about releases; State says why nothing, or what remains to do.
func plan(c *config.Config, version, stage string, finderErr error, find func() error) status.Update {
	off := func(why string) status.Update { return status.Update{Mode: status.UpdateOff, State: why} }
	switch {
	case c.AutoUpdate == config.UpdateOff:
		return off("auto_update is false")
	case c.SingleRun:
		return off("single_run ends the agent first")
	case finderErr != nil:
		return off(finderErr.Error())
	case release.CheckVersion(version) != nil:
		return off(update.ErrDevelopment.Error())
	}
	err := find()
	packaged, isPackaged := errors.AsType[*update.PackagedError](err)
	switch {
	case isPackaged:
		return status.Update{Mode: status.UpdateTells, State: "update it with: " + packaged.Command}
	case err != nil:
		return off(err.Error())
	case stage == "":
		return status.Update{Mode: status.UpdateTells, State: "update it with: " + release.Program + " update"}
	}
	return status.Update{Mode: status.UpdateInstalls}
}

// NewFinder returns the finder of the configured releases, by default those of this build.
func NewFinder(c *config.Config, caPEM []byte, memory string) (*update.Finder, error) {
	keys, err := release.BuiltinKeys()
	if err != nil {
		return nil, err
	}
	return openFinder(c, keys, caPEM, memory)
}

func openFinder(c *config.Config, keys release.Keys, caPEM []byte, memory string) (*update.Finder, error) {
	home := c.UpdateURL
	if home == "" {
		home = release.Home()
	}
	if home == "" {
		return nil, errors.New("this build has no URL of releases: set update_url to the URL of a mirror")
	}
	transport, err := protocol.NewTransport(caPEM)
	if err != nil {
		return nil, err
	}
	return update.Open(update.Options{
		Home: home, Channel: c.UpdateChannel, Keys: keys, Client: &http.Client{Transport: transport}, Memory: memory,
	})
}
