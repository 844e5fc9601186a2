package main

import (
	"io"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server/config"
	"workflowagent/internal/settings"
)

func newRootCommand(version string) *cobra.Command {
	var path string
	root := &cobra.Command{
		Use:   "workflow-server",
		Short: "Control plane for Pulumi stacks and deployments",
		Long: `Serve the Pulumi Cloud REST API: the stock pulumi CLI logs in to it, stores its state there,
and runs deployments on agents that poll the server.`,
		Example: `  workflow-server serve
  workflow-server doctor
  workflow-server admin sign-in admin`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
		Args:          operator.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return operator.FlagError(cmd, err, secretFlags()) })
	root.PersistentFlags().StringVar(&path, "config", "", "configuration file (default: WORKFLOW_SERVER_CONFIG, or workflow-server.yaml in the current directory, home, /etc/workflow-server or the directory of the binary)")
	s := source(func(flags map[string]string) config.LoadOptions { return config.ProcessOptions(path, flags) })
	root.AddCommand(
		newServeCommand(version, s), newConfigureCommand(version, s), newConfigCommand(s), newDoctorCommand(version, s), newHealthcheckCommand(s),
		newUserCommand(s), newTokenCommand(s), newOrgCommand(s), newPoolCommand(s), newStackCommand(s), newEnvironmentCommand(s), newPolicyCommand(s),
		newAdminCommand(s), newSecretsCommand(s), newOIDCCommand(s), newServiceCommand(), newInstallCommand(),
		newBackupCommand(s), newRestoreCommand(s), newUntouchedCommand(),
		operator.NewVersionCommand(version), operator.NewManCommand(version, "serve", config.Table()),
	)
	operator.CompleteValues(root, config.Table())
	operator.ShowConfigFlag(root, func(words []string) bool {
		return len(words) == 0 || !slices.Contains([]string{"version", "completion", "service", "untouched"}, words[0])
	})
	return root
}

// secretFlags describes, by the name of a flag that does not exist, how to set a secret.
func secretFlags() map[string]string {
	remedies := map[string]string{}
	for _, f := range config.Table().Fields() {
		if _, isSecret := f.Value.(*settings.Secret); isSecret {
			remedies[f.Flag()] = "use --" + f.Flag() + "-file FILE, " + f.Env + ", or " + f.Key + " in the configuration file"
		}
	}
	return remedies
}

// source returns the inputs of a configuration with the given flags.
type source func(flags map[string]string) config.LoadOptions

// loader reads the configuration that the command line selects.
type loader func() (config.Config, error)

// flags adds the flags of all settings except secrets to a command, and returns a function that
// loads the configuration from them. The help lists only the settings in shown, or all settings if
// shown is empty.
func (s source) flags(cmd *cobra.Command, shown ...string) loader {
	values := map[string]*string{}
	table := config.Table()
	for _, f := range table.Fields() {
		if table.IsSecret(f.Key) {
			continue // other users can read a program's arguments
		}
		values[f.Key] = cmd.Flags().String(f.Flag(), f.Default, f.Usage())
		flag := cmd.Flags().Lookup(f.Flag())
		if _, isBool := f.Value.(*bool); isBool {
			flag.NoOptDefVal = "true"
		}
		flag.Hidden = len(shown) > 0 && !slices.Contains(shown, f.Key)
	}
	return func() (config.Config, error) {
		given := map[string]string{}
		for key, value := range values {
			if cmd.Flags().Changed(strings.ReplaceAll(key, "_", "-")) {
				given[key] = *value
			}
		}
		return s.load(given)
	}
}

func (s source) load(flags map[string]string) (config.Config, error) {
	c, err := config.Load(s(flags))
	if err != nil {
		err = program.Usage(config.Advise(err))
	}
	return c, err
}

func newLog(cfg config.Config, out io.Writer) *logrus.Entry {
	l := logrus.New()
	l.SetOutput(out)
	cfg.ApplyLog(l)
	log := logrus.NewEntry(l)
	for _, warning := range cfg.Warnings() {
		log.Warn(warning)
	}
	return log
}
