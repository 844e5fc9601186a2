package main

import (
	"errors"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/configure"
	"workflowagent/internal/settings"
)

func newConfigureCommand(version string, s source) *cobra.Command {
	o := configure.Options{Version: version, Untouched: isUntouched}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "configure",
		Short: "Write the configuration file, by questions on a terminal or by flags",
		Long: `Write the configuration file before the first start. Without flags, on a terminal, it asks
for the URL, who terminates TLS, the address to listen on, the data directory and the
database, and checks each answer; Enter keeps the value in brackets. With flags it asks
nothing.

Stacks store the URL. If only this machine reaches it, configure asks whether you want
that, or without a terminal requires --allow-loopback. A change from SQLite to PostgreSQL moves
no data: if the SQLite database has been used, configure asks, or requires --allow-new-database.

Before it writes, it checks the result as serve would, and that the address is free, the
server's user can read the files, and the database accepts the role. It changes the file
in place: comments, order and form stay, and the file is replaced whole or not at all.
The file is the one that serve would read; if none exists, /etc/workflow-server for root,
else the home directory. --config names another.

The exit code is 0 if the file was written or needs no change, 1 if a check failed, and
2 for a wrong flag or value. After 1 and 2 the file is unchanged.`,
		Example: `  workflow-server configure
  workflow-server configure --external-url https://deployments.example.com --trusted-proxies 127.0.0.1 --client-address x-forwarded-for
  workflow-server configure --external-url https://deployments.example.com --acme-agree-to-terms --listen 0.0.0.0:443
  workflow-server configure --database postgres://workflow@db.example.com/workflow --database-password-file /etc/workflow-server/database-password`,
		Args: operator.NoArgs,
	}
	values := map[string]*string{}
	for _, f := range config.Table().Fields() {
		if !slices.Contains(configure.Keys(), f.Key) {
			continue
		}
		values[f.Key] = cmd.Flags().String(f.Flag(), "", "set "+f.Key)
		if _, isBool := f.Value.(*bool); isBool {
			cmd.Flags().Lookup(f.Flag()).NoOptDefVal = "true"
		}
	}
	cmd.Flags().StringArrayVar(&o.Set, "set", nil, "set any key, as KEY=VALUE in the form of its variable; KEY= gives it its default (may be repeated)")
	cmd.Flags().BoolVar(&o.NoCheck, "no-check", false, "write the file without checks")
	cmd.Flags().BoolVar(&o.AllowLoopback, "allow-loopback", false, "accept an external URL that only this machine reaches")
	cmd.Flags().BoolVar(&o.AllowNewDatabase, "allow-new-database", false, "accept that PostgreSQL does not get the content of the SQLite database")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, and ask nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		o := o
		o.Load, o.In, o.Out = s(nil), cmd.InOrStdin(), cmd.OutOrStdout()
		if asJSON {
			o.In, o.Out = strings.NewReader(""), io.Discard
		}
		o.Given = map[string]string{}
		for key, value := range values {
			o.Given[key] = *value
		}
		result, err := configure.Run(ctx, o)
		if _, invalid := errors.AsType[settings.InvalidError](err); invalid {
			return program.Usage(config.Advise(err))
		}
		if asJSON {
			err = errors.Join(operator.PrintJSON(cmd.OutOrStdout(), result), err)
		}
		return err
	}
	return cmd
}
