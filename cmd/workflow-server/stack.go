package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/server/admin"
)

func newStackCommand(s source) *cobra.Command {
	return operator.Group(
		&cobra.Command{
			Use: "stack", Short: "List stacks, and move them between organizations", Long: "List stacks, and move them between organizations.\n\n" + through,
			Example: "  workflow-server stack list",
		},
		newStackListCommand(s), newStackTransferCommand(s),
	)
}

func newStackListCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the stacks",
		Example: `  workflow-server stack list
  workflow-server stack list --org research --json`,
		Args: operator.NoArgs,
	}
	org, asJSON := orgFlag(cmd, "organization of the stacks (default: all)"), jsonFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		list, err := admin.All(ctx, c, admin.ListStacks, admin.StacksOf{Organization: *org}, admin.StacksOf.Next)
		if err != nil {
			return err
		}
		slices.SortFunc(list, func(a, b admin.Stack) int { return strings.Compare(a.Ref(), b.Ref()) })
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), list)
		}
		var rows [][]string
		for _, st := range list {
			updating := "no"
			if st.Updating {
				updating = "yes"
			}
			rows = append(rows, []string{st.Ref(), number(st.Version), number(st.Resources), updating, at(st.LastUpdate)})
		}
		return operator.PrintTable(cmd.OutOrStdout(), "STACK|VERSION|RESOURCES|UPDATING|LAST UPDATE", rows)
	})
}

func newStackTransferCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "transfer STACK ORGANIZATION",
		Short: "Move a stack to another organization",
		Long: `Move a stack, as ORGANIZATION/PROJECT/STACK, with its history and secrets to another organization.
Permissions remain only for members of that organization. The stack must have no running update,
unfinished deployments, schedules or webhooks, and no settings that name an agent pool or a repository
of an integration. Programs and the CLI must use its new name.`,
		Example: "  workflow-server stack transfer organization/website/prod research",
		Args:    operator.TwoArgs("the stack, as ORGANIZATION/PROJECT/STACK,", "the name of the new organization"),
	}
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		stack, to := cmd.Flags().Arg(0), cmd.Flags().Arg(1)
		if _, err := admin.TransferStack.Do(ctx, c, admin.Transfer{Stack: stack, To: to}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Moved %s to %s.\n", stack, to)
		return err
	})
}
