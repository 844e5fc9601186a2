package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server"
	"workflowagent/internal/sys/initsystem"
	"workflowagent/internal/sys/procguard"
)

func newServeCommand(version string, s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Run the server until it receives SIGINT or SIGTERM. The first start creates an organization,
an administrator and an access token, which is written to a file in the data directory. Until an
administrator has signed in, each start prints a link that signs the administrator in to the console.

Every setting can be given as a flag, as the environment variable shown after it, or in the
configuration file; the first of these wins. Secrets have no flags.

SIGHUP reloads the configuration file and the files with secrets. The log level and format and
the token of /metrics change at once; the other settings need a restart. If the file is wrong,
the server logs why and keeps the running configuration. A server that you started in a terminal
stops instead, because the signal says that the terminal was closed.

The exit code is 4 if a newer server has upgraded the database so that this one must not use it.`,
		Example: `  workflow-server serve --data-dir /var/lib/workflow-server --external-url https://deployments.example.com
  workflow-server serve --config ./workflow-server.yaml`,
		Args: operator.NoArgs,
	}
	load := s.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		initsystem.LiveLong()
		cfg, err := load()
		if err != nil {
			return err
		}
		if err := server.CheckFiles(cfg); err != nil {
			return program.Usage(err)
		}
		ctx, cancel := context.WithCancel(cmd.Context())
		defer cancel()
		signals := make(chan os.Signal, 1)
		if term.IsTerminal(int(os.Stdin.Fd())) {
			var stop context.CancelFunc
			ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
			defer stop()
		} else {
			signal.Notify(signals, syscall.SIGHUP) // before the server starts, which would otherwise end
			defer signal.Stop(signals)
		}
		log := newLog(cfg, cmd.ErrOrStderr())
		if err := procguard.Protect(); err != nil {
			log.WithError(err).Warn("the server's memory is not protected from other processes of its user")
		}
		s, err := server.New(ctx, cfg, version, log, cmd.OutOrStdout())
		if err != nil {
			return err
		}
		reloading := make(chan struct{})
		go func() {
			defer close(reloading)
			s.ReloadOn(ctx, signals, load)
		}()
		err = s.Run(ctx)
		cancel()
		<-reloading
		return err
	}
	return cmd
}
