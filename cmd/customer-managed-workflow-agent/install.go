package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/install"
	"workflowagent/internal/host/release"
)

// newInstallCommand returns the command that install.sh runs after it has verified a release. The
// command accepts the options of install.sh.
func newInstallCommand() *cobra.Command {
	var (
		o                     install.Options
		user                  bool
		asked, mirror, keyset string
	)
	cmd := &cobra.Command{
		Use:    "install",
		Short:  "Install, upgrade or remove the agent, for install.sh",
		Hidden: true,
		Args:   operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			o.Explicit = asked != ""
			o.Out, o.Err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if !o.Uninstall {
				text, err := os.ReadFile(keyset)
				if err != nil {
					return config.Invalid(fmt.Errorf("reading the release keys: %w; run install.sh", err))
				}
				if o.Keys, err = release.ParseKeys(text); err != nil {
					return config.Invalid(err)
				}
			}
			return install.Run(ctx, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&user, "user", false, "") // the default
	f.BoolVar(&o.System, "system", false, "")
	f.StringVar(&o.Dir, "dir", "", "")
	f.BoolVar(&o.NoService, "no-service", false, "")
	f.BoolVar(&o.Docker, "docker", false, "")
	f.BoolVar(&o.Process, "process", false, "")
	f.BoolVar(&o.NoPath, "no-modify-path", false, "")
	f.BoolVar(&o.Uninstall, "uninstall", false, "")
	f.BoolVar(&o.Purge, "purge", false, "")
	f.BoolVar(&o.Yes, "yes", false, "")
	f.BoolVar(&o.Silent, "silent", false, "")
	f.StringVar(&asked, "version", "", "")
	f.StringVar(&mirror, "mirror", "", "")
	f.StringVar(&mirror, "channel", "", "") // install.sh has already applied both
	f.StringVar(&keyset, "key", "", "")
	f.StringVar(&o.Stage, "stage", "", "")
	f.StringVar(&o.Version, "release", "", "")
	return cmd
}
