package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/organizations"
	"workflowagent/internal/server/store"
	"workflowagent/internal/settings"
	"workflowagent/internal/words"
)

func newOrgCommand(s source) *cobra.Command {
	return operator.Group(
		&cobra.Command{
			Use: "org", Short: "Manage organizations", Long: "Manage organizations.\n\n" + through,
			Example: "  workflow-server org create research --admin ann",
		},
		newOrgListCommand(s), newOrgCreateCommand(s), newOrgAppointCommand(s), newOrgQuotaCommand(s), newOrgRenameCommand(s), newOrgDeleteCommand(s),
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
			rows = append(rows, []string{
				o.Name, number(o.Members), number(o.Stacks), words.Bytes(o.StoredBytes), limitOf(o), number(o.DeploymentLimit), at(&o.Created),
				strings.Join(o.FormerNames, ", "), o.ID,
			})
		}
		return operator.PrintTable(cmd.OutOrStdout(), "ORGANIZATION|MEMBERS|STACKS|STORED|MAY STORE|DEPLOYMENTS AT ONCE|CREATED|FORMER NAMES|ID", rows)
	})
}

func newOrgCreateCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an organization",
		Long: `Create an organization. Its first administrator is an existing user, who adds members, teams
and pools. Organizations share the server, but not stacks, pools, integrations or limits.

The names of a deleted organization are refused, because cloud providers can still trust identity tokens that
contain them. Remove that trust, and then use --reuse-name.`,
		Example: `  workflow-server org create research --admin ann
  workflow-server org create research --admin ann --json`,
		Args: operator.OneArg("the name of the new organization"),
	}
	asJSON := jsonFlag(cmd)
	first := cmd.Flags().String("admin", "", "login of the organization's first administrator (required)")
	reuse := cmd.Flags().Bool("reuse-name", false, "also use a name that a deleted organization had")
	create := newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		o, err := admin.CreateOrganization.Do(ctx, c, admin.NewOrganization{Name: cmd.Flags().Arg(0), Admin: *first, ReuseName: *reuse})
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

// limitOf returns the limit of what an organization stores.
func limitOf(o admin.Organization) string {
	if o.StorageLimit == 0 {
		return "any amount"
	}
	return words.Bytes(o.StorageLimit)
}

func newOrgAppointCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "appoint NAME LOGIN",
		Short: "Make a user an administrator of an organization",
		Long: `Make a user an administrator of an organization, also one who is not a member of it: for
organizations that have lost their last administrator. Administrators of the server cannot do this in the
console, because they have no access to organizations of which they are not members.`,
		Example: "  workflow-server org appoint research ann",
		Args:    operator.TwoArgs("the name of the organization", "the login of the user"),
	}
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		name, login := cmd.Flags().Arg(0), cmd.Flags().Arg(1)
		if _, err := admin.AppointAdministrator.Do(ctx, c, admin.Appointment{Name: name, Login: login}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s administers the organization %q.\n", login, name)
		return err
	})
}

func newOrgQuotaCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota NAME",
		Short: "Show or set the limits of an organization",
		Long: `Show the limits of an organization, or set them with --storage and --deployments. They replace the
server's settings organization_quota and max_deployments. An organization that stores more than its limit
keeps what it has, and begins no further updates and deployments, except those that free space.`,
		Example: `  workflow-server org quota research
  workflow-server org quota research --storage 50g --deployments 10
  workflow-server org quota research --storage none --deployments default`,
		Args: operator.OneArg("the name of the organization"),
	}
	asJSON := jsonFlag(cmd)
	storage := cmd.Flags().String("storage", "", `what the organization may store, such as 50g, "none" for any amount, or "default"`)
	atOnce := cmd.Flags().String("deployments", "", `number of deployments at the same time, or "default"`)
	q := admin.Quotas{}
	quota := newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) (err error) {
		var o admin.Organization
		q.Name = cmd.Flags().Arg(0)
		if q.Storage == nil && q.Deployments == nil {
			o, err = admin.ShowOrganization.Do(ctx, c, admin.OrganizationName{Name: q.Name})
		} else {
			o, err = admin.SetQuotas.Do(ctx, c, q)
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), o)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s stores %s and may store %s%s. It may run %s at the same time%s.\n",
			o.Name, words.Bytes(o.StoredBytes), limitOf(o), ofServer(o.StorageQuota), words.Count(o.DeploymentLimit, "deployment"), ofServer(o.DeploymentQuota))
		return err
	})
	quota.PreRunE = func(*cobra.Command, []string) (err error) {
		if q.Storage, err = storageQuota(*storage); err == nil {
			q.Deployments, err = deploymentQuota(*atOnce)
		}
		if err != nil {
			return program.Usage(err)
		}
		return nil
	}
	return quota
}

