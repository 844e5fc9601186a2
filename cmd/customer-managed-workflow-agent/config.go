package main

import (
	"cmp"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"workflowagent/internal/host/daemon"
)

func newConfigCommand(load loader) *cobra.Command {
	return group(
		&cobra.Command{Use: "config", Short: "Show the configuration", Example: "  customer-managed-workflow-agent config show"},
		newConfigShowCommand(load), newConfigPodCommand(load),
	)
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

func newConfigPodCommand(load loader) *cobra.Command {
	var image string
	cmd := &cobra.Command{
		Use:   "pod",
		Short: "Print the pod that the agent would start for a job in Kubernetes",
		Long: `Print the pod that the agent would start for a job with deploy_target kubernetes, with the
pod template merged, as YAML. The job is a sample: the names and the labels of real pods
differ. The command checks the template, but needs no cluster. It prints notes about a
template that weakens the isolation of jobs to standard error.`,
		Example: `  customer-managed-workflow-agent config pod
  kubectl exec deployment/workflow-agent-pool -- customer-managed-workflow-agent config pod`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := load()
			if err != nil {
				return err
			}
			notes, err := daemon.PrintPod(c, cmp.Or(image, c.Agent.OverrideImageReference, sampleImage), cmd.OutOrStdout())
			for _, note := range notes {
				fmt.Fprintf(cmd.ErrOrStderr(), "note: %s\n", note)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&image, "image", "", "the job's image (default: PULUMI_DEPLOY_OVERRIDE_IMAGE_REFERENCE or "+sampleImage+")")
	return cmd
}

const sampleImage = "pulumi/pulumi:latest"
