package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/checkup"
	"workflowagent/internal/server"
	"workflowagent/internal/server/api/mirror"
	"workflowagent/internal/server/doctor"
	"workflowagent/internal/sys/boundedfile"
)

func newDoctorCommand(version string, s source) *cobra.Command {
	o := doctor.Options{Version: version}
	var asJSON bool
	var authorities string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that the server works, and that clients reach it",
		Long: `Check that the server works, and that clients reach it: the configuration and its files, the
certificate, the data directory and its disk, the database, its rights and its schema, the URL
through DNS, TLS and proxies up to this very server, what the proxies send, the clocks, the OIDC
issuer, the evaluator of environments, and the versions of agents. Run it as root or as the server's user, while the server runs
or before its first start. As root, it opens the database as the server's user. It disturbs no
running server, and leaves nothing behind.

The exit code is 0 if no check failed, 1 if one did, and 2 for a wrong command line.
docs/server-troubleshooting.md explains each finding.`,
		Example: `  workflow-server doctor
  workflow-server doctor --json --config ./workflow-server.yaml
  workflow-server doctor --ca-certificate-file company-root.pem`,
		Args: operator.NoArgs,
	}
	load := s.flags(cmd, "listen", "external_url", "data_dir", "database")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&o.Offline, "offline", false, "skip the checks that use the network, except the database's")
	cmd.Flags().StringVar(&authorities, "ca-certificate-file", "", "file with certificate authorities (PEM) that clients trust in addition to the system's")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o := o
		if authorities != "" {
			text, err := boundedfile.Read(authorities, 1<<20)
			if err != nil {
				return program.Usage(fmt.Errorf("--ca-certificate-file: %w", err))
			}
			if !x509.NewCertPool().AppendCertsFromPEM(text) {
				return program.Usage(fmt.Errorf("--ca-certificate-file: %s contains no certificate in PEM", authorities))
			}
			o.CAPEM = text
		}
		return operator.RunDoctor(cmd, asJSON, func(ctx context.Context, done func(checkup.Result), _ func(string)) (checkup.Report, error) {
			o.Config, o.ConfigErr = load()
			o.Done = done
			o.Become = func() error { return server.BecomeOwner(o.Config) }
			return doctor.Run(ctx, o)
		})
	}
	return cmd
}

func newHealthcheckCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check that the server on this machine is ready",
		Long: `Check that the server that runs with the configuration answers that it is ready, at the address
on which it listens and past all proxies. It is for health checks of containers.

The exit code is 0 if the server is ready, 1 if it is not or does not answer in time, and 2 for
a wrong command line or configuration.`,
		Example: "  workflow-server healthcheck --timeout 5s",
		Args:    operator.NoArgs,
	}
	load := s.flags(cmd, "listen", "tls_cert_file", "client_address")
	timeout := cmd.Flags().Duration("timeout", 10*time.Second, "how long to wait for the answer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *timeout <= 0 {
			return program.Usage(fmt.Errorf("--timeout must be positive"))
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		self, err := mirror.AtListener(cfg, nil)
		if err != nil {
			return err
		}
		defer self.Close()
		err = self.Ready(ctx)
		if cfg.ACMETerms && mirror.IsTLSRefused(err) {
			return fmt.Errorf("the server at %s has no TLS certificate yet: look in its log for the reason of the ACME authority", cfg.Listen)
		}
		if err != nil {
			return fmt.Errorf("the server at %s is not ready: %w", cfg.Listen, err)
		}
		return nil
	}
	return cmd
}
