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
			Use: "stack", Short: "List, move and restore stacks, and grant reads", Long: "List stacks, move them between organizations, restore deleted ones, and let deployments read outputs.\n\n" + through,
			Example: "  workflow-server stack list",
		},
		newStackListCommand(s), newStackTransferCommand(s), newStackDeletedCommand(s), newStackRestoreCommand(s), newStackPurgeCommand(s),
		newGrantCommand(s),
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

func newStackDeletedCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deleted",
		Short: "List the deleted stacks",
		Long: `List the deleted stacks that can be restored, of each organization the newest 1000. The server removes
a deleted stack after the time keep_deleted_stacks.`,
		Example: `  workflow-server stack deleted
  workflow-server stack deleted --org research --json`,
		Args: operator.NoArgs,
	}
	org, asJSON := orgFlag(cmd, "organization of the stacks (default: all)"), jsonFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		list, err := admin.DeletedStacks.Do(ctx, c, admin.DeletedIn{Organization: *org})
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), list)
		}
		var rows [][]string
		for _, d := range list {
			rows = append(rows, []string{d.Ref(), d.ID, number(d.Version), number(d.Resources), at(&d.Deleted), d.DeletedBy, at(&d.PurgedAfter)})
		}
		return operator.PrintTable(cmd.OutOrStdout(), "STACK|ID|VERSION|RESOURCES|DELETED|BY|REMOVED AFTER", rows)
	})
}

const deletedStackArg = "the deleted stack, as ORGANIZATION/PROJECT/STACK or as its id,"

func newStackRestoreCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore STACK",
		Short: "Restore a deleted stack",
		Long: `Restore a deleted stack, named as ORGANIZATION/PROJECT/STACK or by its id, with its history, tags,
configuration, secrets, permissions, settings and deployments. Its schedules are paused. If another
stack has the name, give the restored one a new name with --as.`,
		Example: `  workflow-server stack restore organization/website/prod
  workflow-server stack restore organization/website/prod --as prod-before`,
		Args: operator.OneArg(deletedStackArg),
	}
	as := cmd.Flags().String("as", "", "new name of the stack (default: its last name)")
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		restored, err := admin.RestoreStack.Do(ctx, c, admin.Restoration{Stack: cmd.Flags().Arg(0), Name: *as})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Restored %s. Its schedules are paused.\n", restored.Stack)
		return err
	})
}

func newStackPurgeCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "purge STACK",
		Short: "Remove a deleted stack for good",
		Long: `Remove the history, states and secrets of a deleted stack, named as ORGANIZATION/PROJECT/STACK or by
its id, now. It cannot be restored afterwards.`,
		Example: "  workflow-server stack purge organization/website/prod",
		Args:    operator.OneArg(deletedStackArg),
	}
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		if _, err := admin.PurgeStack.Do(ctx, c, admin.DeletedStackOf{Stack: cmd.Flags().Arg(0)}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Removed %s.\n", cmd.Flags().Arg(0))
		return err
	})
}
