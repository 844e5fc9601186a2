package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/server"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/termtext"
)

// through says how administrative commands work, for the help of their groups.
const through = `The command runs in the server of the configuration if that server is running, and otherwise
on its database, whose schema it never changes. Run it as root or as the server's user.`

// administer runs work with the operations of the server that the configuration selects.
func administer(cmd *cobra.Command, load loader, work func(ctx context.Context, cfg config.Config, c admin.Caller) error) error {
	return administerWith(cmd, load, server.Administer, work)
}

type connect func(ctx context.Context, cfg config.Config, version, onBehalf string, log *logrus.Entry) (admin.Caller, func() error, error)

func administerWith(cmd *cobra.Command, load loader, connect connect, work func(ctx context.Context, cfg config.Config, c admin.Caller) error) error {
	cfg, err := load()
	if err != nil {
		return err
	}
	log := newLog(cfg, cmd.ErrOrStderr())
	if log.Logger.GetLevel() == logrus.InfoLevel {
		log.Logger.SetLevel(logrus.WarnLevel) // the command says itself what it has done
	}
	caller, closeCaller, err := connect(cmd.Context(), cfg, cmd.Root().Version, os.Getenv("SUDO_USER"), log)
	if err != nil {
		return err
	}
	return errors.Join(work(cmd.Context(), cfg, caller), closeCaller())
}

// newAdministration completes a command that runs work with the operations of the server. It adds the flags that
// select the server.
func newAdministration(s source, cmd *cobra.Command, work func(ctx context.Context, c admin.Caller) error) *cobra.Command {
	load := s.flags(cmd, "data_dir", "database")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return administer(cmd, load, func(ctx context.Context, _ config.Config, c admin.Caller) error { return work(ctx, c) })
	}
	return cmd
}

func jsonFlag(cmd *cobra.Command) *bool { return cmd.Flags().Bool("json", false, "print JSON") }

func orgFlag(cmd *cobra.Command, usage string) *string { return cmd.Flags().String("org", "", usage) }

// at returns a time for a table; nil is unknown.
func at(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// newAdminCommand returns the commands that help users who cannot sign in.
func newAdminCommand(s source) *cobra.Command {
	signIn := &cobra.Command{
		Use:   "sign-in USER",
		Short: "Print a link that signs a user in to the console once",
		Long: `Print a link that signs a user in to the console. The link is valid for 10 minutes and works
once. The first administrator is ` + identity.AdminLogin + `.`,
		Example: "  workflow-server admin sign-in " + identity.AdminLogin,
		Args:    operator.OneArg("the login of the user"),
	}
	load := s.flags(signIn, "data_dir", "database", "external_url", "console_url", "listen")
	signIn.RunE = func(cmd *cobra.Command, args []string) error {
		return administer(cmd, load, func(ctx context.Context, cfg config.Config, c admin.Caller) error {
			link, err := admin.MakeSignInLink.Do(ctx, c, admin.Login{Login: args[0]})
			if err != nil {
				return err
			}
			address, known := cfg.ConsoleOrListen()
			switch {
			case known:
			case link.Console != "":
				address = link.Console
			default:
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: neither external_url nor console_url is set: the link contains the address to listen on, which is wrong if the server has been started with another one")
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), termtext.OneLine(address+link.Path, 0))
			return err
		})
	}
	return operator.Group(&cobra.Command{Use: "admin", Short: "Help users who cannot sign in", Example: "  workflow-server admin sign-in admin"}, signIn)
}
