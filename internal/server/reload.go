package server

import (
	"context"
	"os"
	"strings"

	"workflowagent/internal/server/api/control"
	"workflowagent/internal/server/config"
)

// Reload applies the settings that can change while the server runs, and logs which others differ.
// It must not be called concurrently.
func (s *Server) Reload(cfg config.Config) {
	applied, restart := s.running.Changed(cfg)
	s.running = s.running.Reloaded(cfg)
	s.metricsToken.Store(&cfg.MetricsToken)
	cfg.ApplyLog(s.log.Logger)
	log := s.logOf("configuration")
	for _, warning := range cfg.Warnings() {
		log.Warn(warning)
	}
	if len(restart) > 0 {
		log.WithField("settings", strings.Join(restart, ", ")).Warn("some changed settings need a restart of the server")
	}
	log.WithField("applied", strings.Join(applied, ", ")).Info("reloaded the configuration")
}

// ReloadOn reloads the configuration at each signal, until ctx is canceled. If the configuration
// cannot be loaded, the server keeps the running one.
func (s *Server) ReloadOn(ctx context.Context, signals <-chan os.Signal, load func() (config.Config, error)) {
	s.load.Store(&load)
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			s.supervision.Reload(func() { s.tryReload(load) })
		}
	}
}

// pending returns the changes of the configuration that only a restart applies.
func (s *Server) pending() (p control.Pending) {
	load := s.load.Load()
	if load == nil {
		return p // the program does not reload
	}
	cfg, err := (*load)()
	if err != nil {
		p.Error = err.Error()
		return p
	}
	_, p.Restart = s.loaded.Changed(cfg)
	return p
}

func (s *Server) tryReload(load func() (config.Config, error)) {
	cfg, err := load()
	s.unreloaded.Store(err != nil)
	if err != nil {
		s.logOf("configuration").WithError(err).Error("the configuration was not reloaded, and the server keeps the running one: correct it and reload it again")
		return
	}
	s.Reload(cfg)
}

// currentMetricsToken returns the bearer token of /metrics, or "".
func (s *Server) currentMetricsToken() string { return s.metricsToken.Load().Reveal() }

// status returns a line for the service manager.
func (s *Server) status() string {
	line := "serving " + s.cfg.ExternalURL
	if s.unreloaded.Load() {
		line += "; the configuration was not reloaded, see the log"
	}
	return line
}
