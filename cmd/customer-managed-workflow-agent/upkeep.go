package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/host/release"
	"workflowagent/internal/host/update"
	"workflowagent/internal/host/upkeep"
	"workflowagent/internal/protocol"
)

// updateFlags are what the service's unit says about updates to the agent that it runs.
type updateFlags struct {
	stage        string        // where the service's helper looks for what the agent has verified; "": there is no helper
	first, every time.Duration // 0: the usual
}

// updating is the agent's part in its own updates.
type updating struct {
	config  *config.Config
	version string
	flags   updateFlags
	caPEM   []byte
	report  func() status.Report
	log     *logrus.Entry

	mu     sync.Mutex
	keeper *upkeep.Keeper // nil: there is nothing to do, or that is not known yet
	off    status.Update  // without a keeper
}

// Status returns what is known of newer releases.
func (u *updating) Status() status.Update {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.keeper == nil {
		return u.off
	}
	return u.keeper.Status()
}

// Run decides what the agent does about new releases of itself, says so where it is not
// what was asked for, and does it until ctx ends.
func (u *updating) Run(ctx context.Context) {
	if keeper := u.open(ctx); keeper != nil {
		keeper.Run(ctx)
	}
}

func (u *updating) open(ctx context.Context) *upkeep.Keeper {
	finder, err := newFinder(u.config, u.caPEM, filepath.Join(u.config.StateDirectory, "releases-seen.json"))
	var install update.Installation
	plan := planUpdates(u.config, u.version, u.flags.stage, err, func() (err error) {
		install, err = ownInstallation(ctx)
		return err
	})
	asked := u.config.AutoUpdate == config.UpdateOn
	if plan.Mode == status.UpdateOff {
		if asked {
			u.log.Warnf("auto_update has no effect: %s", plan.State)
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.off = plan
		return nil
	}
	o := upkeep.Options{
		Source: finder, Version: u.version, Advice: plan.State, Report: u.report, Log: u.log, First: u.flags.first, Every: u.flags.every,
	}
	if plan.Mode == status.UpdateInstalls {
		o.Install, o.Stage = &install, u.flags.stage
	} else if asked {
		u.log.Warnf("auto_update can only tell of releases here: %s", plan.State)
	}
	keeper := upkeep.New(o)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.keeper = keeper
	return keeper
}

// ownInstallation returns the installation that this program belongs to.
func ownInstallation(ctx context.Context) (update.Installation, error) {
	program, err := os.Executable()
	if err != nil {
		return update.Installation{}, fmt.Errorf("finding the agent's own binary: %w", err)
	}
	return update.Find(ctx, program)
}

// planUpdates returns what an agent does about releases, and as State why it does
// nothing, or what a person has to do.
func planUpdates(c *config.Config, version, stage string, finderErr error, find func() error) status.Update {
	off := func(why string) status.Update { return status.Update{Mode: status.UpdateOff, State: why} }
	switch {
	case c.AutoUpdate == config.UpdateOff:
		return off("auto_update is false")
	case c.SingleRun:
		return off("single_run ends the agent before")
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

// newFinder returns what looks for releases where the configuration says, or else where
// this build was released.
func newFinder(c *config.Config, caPEM []byte, memory string) (*update.Finder, error) {
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
		return nil, errors.New("this build does not know where its releases are published: set update_url to the URL of a mirror")
	}
	transport, err := protocol.NewTransport(caPEM)
	if err != nil {
		return nil, err
	}
	return update.Open(update.Options{
		Home: home, Channel: c.UpdateChannel, Keys: keys, Client: &http.Client{Transport: transport}, Memory: memory,
	})
}
