package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/server/admin"
)

func newPolicyCommand(s source) *cobra.Command {
	return operator.Group(
		&cobra.Command{
			Use: "policy", Short: "List and request policy evaluations",
			Long:    "List and request policy evaluations. The pulumi CLI manages packs, groups, issues and exceptions: pulumi policy.\n\n" + through,
			Example: "  workflow-server policy evaluation list",
		},
		operator.Group(
			&cobra.Command{
				Use: "evaluation", Short: "List and request evaluations of stacks' states with the packs of audit groups",
				Long:    "List and request evaluations of the states of stacks with the packs of audit policy groups.\n\n" + through,
				Example: "  workflow-server policy evaluation run --stack website/prod",
			},
			newEvaluationListCommand(s), newEvaluationRunCommand(s),
		),
	)
}

// evaluationFlags adds the flags that select evaluations.
func evaluationFlags(cmd *cobra.Command, q *admin.EvaluationsOf) {
	cmd.Flags().StringVar(&q.Organization, "org", "", "organization (default: the only one)")
	cmd.Flags().StringVar(&q.Stack, "stack", "", "a stack, as PROJECT/STACK")
	cmd.Flags().StringVar(&q.Group, "group", "", "an audit group")
}

func newEvaluationListCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the newest 100 policy evaluations",
		Example: `  workflow-server policy evaluation list --state failed
  workflow-server policy evaluation list --group compliance --json`,
		Args: operator.NoArgs,
	}
	var q admin.EvaluationsOf
	evaluationFlags(cmd, &q)
	cmd.Flags().StringVar(&q.State, "state", "", "only evaluations in this state: unfinished or failed")
	asJSON := jsonFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		list, err := admin.ListEvaluations.Do(ctx, c, q)
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), list)
		}
		var rows [][]string
		for _, e := range list.Evaluations {
			result := e.Message
			if e.Violations != nil {
				result = cmp.Or(result, fmt.Sprintf("%d violations", *e.Violations))
			}
			queued := time.Unix(e.Created, 0)
			rows = append(rows, []string{e.Project + "/" + e.Stack, e.Group, string(e.Status), result, string(e.Cause), e.By, at(&queued), e.ID})
		}
		return operator.PrintTable(cmd.OutOrStdout(), "STACK|GROUP|STATUS|RESULT|CAUSE|BY|QUEUED|ID", rows)
	})
}

func newEvaluationRunCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Evaluate a stack, or all stacks of an audit group, now",
		Long: `Queue evaluations of a stack in all of its audit groups, or of all stacks of an audit group.
At most one evaluation waits for each stack and group.`,
		Example: `  workflow-server policy evaluation run --stack website/prod
  workflow-server policy evaluation run --group compliance`,
		Args: operator.NoArgs,
	}
	var q admin.EvaluationsOf
	evaluationFlags(cmd, &q)
	cmd.MarkFlagsOneRequired("stack", "group")
	cmd.MarkFlagsMutuallyExclusive("stack", "group")
	asJSON := jsonFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		queued, err := admin.RunEvaluations.Do(ctx, c, q)
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), queued)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Queued evaluations: %d. Those that already waited remain.\n", queued.Queued)
		return err
	})
}
