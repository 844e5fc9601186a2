package server

import (
	"context"
	"path/filepath"
	"time"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/redact"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/evaluator"
	"workflowagent/internal/server/environments/opening"
	"workflowagent/internal/server/environments/providers"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/outbound"
)

// newOpening returns the service that evaluates environments. Without the program of the evaluator, it refuses all requests.
func (s *Server) newOpening(envs *environments.Service, secrets *keyring.Ring) (*opening.Service, error) {
	s.evaluator = evaluator.New(evaluator.Options{Log: s.logOf("environments"), Program: filepath.Join(programDir(), wire.Program), Concurrent: concurrentEvaluations()})
	if !s.evaluator.Available() {
		s.logOf("environments").WithField("directory", programDir()).Warnf("%s is missing: environments can be neither opened nor changed; install it next to workflow-server", wire.Program)
	}
	service, err := opening.New(s.db, opening.Options{
		Log: s.logOf("environments"), Secrets: secrets, Environments: envs, Stacks: s.stacks, Evaluator: s.evaluator,
		Providers: providers.New(providers.Options{Issuer: s.issuer, Client: &outbound.Client{Reach: s.cfg.Reach()}}),
	})
	if err != nil {
		return nil, err
	}
	envs.Use(opening.Definitions{Service: service})
	s.subsystems = append(s.subsystems, Subsystem{Name: "environment-sessions", Exclusive: true, Run: func(ctx context.Context) error {
		return every(ctx, 10*time.Minute, service.Sweep)
	}}, Subsystem{Name: "environments", Exclusive: true, Run: func(ctx context.Context) error {
		return every(ctx, 10*time.Minute, envs.Sweep)
	}})
	return service, nil
}

// knownSecrets returns the secrets of a deployment's definition, and those that its job has opened.
func (s *Server) knownSecrets(service *deployments.Service) func(ctx context.Context, deploymentID string) ([]redact.Secret, error) {
	return func(ctx context.Context, deploymentID string) ([]redact.Secret, error) {
		list, err := service.KnownSecrets(ctx, deploymentID)
		if err != nil {
			return nil, err
		}
		opened, err := s.opening.KnownSecrets(ctx, deploymentID)
		return append(list, opened...), err
	}
}
