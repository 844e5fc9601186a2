package main

import (
	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor/docker"
)

// newNetworkCommand returns the commands with which a server manages the network of its built-in
// runners. The server itself has no access to the engine.
func newNetworkCommand() *cobra.Command {
	var bridge string
	ensure := &cobra.Command{
		Use:   "ensure NAME",
		Short: "Create the network unless it exists, and print it as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			engine, err := docker.New(docker.Options{})
			if err != nil {
				return err
			}
			defer engine.Close() //nolint:errcheck // the process exits
			network, err := engine.EnsureNetwork(cmd.Context(), args[0], bridge)
			if err != nil {
				return err
			}
			return operator.PrintJSON(cmd.OutOrStdout(), network)
		},
	}
	ensure.Flags().StringVar(&bridge, "bridge", "", "name of the network's interface on this host")
	_ = ensure.MarkFlagRequired("bridge") // fails only for an undefined flag
	remove := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove the network",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			engine, err := docker.New(docker.Options{})
			if err != nil {
				return config.Invalid(err)
			}
			defer engine.Close() //nolint:errcheck // the process exits
			return engine.RemoveNetwork(cmd.Context(), args[0])
		},
	}
	return operator.Group(&cobra.Command{Use: "network", Short: "Manage a Docker network for jobs", Hidden: true}, ensure, remove)
}
