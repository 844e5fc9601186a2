package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	kardianos "github.com/kardianos/service"
	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/upkeep"
)

func newServiceCommand() *cobra.Command {
	var o service.Options
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Register the agent with systemd or launchd, and control it there",
		Long: `Register the agent with systemd (Linux) or launchd (macOS), and control it there.

Without --user the service is the machine's, starts with it and needs root. With it, the
service stops with your last session, unless your account lingers (loginctl enable-linger).
Running deployments continue when you stop, restart, upgrade or uninstall the service.`,
		Args: operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().BoolVar(&o.User, "user", false, "the current user's service, not the machine's")
	cmd.PersistentFlags().StringVar(&o.Name, "name", service.DefaultName, "name of the service, for several agents on one machine")
	open := func(context.Context) (service.Service, error) { return service.Open(o) }
	shown := operator.Services{
		Program: service.DefaultName, Open: func() (operator.Service, error) { return service.Open(o) }, Missing: kardianos.ErrNotInstalled,
		Explain: func(s operator.Service, err error) error { return service.Explain(s.(service.Service), err) }, //nolint:forcetypeassert // of open
	}
	action := func(open func(context.Context) (service.Service, error), do func(service.Service) error) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			s, err := open(ctx)
			if err != nil {
				return "", err
			}
			return s.File(), service.Explain(s, do(s))
		}
	}
	registered := func(ctx context.Context) (service.Service, error) {
		return upkeep.Registered(ctx, o, func(err error) { fmt.Fprintln(os.Stderr, err) })
	}
	cmd.AddCommand(
		newServiceInstallCommand(&o),
		shown.NewActionCommand("uninstall", "Stop the service and remove it; configuration, state and deployments are kept", "Removed", action(open, service.Service.Uninstall)),
		shown.NewActionCommand("start", "Start the service, registering it first if needed", "Started", action(registered, service.Service.Start)),
		shown.NewActionCommand("stop", "Stop the service; running deployments continue", "Stopped", action(open, service.Service.Stop)),
		shown.NewActionCommand("restart", "Restart the service; running deployments continue", "Restarted", action(open, service.Service.Restart)),
		shown.NewStatusCommand(),
		shown.NewLogsCommand(),
	)
	return cmd
}

func newServiceInstallCommand(o *service.Options) *cobra.Command {
	var (
		environment []string
		told        service.Options
		process     bool
		start       bool
	)
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Register the service, or update its registration",
		Long: `Register the service, or update its registration, so that it starts with the machine.
A running service keeps its registration until it restarts.

On Linux the machine's service runs in a sandbox as the user workflow-agent, which is created
if it is missing. With --docker the service joins the group docker: access to the engine is
root on this machine in all but name. Without --docker, set DOCKER_HOST to an engine that the
user can reach. --process selects the less strict sandbox that jobs of deploy_target process
need.

Later runs and package upgrades keep the values of --account, --config, --docker and --process.
To revert a value, use --docker=false, --process=false or --account "".`,
		Example: `  sudo customer-managed-workflow-agent service install --docker
  sudo customer-managed-workflow-agent service install --process --config /etc/pulumi-workflow-agent.yaml
  customer-managed-workflow-agent service install --user --env HTTPS_PROXY=http://proxy.internal:3128`,
		Args: operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			variables, err := assignments(environment)
			if err != nil {
				return config.Invalid(err)
			}
			if told.Config, err = absolute(cmd.Flag("config").Value.String()); err != nil {
				return config.Invalid(err)
			}
			if process {
				told.Profile = service.ProfileProcess
			}
			options, err := upkeep.Chosen(*o)
			if err != nil {
				return err
			}
			options = service.Amend(options, told, cmd.Flags().Changed)
			s, err := upkeep.Register(cmd.Context(), options, variables, func(err error) { cmd.PrintErrln(err) })
			if err != nil || o.Packaged {
				return err
			}
			cmd.Printf("Installed %s.\n", s.File())
			if start {
				if err := s.Restart(); err != nil {
					return err
				}
				cmd.Println("Started.")
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&told.Account, "account", "", "existing account that the machine's service runs as (default: workflow-agent, created if missing)")
	f.BoolVar(&told.Docker, "docker", false, "give the service access to the local engine by the group docker (Linux)")
	f.BoolVar(&process, "process", false, "use the sandbox for deploy_target process (Linux)")
	f.BoolVar(&start, "start", false, "start the service, or restart a running service")
	f.BoolVar(&o.Packaged, "packaged", false, "for packages: only write the unit, among those of the package manager")
	f.StringArrayVar(&environment, "env", nil, "NAME=VALUE for the service's environment file; an empty value removes NAME (repeatable)")
	_ = f.MarkHidden("packaged") // fails only for an undefined flag
	return cmd
}

func assignments(words []string) (map[string]string, error) {
	variables := map[string]string{}
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			// The error omits the argument, which might be a secret.
			return nil, errors.New("--env requires NAME=VALUE")
		}
		variables[name] = value
	}
	return variables, service.CheckVariables(variables)
}

func absolute(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", path, err)
	}
	return absolute, nil
}
