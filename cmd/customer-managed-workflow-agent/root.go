package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"workflowagent/internal/agent/config"
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
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if err.Error() == "unknown flag: --token" {
			return config.Invalid(errors.New("--token is not a flag, because other users can read a program's arguments: use configure --token-file FILE, where - is the standard input, or PULUMI_AGENT_TOKEN"))
		}
		return config.Invalid(fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	})
	root.PersistentFlags().StringVar(&configPath, "config", "", "configuration file (default: pulumi-workflow-agent.yaml in the current directory, home, /etc, the directory of the binary, or Homebrew's etc)")
	options := func() config.LoadOptions { return config.ProcessOptions(configPath) }
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
		newConfigureCommand(version, options), newConfigCommand(load), newDoctorCommand(version, load), newServiceCommand(), newUpdateCommand(version, options, load), newCacheCommand(load), newDebugCommand(load), newVersionCommand(version),
		newManCommand(version), newInstallCommand(), newNetworkCommand(),
	)
	completeValues(root)
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		root.PersistentFlags().Lookup("config").Hidden = !usesConfig(cmd)
		help(cmd, args)
	})
	return root
}

// usesConfig reports whether a command reads the configuration, so that its help shows --config.
func usesConfig(cmd *cobra.Command) bool {
	switch words := strings.Fields(cmd.CommandPath()); {
	case len(words) < 2:
		return true
	case words[1] == "service":
		return len(words) == 3 && words[2] == "install"
	default:
		return words[1] != "version" && words[1] != "completion"
	}
}

// loader reads the configuration that the command-line flags select.
type loader func() (*config.Config, error)

// group completes a command that only has others below it.
func group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(commands...)
	return cmd
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return config.Invalid(fmt.Errorf("%q is unknown to %s; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath()))
	}
	return nil
}

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("printing JSON: %w", err)
	}
	return nil
}
