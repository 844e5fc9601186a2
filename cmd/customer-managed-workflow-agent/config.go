package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/daemon"
)

func newConfigCommand(load loader) *cobra.Command {
	return operator.Group(
		&cobra.Command{Use: "config", Short: "Show and check the configuration", Example: "  customer-managed-workflow-agent config show"},
		operator.NewConfigShowCommand(`  customer-managed-workflow-agent config show
  customer-managed-workflow-agent config show --json --config /etc/pulumi-workflow-agent.yaml`, func() (operator.Configuration, error) { return load() }),
		newConfigCheckCommand(load), newConfigPodCommand(load),
	)
}

func newConfigCheckCommand(load loader) *cobra.Command {
	return operator.NewConfigCheckCommand(`Load the configuration as run would, check it, and print the warnings that run would log. The
command does not use the network; doctor does.

The exit code is 0 if an agent can run with the configuration, and 2 otherwise.`, `  customer-managed-workflow-agent config check
  customer-managed-workflow-agent config check --config ./pulumi-workflow-agent.yaml`, func() (operator.Configuration, error) {
		c, err := load()
		if err != nil {
			return nil, err
		}
		if err := c.Validate(); err != nil {
			return nil, config.Invalid(err)
		}
		return c, nil
	})
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
		Args: operator.NoArgs,
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
