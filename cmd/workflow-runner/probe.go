package main

import (
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/protocol"
	"workflowagent/internal/runner"
)

func newProbeCommand() *cobra.Command {
	var timeout time.Duration
	var caFile string
	cmd := &cobra.Command{
		Use:   "probe URL …",
		Short: "Check the path to URLs (proxy, DNS, TCP, TLS, HTTP) and print it as JSON",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			launch := protocol.Launch{
				UserAgent: "workflow-runner/" + program.Version(version),
				Probe:     &protocol.Probe{URLs: args, Seconds: int(math.Ceil(timeout.Seconds()))},
			}
			if caFile != "" {
				pem, err := os.ReadFile(caFile)
				if err != nil {
					return fmt.Errorf("reading the certificate authorities: %w", err)
				}
				launch.CACertPEM = string(pem)
			}
			return runner.RunProbe(cmd.Context(), &launch, program.Version(version), cmd.OutOrStdout())
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "time limit for each URL, at most a minute")
	cmd.Flags().StringVar(&caFile, "ca-certificate-file", "", "PEM file with certificate authorities to trust in addition to the system's")
	return cmd
}
