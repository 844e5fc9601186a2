package main

import (
	"context"
	"path/filepath"
	"runtime"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/release"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/update"
)

// withUpdates returns the options of a service with what lets it bring itself up to
// date, if this program belongs to an installation that can. The error says why it
// cannot although it should.
func withUpdates(ctx context.Context, o service.Options) (service.Options, error) {
	if _, err := release.BuiltinKeys(); err != nil || o.Packaged {
		return o, nil //nolint:nilerr // a build that takes no release for genuine has nothing to install
	}
	install, err := update.Find(ctx, o.Executable)
	if err != nil {
		return o, nil //nolint:nilerr // somebody else keeps it current
	}
	// The link that each update leaves in its place, not the version that it names now.
	o.Executable = filepath.Join(install.Root, release.Program)
	if runtime.GOOS == "darwin" && !o.User && o.Account != "" {
		return o, nil // root's helper cannot tell where that account keeps its state; "update" by hand works
	}
	state, err := stateOf(o)
	if err != nil {
		return o, err
	}
	if err := install.Prove(); err != nil {
		return o, err
	}
	name := "updates"
	if o.Name != service.DefaultName {
		name += "-" + o.Name
	}
	stage := filepath.Join(state, name)
	o.Updates = &service.Updates{
		Root: install.Root, Program: install.Updater(), State: state, Stage: stage,
		Request: filepath.Join(stage, update.RequestFile), Journal: filepath.Join(install.Root, update.JournalFile),
	}
	return o, nil
}

// stateOf returns the directory in which the agent of a service keeps its state.
func stateOf(o service.Options) (string, error) {
	options := config.ProcessOptions(o.Config)
	options.Cwd = "" // a service has none of its own
	if options.Path == "" && !o.User {
		options.Path = service.SystemConfig
	}
	c, err := config.Load(options)
	if err != nil { // there may be none yet, or one with a mistake
		if c, err = config.LoadText(options, "", nil); err != nil {
			return "", err
		}
	}
	return c.StateDirectory, nil
}
