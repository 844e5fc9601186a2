package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/server/admin"
)

func newEnvironmentCommand(s source) *cobra.Command {
	return operator.Group(
		&cobra.Command{
			Use: "environment", Aliases: []string{"env"}, Short: "Manage environments: grants, and definitions from git",
			Long: `Let deployments open environments (Pulumi ESC), and take their definitions from files. The pulumi CLI
creates, changes and opens environments: pulumi env.

` + through,
			Example: `  workflow-server environment grant list acme/app/prod
  workflow-server environment import ./environments --org acme --dry-run`,
		},
		operator.Group(
			&cobra.Command{
				Use: "grant", Short: "Let deployments of stacks open an environment",
				Long: `Let deployments of stacks open an environment and read its secrets. A deployment that no user
requested, such as that of a push, opens environments only through grants. A grant of an environment
covers none of the environments that it imports: each needs its own grant.

` + through,
				Example: "  workflow-server environment grant add acme/app/prod --to-stack acme/website/prod",
			},
			newEnvironmentGrantListCommand(s), newEnvironmentGrantAddCommand(s), newEnvironmentGrantRemoveCommand(s),
		),
		newEnvironmentImportCommand(s), newEnvironmentSourceCommand(s),
	)
}

const environmentArg = "the environment, as ORGANIZATION/PROJECT/ENVIRONMENT,"

func newEnvironmentGrantListCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list ENVIRONMENT",
		Short: "List which deployments and policy packs may open an environment",
		Example: `  workflow-server environment grant list acme/app/prod
  workflow-server environment grant list acme/app/prod --json`,
		Args: operator.OneArg(environmentArg),
	}
	asJSON := jsonFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		list, err := admin.ListEnvironmentGrants.Do(ctx, c, admin.EnvironmentNamed{Environment: cmd.Flags().Arg(0)})
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), list)
		}
		var rows [][]string
		for _, g := range list.OpenedBy {
			rows = append(rows, grantRow("opened by", g.To, g))
		}
		for _, p := range list.PolicyPacks {
			rows = append(rows, []string{"opened by", "policy pack " + p.Pack, "evaluations", "policy group " + p.Group, "", ""})
		}
		return operator.PrintTable(cmd.OutOrStdout(), "GRANT|TO|FOR|BY|SINCE|ID", rows)
	})
}

func newEnvironmentGrantAddCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add ENVIRONMENT",
		Short: "Let deployments of stacks open an environment",
		Long: `Let deployments of one stack, of all stacks of a project, or of all stacks with a tag open ENVIRONMENT
and read its secrets. They must run what the settings of their stack name, and not preview.
With --previews, previews and other branches of the same repository may open it, too. Forks never may.
A grant to the same stacks is changed.`,
		Example: `  workflow-server environment grant add acme/app/prod --to-stack acme/website/prod
  workflow-server environment grant add acme/app/dev --to-project website --previews
  workflow-server environment grant add acme/app/prod --to-tag tier=web`,
		Args: operator.OneArg(environmentArg),
	}
	var q admin.NewGrant
	targetFlags(cmd, &q, "open it")
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		added, err := admin.AddEnvironmentGrant.Do(ctx, c, admin.NewEnvironmentGrant{
			Environment: cmd.Flags().Arg(0), ToStack: q.ToStack, ToProject: q.ToProject, ToTag: q.ToTag, Previews: q.Previews,
		})
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if _, err := fmt.Fprintf(out, "Deployments of %s may open %s.\n", added.To, added.From); err != nil {
			return err
		}
		if err := printReaders(out, q, added.AddedGrant); err != nil || len(added.Ungranted) == 0 {
			return err
		}
		if _, err := fmt.Fprintln(out, "It imports environments that need the same grant:"); err != nil {
			return err
		}
		for _, name := range added.Ungranted {
			if _, err := fmt.Fprintln(out, "  "+name); err != nil {
				return err
			}
		}
		return nil
	})
}

func newEnvironmentGrantRemoveCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove ENVIRONMENT ID",
		Short:   "End a grant of an environment",
		Long:    `End a grant of an environment. Running deployments can no longer open it.`,
		Example: "  workflow-server environment grant remove acme/app/prod 1f0b7e1c-55f6-4b0e-9a5d-3f3a2e0a4a11",
		Args:    operator.TwoArgs(environmentArg, "the id of the grant"),
	}
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		environment, id := cmd.Flags().Arg(0), cmd.Flags().Arg(1)
		if _, err := admin.RemoveEnvironmentGrant.Do(ctx, c, admin.EnvironmentGrantOf{Environment: environment, ID: id}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Removed the grant %s of %s.\n", id, environment)
		return err
	})
}
