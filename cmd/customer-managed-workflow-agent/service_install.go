package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/upkeep"
)

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
		Args: noArgs,
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
			options, err := chosen(*o)
			if err != nil {
				return err
			}
			options = amended(options, told, cmd.Flags().Changed)
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
	_ = f.MarkHidden("packaged") // the flag is defined two lines up
	return cmd
}

// chosen returns the options of a service as an earlier installation recorded them.
func chosen(o service.Options) (service.Options, error) {
	var err error
	if o.Executable, err = executable(); err != nil {
		return o, err
	}
	return service.Chosen(o)
}

// amended returns earlier choices overridden by the given flags, even if these revert a choice.
func amended(earlier, told service.Options, given func(flag string) bool) service.Options {
	if given("account") {
		earlier.Account = told.Account
	}
	if given("config") {
		earlier.Config = told.Config
	}
	if given("docker") {
		earlier.Docker = told.Docker
	}
	if given("process") {
		earlier.Profile = told.Profile
	}
	return earlier
}

func assignments(words []string) (map[string]string, error) {
	variables := map[string]string{}
	for _, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			// The argument may be a value that was meant to be secret.
			return nil, errors.New("--env wants NAME=VALUE")
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

// executable returns the path that a service should start: that of this process, keeping symbolic
// links so that the service follows an upgrade that moves a link.
func executable() (string, error) {
	real, err := os.Executable()
	if err != nil {
		if filepath.IsAbs(os.Args[0]) {
			return os.Args[0], nil // without /proc, as in an image build
		}
		return "", fmt.Errorf("finding the agent's own binary: %w", err)
	}
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return real, nil //nolint:nilerr // started by a name that is not a path: the real one will do
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", fmt.Errorf("finding the agent's own binary: %w", err)
	}
	if resolved, err := filepath.EvalSymlinks(path); err != nil || resolved != real {
		return real, nil //nolint:nilerr // another file of that name was found
	}
	return path, nil
}
