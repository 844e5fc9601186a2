package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/server/admin"
)

func newGrantCommand(s source) *cobra.Command {
	return operator.Group(
		&cobra.Command{
			Use: "grant", Short: "Let deployments of other stacks read the outputs of a stack",
			Long: `Let deployments of other stacks read the outputs of a stack, secrets included, with a StackReference.
A deployment that no user requested, such as that of a push, reads other stacks only through grants.

` + through,
			Example: "  workflow-server stack grant add acme/network/prod --to-stack acme/website/prod",
		},
		newGrantListCommand(s), newGrantAddCommand(s), newGrantRemoveCommand(s),
	)
}

const grantStackArg = "the stack whose outputs are read, as ORGANIZATION/PROJECT/STACK,"

func newGrantListCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list STACK",
		Short: "List who may read a stack, and what it may read",
		Example: `  workflow-server stack grant list acme/network/prod
  workflow-server stack grant list acme/network/prod --json`,
		Args: operator.OneArg("the stack, as ORGANIZATION/PROJECT/STACK,"),
	}
	asJSON := jsonFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		list, err := admin.ListGrants.Do(ctx, c, admin.StackNamed{Stack: cmd.Flags().Arg(0)})
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), list)
		}
		var rows [][]string
		add := func(kind, of string, g admin.Grant) { rows = append(rows, grantRow(kind, of, g)) }
		for _, g := range list.ReadBy {
			add("read by", g.To, g)
		}
		for _, g := range list.Reads {
			add("reads", g.From, g)
		}
		for _, g := range list.Opens {
			add("opens", "environment "+g.From, g)
		}
		if list.ProjectReads {
			rows = append(rows, []string{"both", "all stacks of its project", "updates", "organization", "", ""})
		}
		return operator.PrintTable(cmd.OutOrStdout(), "GRANT|STACKS|FOR|BY|SINCE|ID", rows)
	})
}

// grantRow describes a grant in a table.
func grantRow(kind, of string, g admin.Grant) []string {
	forWhat := "updates"
	switch {
	case g.Excluded:
		forWhat = "nothing: excluded"
	case g.Previews:
		forWhat = "updates and previews"
	}
	return []string{kind, of, forWhat, g.CreatedBy, at(&g.Created), g.ID}
}

// targetFlags adds the flags that name the target of a grant, of which one is required.
func targetFlags(cmd *cobra.Command, q *admin.NewGrant, may string) {
	cmd.Flags().StringVar(&q.ToStack, "to-stack", "", "the stack that may "+may+", as PROJECT/STACK or ORGANIZATION/PROJECT/STACK")
	cmd.Flags().StringVar(&q.ToProject, "to-project", "", "the project whose stacks may "+may)
	cmd.Flags().StringVar(&q.ToTag, "to-tag", "", "the tag whose stacks may "+may+", as NAME=VALUE")
	cmd.Flags().BoolVar(&q.Previews, "previews", false, "also for previews and for other branches of the repository")
	cmd.MarkFlagsOneRequired("to-stack", "to-project", "to-tag")
	cmd.MarkFlagsMutuallyExclusive("to-stack", "to-project", "to-tag")
}

// printReaders prints the stacks that a new grant covers, unless it names one.
func printReaders(out io.Writer, q admin.NewGrant, added admin.AddedGrant) error {
	if q.ToStack != "" {
		return nil
	}
	if len(added.Readers) == 0 {
		_, err := fmt.Fprintln(out, "No stack matches yet.")
		return err
	}
	if _, err := fmt.Fprintln(out, "The grant now covers:"); err != nil {
		return err
	}
	for _, r := range added.Readers {
		if _, err := fmt.Fprintln(out, "  "+r); err != nil {
			return err
		}
	}
	return nil
}

func newGrantAddCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add STACK",
		Short: "Let deployments of other stacks read the outputs of a stack",
		Long: `Let deployments of one stack, of all stacks of a project, or of all stacks with a tag read the outputs
of STACK, secrets included. They must run what the settings of their stack name, and not preview.
With --previews, previews and other branches of the same repository may read, too. Forks never may.
A grant to the same stacks is changed.`,
		Example: `  workflow-server stack grant add acme/network/prod --to-stack acme/website/prod
  workflow-server stack grant add acme/network/dev --to-project website --previews
  workflow-server stack grant add acme/network/prod --to-tag tier=web`,
		Args: operator.OneArg(grantStackArg),
	}
	var q admin.NewGrant
	targetFlags(cmd, &q, "read")
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		q.Stack = cmd.Flags().Arg(0)
		added, err := admin.AddGrant.Do(ctx, c, q)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if _, err := fmt.Fprintf(out, "Deployments of %s may read the outputs of %s.\n", added.To, added.From); err != nil {
			return err
		}
		return printReaders(out, q, added)
	})
}

func newGrantRemoveCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove STACK ID",
		Short:   "End a grant of a stack",
		Long:    `End a grant of a stack. Running deployments can no longer read at their next call.`,
		Example: "  workflow-server stack grant remove acme/network/prod 1f0b7e1c-55f6-4b0e-9a5d-3f3a2e0a4a11",
		Args:    operator.TwoArgs(grantStackArg, "the id of the grant"),
	}
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		stack, id := cmd.Flags().Arg(0), cmd.Flags().Arg(1)
		if _, err := admin.RemoveGrant.Do(ctx, c, admin.GrantOf{Stack: stack, ID: id}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Removed the grant %s of %s.\n", id, stack)
		return err
	})
}
