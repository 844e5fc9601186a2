package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/service"
)

func newRootCommand(version string) *cobra.Command {
	var configPath string
	root := &cobra.Command{
		Use:   "customer-managed-workflow-agent",
		Short: "Run Pulumi deployments inside your own network",
		Long: `Poll a control plane for the work of one agent pool and run it in containers or processes of
this host, inside your own network, which needs no access from outside.`,
		Example: `  customer-managed-workflow-agent run
  customer-managed-workflow-agent status
  customer-managed-workflow-agent drain --wait`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
		Args:          operator.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return operator.FlagError(cmd, err, map[string]string{"token": "use configure --token-file FILE, where - is the standard input, or PULUMI_AGENT_TOKEN"})
	})
	root.PersistentFlags().StringVar(&configPath, "config", "", "configuration file (default: pulumi-workflow-agent.yaml in the current directory, home, /etc, the directory of the binary, or Homebrew's etc)")
	options := func() config.LoadOptions {
		o := config.ProcessOptions(configPath)
		o.ServiceState = service.StateDirectory
		return o
	}
	load := func() (*config.Config, error) {
		c, err := config.Load(options())
		if errors.Is(err, fs.ErrPermission) {
			return nil, config.Invalid(fmt.Errorf("%w; to read the machine's file, run this as root or as the user of its service; to read another, use --config FILE", err))
		}
		if err != nil {
			return nil, config.Invalid(err)
		}
		return c, nil
	}
	root.AddCommand(
		newRunCommand(version, load), newStatusCommand(load), newDrainCommand(load),
		newConfigureCommand(version, options), newConfigCommand(load), newDoctorCommand(version, load), newServiceCommand(), newUpdateCommand(version, options, load), newCacheCommand(load), newDebugCommand(load), operator.NewVersionCommand(version),
		operator.NewManCommand(version, "run", config.Table()), newInstallCommand(), newNetworkCommand(),
	)
	operator.CompleteValues(root, config.Table())
	operator.ShowConfigFlag(root, usesConfig)
	return root
}

// usesConfig reports whether a command reads the configuration, so that its help shows --config.
func usesConfig(words []string) bool {
	switch {
	case len(words) == 0:
		return true
	case words[0] == "service":
		return len(words) == 2 && words[1] == "install"
	default:
		return words[0] != "version" && words[0] != "completion"
	}
}

// loader reads the configuration that the command-line flags select.
type loader func() (*config.Config, error)
