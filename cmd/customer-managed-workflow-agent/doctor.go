package main

import (
	"context"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/checkup"
	"workflowagent/internal/host/daemon"
	"workflowagent/internal/host/doctor"
)

func newDoctorCommand(version string, load loader) *cobra.Command {
	var asJSON bool
	o := doctor.Options{Version: version, UserAgent: daemon.UserAgent(version), AsService: true}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that the agent and its jobs can work",
		Long: `Check that the agent and its jobs can work: the configuration, the network up to the
server, the token, the engine or the programs that jobs need, the runner, the disks, and
the network of a trial job. Run it as the agent's user and with the agent's PATH. As root,
it becomes the user of the machine's service that reads the configuration. It claims no
work, does not disturb a running agent, and leaves nothing behind.

The exit code is 0 if no check failed, 1 if one did, and 2 for a wrong command line.`,
		Args: operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operator.RunDoctor(cmd, asJSON, func(ctx context.Context, done func(checkup.Result), progress func(string)) (checkup.Report, error) {
				o := o
				o.Config, o.ConfigErr = load()
				o.Done, o.Progress = done, progress
				return daemon.Examine(ctx, o)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&o.JobImage, "job-image", "", "image of the trial job (default: the image of jobs that name no image)")
	cmd.Flags().StringArrayVar(&o.Reach, "reach", nil, "a URL that jobs must reach, such as your git host's (may be repeated)")
	cmd.Flags().BoolVar(&o.Offline, "offline", false, "skip the checks that use the network")
	return cmd
}
