package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/runner/policy"
	"workflowagent/internal/runner/steps"
	"workflowagent/internal/workflow"
)

// newStepCommands returns the commands that a job's steps call. The help does not list them,
// because they work only with parameters from `workflow-runner run`.
func newStepCommands() []*cobra.Command {
	git := step("git", "Fetch the program from a git repository", func(cmd *cobra.Command, p *steps.Params) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		// git runs as a child process, which must exit together with this process.
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return steps.SourceGit(ctx, p, self, cmd.OutOrStdout())
	})
	source := &cobra.Command{Use: "source", Short: "Fetch the program", Hidden: true}
	source.AddCommand(git)

	pulumi := &cobra.Command{
		Use:    "pulumi OPERATION",
		Short:  "Run an operation of a deployment",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			op, err := workflow.ParseOperation(args[0])
			if err != nil {
				return err
			}
			p, err := steps.ReadParams()
			if err != nil {
				return err
			}
			return steps.Pulumi(p, op, cmd.OutOrStdout())
		},
	}
	return []*cobra.Command{
		source,
		pulumi,
		newPolicyCommand(),
		step("dependencies", "Install the program's dependencies", func(cmd *cobra.Command, p *steps.Params) error {
			return steps.Dependencies(cmd.Context(), p, cmd.OutOrStdout())
		}),
		step("pre-run", "Run a pre-run command", func(cmd *cobra.Command, p *steps.Params) error {
			return steps.PreRun(p, cmd.OutOrStdout())
		}),
		step("remove-stack", "Delete the stack", func(_ *cobra.Command, p *steps.Params) error {
			return steps.RemoveStack(p)
		}),
	}
}

// newPolicyCommand returns the commands of the steps of a policy evaluation. A signal ends them with what they run, because
// nothing that they do must be completed.
func newPolicyCommand() *cobra.Command {
	root := &cobra.Command{Use: "policy", Short: "Evaluate a state with policy packs", Hidden: true}
	for _, sub := range []struct {
		name, short string
		run         func(ctx context.Context, p *policy.Params, out io.Writer) error
	}{
		{"state", "Fetch the state", policy.State},
		{"install", "Fetch the policy packs", policy.Install},
		{"evaluate", "Run the policy packs on the state", policy.Evaluate},
		{"report", "Report what the policy packs found", policy.Report},
	} {
		root.AddCommand(&cobra.Command{
			Use: sub.name, Short: sub.short, Hidden: true, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				p, err := policy.ReadParams()
				if err != nil {
					return err
				}
				ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
				defer stop()
				err = sub.run(ctx, p, cmd.OutOrStdout())
				return program.Exit(policy.ExitCode(err), err)
			},
		})
	}
	return root
}

func step(name, short string, run func(cmd *cobra.Command, p *steps.Params) error) *cobra.Command {
	return &cobra.Command{
		Use:    name,
		Short:  short,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := steps.ReadParams()
			if err != nil {
				return err
			}
			return run(cmd, p)
		},
	}
}
