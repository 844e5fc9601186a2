package main

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server/install"
)

// newInstallCommand returns the command that install.sh runs after it has verified a release. The
// command accepts the options of install.sh.
func newInstallCommand() *cobra.Command {
	var (
		o              install.Options
		yes            bool
		asked, ignored string
	)
	cmd := &cobra.Command{
		Use:    "install",
		Short:  "Install, upgrade or remove the server, for install.sh",
		Hidden: true,
		Args:   operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !filepath.IsAbs(o.Dir) || filepath.Clean(o.Dir) == "/" {
				return program.Usage(errors.New("--dir must be an absolute path, and not the root directory"))
			}
			if strings.ContainsAny(o.Dir, `"'\`) || strings.ContainsFunc(o.Dir, unicode.IsControl) {
				return program.Usage(errors.New("systemd starts no program in a directory whose name has quotes, a backslash or a line break: use another --dir"))
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			o.Dir, o.Explicit = filepath.Clean(o.Dir), asked != ""
			o.Out, o.Err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return install.Run(ctx, o)
		},
	}
	f := cmd.Flags()
	for _, constant := range []string{"server", "system"} {
		f.BoolVar(&yes, constant, false, "")
	}
	for _, applied := range []string{"mirror", "channel", "key", "stage"} { // by install.sh
		f.StringVar(&ignored, applied, "", "")
	}
	f.StringVar(&o.Dir, "dir", "", "")
	f.BoolVar(&o.NoService, "no-service", false, "")
	f.BoolVar(&o.Uninstall, "uninstall", false, "")
	f.BoolVar(&o.Purge, "purge", false, "")
	f.BoolVar(&o.Yes, "yes", false, "")
	f.BoolVar(&o.Silent, "silent", false, "")
	f.StringVar(&asked, "version", "", "")
	f.StringVar(&o.Archive, "archive", "", "")
	f.StringVar(&o.Version, "release", "", "")
	return cmd
}
