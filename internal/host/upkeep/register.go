package upkeep

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	kardianos "github.com/kardianos/service"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/release"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/update"
	"workflowagent/internal/sys/initsystem"
)

// Register registers a service, or updates its registration, and makes it start at boot. If the
// installation supports updates, the service updates itself. Otherwise, warn receives the reason,
// if there is one to report. A running service keeps running unchanged.
func Register(ctx context.Context, o service.Options, variables map[string]string, warn func(error)) (service.Service, error) {
	o, err := withUpdates(ctx, o)
	if err != nil {
		warn(fmt.Errorf("the service does not update itself: %w", err))
	}
	s, err := service.Open(o)
	if err != nil {
		return nil, err
	}
	if err := s.Install(); err != nil {
		return nil, err
	}
	if err := service.Remember(s, o); err != nil {
		return nil, err
	}
	if len(variables) > 0 {
		if err := service.SetEnvironment(s.EnvironmentFile(), variables); err != nil {
			return nil, err
		}
	}
	if o.Packaged {
		return s, nil
	}
	return s, s.Enable(ctx)
}

// Registered returns the service. If the service is not registered, it registers the service first.
func Registered(ctx context.Context, o service.Options, warn func(error)) (service.Service, error) {
	s, err := service.Open(o)
	if err != nil {
		return nil, err
	}
	if _, err := s.Describe(ctx); !errors.Is(err, kardianos.ErrNotInstalled) {
		return s, err
	}
	if o, err = Chosen(o); err != nil {
		return nil, err
	}
	return Register(ctx, o, nil, warn)
}

// Chosen returns the options for this program's service, including the choices that an earlier
// installation recorded.
func Chosen(o service.Options) (service.Options, error) {
	var err error
	if o.Executable, err = initsystem.Executable(); err != nil {
		return o, err
	}
	return service.Chosen(o)
}

// withUpdates adds the settings with which the service updates itself. If the service should update
// itself but cannot, the error contains the reason.
func withUpdates(ctx context.Context, o service.Options) (service.Options, error) {
	if _, err := release.BuiltinKeys(); err != nil || o.Packaged {
		return o, nil //nolint:nilerr // a build without release keys can verify no update
	}
	install, err := update.Find(ctx, o.Executable)
	if err != nil {
		return o, nil //nolint:nilerr // a package manager, or the operator, keeps it current
	}
	// Use the link that each update replaces, not the version that the link currently names.
	o.Executable = filepath.Join(install.Root, release.Program)
	if runtime.GOOS == "darwin" && !o.User && o.Account != "" {
		// A helper that runs as root does not know the state directory of that account. Manual
		// updates still work.
		return o, nil
	}
	state, err := StateDirectory(o)
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

// StateDirectory returns the state directory of the service's agent.
func StateDirectory(o service.Options) (string, error) {
	options := config.ProcessOptions(o.Config)
	options.Cwd = "" // a service has no working directory to search
	if options.Path == "" && !o.User {
		options.Path = service.SystemConfig
	}
	c, err := config.Load(options)
	if err != nil { // the file is missing or invalid
		if c, err = config.LoadText(options, "", nil); err != nil {
			return "", err
		}
	}
	return c.StateDirectory, nil
}
