package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server/admin"
)

func newOrgCommand(s source) *cobra.Command {
	return operator.Group(
		&cobra.Command{
			Use: "org", Short: "Manage organizations", Long: "Manage organizations.\n\n" + through,
			Example: "  workflow-server org create research --admin ann",
		},
		newOrgListCommand(s), newOrgCreateCommand(s), newOrgRenameCommand(s),
	)
}

func newOrgListCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the organizations",
		Example: `  workflow-server org list
  workflow-server org list --json`,
		Args: operator.NoArgs,
	}
	asJSON := jsonFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		list, err := admin.ListOrganizations.Do(ctx, c, admin.None{})
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), list)
		}
		var rows [][]string
		for _, o := range list {
			rows = append(rows, []string{o.Name, number(o.Members), number(o.Stacks), at(&o.Created), strings.Join(o.FormerNames, ", "), o.ID})
		}
		return operator.PrintTable(cmd.OutOrStdout(), "ORGANIZATION|MEMBERS|STACKS|CREATED|FORMER NAMES|ID", rows)
	})
}

func newOrgCreateCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an organization",
		Long: `Create an organization. Its first administrator is an existing user, who adds members, teams
and pools. Organizations share the server, but not stacks, pools, integrations or limits.`,
		Example: `  workflow-server org create research --admin ann
  workflow-server org create research --admin ann --json`,
		Args: operator.OneArg("the name of the new organization"),
	}
	asJSON := jsonFlag(cmd)
	first := cmd.Flags().String("admin", "", "login of the organization's first administrator (required)")
	create := newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		o, err := admin.CreateOrganization.Do(ctx, c, admin.NewOrganization{Name: cmd.Flags().Arg(0), Admin: *first})
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), o)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Created organization %q. Its administrator is %s.\n", o.Name, *first)
		return err
	})
	create.PreRunE = func(*cobra.Command, []string) error {
		if *first == "" {
			return program.Usage(errors.New("--admin is required: the login of an existing user"))
		}
		return nil
	}
	return create
}

func newOrgRenameCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rename NAME NEW-NAME",
		Short: "Rename an organization",
		Long: `Rename an organization. Its former name keeps working for the CLI, programs, links and stored states,
and no other organization can have it. The identity tokens of its jobs have the new name in their
subject, and as their audience, from then on: change what cloud providers trust before.`,
		Example: "  workflow-server org rename research science",
		Args:    operator.TwoArgs("the name of the organization", "its new name"),
	}
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		name := cmd.Flags().Arg(0)
		o, err := admin.RenameOrganization.Do(ctx, c, admin.NewName{Name: name, To: cmd.Flags().Arg(1)})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Renamed organization %q to %q. The former name keeps working.\n", name, o.Name)
		return err
	})
}