// ofServer says after a limit that it is the server's.
func ofServer(quota int64) string {
	if quota == 0 {
		return " (the server's setting)"
	}
	return ""
}

func storageQuota(text string) (*int64, error) {
	var size settings.Bytes
	switch text {
	case "":
		return nil, nil
	case "default":
	case "none":
		size = store.NoQuota
	default:
		var err error
		if size, err = settings.ParseBytes(text); err != nil || size == 0 {
			return nil, fmt.Errorf("--storage must be a size such as 50g, \"none\" or \"default\", not %q", text)
		}
	}
	return new(int64(size)), nil
}

func deploymentQuota(text string) (*int64, error) {
	switch text {
	case "":
		return nil, nil
	case "default":
		return new(int64), nil
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("--deployments must be a number from 1, or \"default\", not %q", text)
		}
		return &n, nil
	}
}

// renamed says what a new name of an organization changes.
const renamed = `The former name keeps working for the CLI, programs, links and stored states, and no other organization
can have it. Tokens, agents, schedules and running deployments continue.

The identity tokens of its jobs have the new name in their subject, and as their audience, from then on:
before you rename, let cloud providers trust both names.`

func newOrgRenameCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rename NAME NEW-NAME",
		Short:   "Rename an organization",
		Long:    "Rename an organization. " + renamed,
		Example: "  workflow-server org rename research science --yes",
		Args:    operator.TwoArgs("the name of the organization", "its new name"),
	}
	yes := cmd.Flags().Bool("yes", false, "rename although the subjects of identity tokens change")
	rename := newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		name := cmd.Flags().Arg(0)
		o, err := admin.RenameOrganization.Do(ctx, c, admin.NewName{Name: name, To: cmd.Flags().Arg(1)})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Renamed organization %q to %q. The former name keeps working.\n", name, o.Name)
		return err
	})
	rename.PreRunE = func(*cobra.Command, []string) error {
		if !*yes {
			return program.Usage(errors.New("nothing was renamed. " + renamed + "\n\nTo rename the organization, repeat the command with --yes"))
		}
		return nil
	}
	return rename
}

func newOrgDeleteCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete an organization with all that belongs to it",
		Long: `Delete an organization for good, with its stacks, their states and secrets, deployments, logs, pools,
tokens and teams. Without --confirm, the command only prints what would be lost. Access ends at once, and the
server removes what was stored in the background. The resources in the states continue to exist at the cloud
providers: destroy the stacks before, if they are not needed.

The server refuses this while deployments or updates of the organization run, and for its last organization.
Users remain, also those who belong to no other organization.`,
		Example: `  workflow-server org delete research
  workflow-server org delete research --confirm research
  workflow-server org delete research --confirm research --json`,
		Args: operator.OneArg("the name of the organization"),
	}
	asJSON := jsonFlag(cmd)
	typed := cmd.Flags().String("confirm", "", "the name of the organization once more, to delete it")
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		name, out := cmd.Flags().Arg(0), cmd.OutOrStdout()
		if *typed != "" {
			o, err := admin.DeleteOrganization.Do(ctx, c, admin.OldOrganization{Name: name, Typed: *typed})
			if err != nil {
				return err
			}
			if *asJSON {
				return operator.PrintJSON(out, o)
			}
			_, err = fmt.Fprintf(out, "Deleted the organization %q with %s.\n", o.Name, organizations.Sum(o.Content()))
			return err
		}
		o, err := admin.ShowOrganization.Do(ctx, c, admin.OrganizationName{Name: name})
		if err != nil {
			return err
		}
		if *asJSON {
			err = operator.PrintJSON(out, o)
		} else {
			fmt.Fprintf(out, "With the organization %q, the server deletes:\n", o.Name)
			for _, part := range organizations.Parts(o.Content()) {
				fmt.Fprintln(out, strings.TrimSpace("  "+part.Text+" "+part.Note))
			}
		}
		if err != nil {
			return err
		}
		return program.Usage(fmt.Errorf("nothing was deleted: to delete the organization, add --confirm %s", o.Name))
	})
}
