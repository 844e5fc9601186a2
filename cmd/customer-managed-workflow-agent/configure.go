package main

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/configure"
	"workflowagent/internal/host/service"
)

func newConfigureCommand(version string, options func() config.LoadOptions) *cobra.Command {
	o := configure.Options{Version: version, Awaited: service.Awaited, Account: serviceAccount}
	cmd := &cobra.Command{
		Use:   "configure",
		Short: "Write the configuration file, by questions on a terminal or by flags",
		Long: `Write the configuration file. Without flags, on a terminal, it asks for the settings an
agent needs and checks each answer; Enter keeps the value in brackets. With flags it
asks nothing, except for the other settings if --service-url is the only one, apart from
--ca-certificate-file, and the file has no token.

Before it writes, it checks the result as run would, that the service's user can read the
files, the sandbox of the service, the server's answer to the token, and the place where
jobs run. It changes the file in place: comments, order and form stay, and the file is
replaced whole or not at all. The file is the one that run would read; if none exists,
/etc for root, else the home directory or, after install.sh, the directory of the binary.
--config names another.

The exit code is 0 if the file was written or needs no change, 1 if a check failed, and
2 for a wrong flag or value. After 1 and 2 the file is unchanged.`,
		Example: `  customer-managed-workflow-agent configure
  customer-managed-workflow-agent configure --service-url https://pulumi.example.com --token-file ./token
  customer-managed-workflow-agent configure --service-url https://pulumi.example.com --ca-certificate-file /etc/workflow-agent/company-ca.pem
  printf %s "$TOKEN" | customer-managed-workflow-agent configure --token-file - --set max_concurrent_jobs=4`,
		Args: operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o := o
			o.Load, o.In, o.Out = options(), cmd.InOrStdin(), cmd.OutOrStdout()
			return configure.Run(ctx, o)
		},
	}
	cmd.Flags().StringVar(&o.ServiceURL, "service-url", "", "set service_url")
	cmd.Flags().StringVar(&o.TokenFile, "token-file", "", "set token to the content of this file; - is the standard input")
	cmd.Flags().StringVar(&o.DeployTarget, "deploy-target", "", "set deploy_target")
	cmd.Flags().StringVar(&o.CACertificateFile, "ca-certificate-file", "", "set ca_certificate_file, the certificate authorities (PEM) to trust in addition to the system's")
	cmd.Flags().StringArrayVar(&o.Set, "set", nil, "set any key, as KEY=VALUE in the form of its variable; KEY= gives it its default (may be repeated)")
	cmd.Flags().BoolVar(&o.NoCheck, "no-check", false, "write the file without checking the server and the host")
	return cmd
}

// serviceAccount returns the user of the machine's service that reads a configuration file, or "".
func serviceAccount(path string) string {
	if r := service.WithConfig(path); r != nil {
		return r.Account
	}
	return ""
}
