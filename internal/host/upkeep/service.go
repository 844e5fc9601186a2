package upkeep

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	kardianos "github.com/kardianos/service"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/control"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/update"
)

// Service is a service that an update restarts and whose health it checks.
type Service struct {
	service.Service

	install update.Installation
	load    func() (*config.Config, error) // loads the service's configuration
	states  []string                       // possible state directories of the service's agent

	// restarted is the version that was current when this process last restarted the service. It is
	// needed because an agent that waits for its configuration does not respond to requests.
	restarted string
}

// Restart restarts the service and records the current version.
func (s *Service) Restart(context.Context) error {
	version, err := s.install.Current()
	if err != nil {
		return err
	}
	if err := s.Service.Restart(); err != nil {
		return err
	}
	s.restarted = version
	return nil
}

// Health returns the health of the service's agent.
func (s *Service) Health(ctx context.Context) (update.Health, error) {
	state, err := s.Describe(ctx)
	if errors.Is(err, kardianos.ErrNotInstalled) || err == nil && state.Active == "inactive" {
		return update.Health{Progress: update.NotRunning}, nil
	}
	if err != nil {
		return update.Health{}, err
	}
	if state.Active != "active" || state.PID == 0 {
		return update.Health{}, fmt.Errorf("the service is %s (%s)", state.Active, state.Detail)
	}
	report, err := s.report(ctx, state.PID)
	switch {
	case err == nil && report.Server.LastPoll != nil:
		return update.Health{Version: report.Agent.Version, PID: state.PID, Progress: update.Polled}, nil
	case err == nil:
		return update.Health{Version: report.Agent.Version, PID: state.PID, Progress: update.Starting}, nil
	case errors.Is(err, control.ErrNotRunning) && s.waits(state):
		return update.Health{Version: s.restarted, PID: state.PID, Progress: update.Waiting}, nil
	}
	return update.Health{}, err
}

// report returns the report of the agent with the given process ID. It returns
// [control.ErrNotRunning] if there is none.
func (s *Service) report(ctx context.Context, pid int) (status.Report, error) {
	for _, dir := range s.states {
		instances, err := control.Find(dir)
		if err != nil {
			return status.Report{}, err
		}
		for _, instance := range instances {
			// Errors of other agents can be ignored.
			if report, err := instance.Status(ctx); err == nil && report.Agent.PID == pid {
				return report, nil
			}
		}
	}
	return status.Report{}, fmt.Errorf("the agent of the service does not answer: %w", control.ErrNotRunning)
}

// waits reports whether the service is waiting for its configuration.
func (s *Service) waits(state service.State) bool {
	if strings.Contains(state.Detail, service.WaitingForConfiguration) {
		return true
	}
	if s.Platform() != service.Launchd {
		return false
	}
	c, err := s.load() // launchd reports no status text for a service
	return err == nil && !service.HasIdentity(c)
}

// Ready returns an error with the reason if the service's agent must not be restarted with another
// version now.
func (s *Service) Ready(ctx context.Context) error {
	state, err := s.Describe(ctx)
	if errors.Is(err, kardianos.ErrNotInstalled) || err == nil && state.PID == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	report, err := s.report(ctx, state.PID)
	if errors.Is(err, control.ErrNotRunning) {
		return nil // the update itself checks the agent's health
	}
	if err != nil {
		return err
	}
	if reason := blocked(report); reason != "" {
		return errors.New("it " + reason)
	}
	return nil
}

// OpenService returns the service of an installation, or nil if there is no service manager.
func OpenService(o service.Options, install update.Installation, load func() (*config.Config, error), stage string) *Service {
	s, err := service.Open(o)
	if err != nil {
		return nil
	}
	u := &Service{Service: s, install: install, load: load}
	if c, err := load(); err == nil {
		u.states = append(u.states, c.StateDirectory)
	}
	if stage != "" && (len(u.states) == 0 || u.states[0] != filepath.Dir(stage)) {
		u.states = append(u.states, filepath.Dir(stage))
	}
	return u
}
