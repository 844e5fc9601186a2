package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func newConfigCommand(load loader) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show the configuration", Example: "  customer-managed-workflow-agent config show", Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(newConfigShowCommand(load))
	return cmd
}

func newConfigShowCommand(load loader) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the effective values and where each comes from, secrets redacted",
		Example: `  customer-managed-workflow-agent config show
  customer-managed-workflow-agent config show --json --config /etc/pulumi-workflow-agent.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := load()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if asJSON {
				type setting struct {
					Key    string `json:"key"`
					Value  string `json:"value"`
					Source string `json:"source"`
				}
				var list []setting
				for _, s := range c.Settings() {
					list = append(list, setting{s.Key, s.Value, s.Source.String()})
				}
				return printJSON(out, list)
			}
			w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			for _, s := range c.Settings() {
				fmt.Fprintf(w, "%s\t%s\t%s\n", s.Key, s.Value, s.Source)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
