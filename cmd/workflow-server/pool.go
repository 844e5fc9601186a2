package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/sys/initsystem"
	"workflowagent/internal/termtext"
)

const onlyOrg = "organization of the pool (default: the only one)"

func newPoolCommand(s source) *cobra.Command {
	return operator.Group(
		&cobra.Command{
			Use: "pool", Short: "Manage agent pools", Long: "Manage agent pools, whose agents run deployments.\n\n" + through,
			Example: "  workflow-server pool create production",
		},
		newPoolListCommand(s), newPoolCreateCommand(s), newPoolDeleteCommand(s), newPoolTokenCommand(s),
	)
}

func newPoolListCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the agent pools",
		Example: `  workflow-server pool list
  workflow-server pool list --org research --json`,
		Args: operator.NoArgs,
	}
	org, asJSON := orgFlag(cmd, "organization of the pools (default: all)"), jsonFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		list, err := admin.ListPools.Do(ctx, c, admin.PoolsOf{Organization: *org})
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), list)
		}
		var rows [][]string
		for _, p := range list {
			isDefault := "no"
			if p.Default {
				isDefault = "yes"
			}
			rows = append(rows, []string{p.Organization, p.Name, isDefault, number(p.Online), number(p.Active), number(p.Queued), at(p.LastSeen), p.ID})
		}
		return operator.PrintTable(cmd.OutOrStdout(), "ORGANIZATION|POOL|DEFAULT|ONLINE AGENTS|RUNNING|QUEUED|LAST SEEN|ID", rows)
	})
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func newPoolCreateCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an agent pool and print the token of its agents",
		Long: `Create an agent pool and print the token of its agents, which cannot be printed again. The first
pool of an organization becomes its default pool.`,
		Example: `  workflow-server pool create production
  workflow-server pool create production --token-file /root/pool-token
  workflow-server pool create production --org research --json`,
		Args: operator.OneArg("the name of the new pool"),
	}
	org := orgFlag(cmd, onlyOrg)
	description := cmd.Flags().String("description", "", "what the pool is for")
	return newTokenMaker(s, cmd, true, func(ctx context.Context, c admin.Caller) (any, string, error) {
		name := cmd.Flags().Arg(0)
		pool, err := admin.CreatePool.Do(ctx, c, admin.NewPool{Organization: *org, Name: name, Description: *description})
		if fault.KindOf(err) == fault.KindConflict {
			again := []string{"pool", "token", name}
			if *org != "" {
				again = append(again, "--org", *org)
			}
			err = fmt.Errorf("%w with: %s", err, initsystem.CommandLine("workflow-server", again))
		}
		return pool, pool.Token, err
	})
}

// printSecret prints what was created as JSON, or only its secret, so that a script can use it.
func printSecret(cmd *cobra.Command, asJSON bool, created any, secret string) error {
	if asJSON {
		return operator.PrintJSON(cmd.OutOrStdout(), created)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), termtext.OneLine(secret, 0))
	return err
}

func newPoolDeleteCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete POOL",
		Short: "Delete an agent pool and its tokens",
		Long: `Delete an agent pool, by its name or id, and its tokens. Running deployments finish. With --force
also a pool that stacks name or deployments wait for: they use the default pool then.`,
		Example: `  workflow-server pool delete production
  workflow-server pool delete production --org research --force`,
		Args: operator.OneArg("the name or the id of the pool"),
	}
	org := orgFlag(cmd, onlyOrg)
	force := cmd.Flags().Bool("force", false, "delete the pool although it is in use")
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		pool, err := admin.DeletePool.Do(ctx, c, admin.OldPool{Organization: *org, Pool: cmd.Flags().Arg(0), Force: *force})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Deleted the pool %q of %s.\n", pool.Name, pool.Organization)
		return err
	})
}

func newPoolTokenCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token POOL",
		Short: "Create a further token for the agents of a pool and print it",
		Long: `Create a further token for the agents of a pool, by its name or id, and print the token, which
cannot be printed again. To replace a token, create one, give it to the agents, and revoke the old one
with token revoke.`,
		Example: `  workflow-server pool token production
  workflow-server pool token production --description 'host build-7' --expires 2160h --json`,
		Args: operator.OneArg("the name or the id of the pool"),
	}
	org := orgFlag(cmd, onlyOrg)
	description := cmd.Flags().String("description", "created on the command line of the server", "what the token is for")
	expires := expiresFlag(cmd)
	return newTokenMaker(s, cmd, false, func(ctx context.Context, c admin.Caller) (any, string, error) {
		token, err := admin.AddPoolToken.Do(ctx, c, admin.NewPoolToken{Organization: *org, Pool: cmd.Flags().Arg(0), Description: *description, Lifetime: *expires})
		return token, token.Token, err
	})
}

func expiresFlag(cmd *cobra.Command) *time.Duration {
	expires := cmd.Flags().Duration("expires", 0, "how long the token is valid (default: forever)")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *expires < 0 {
			return program.Usage(errors.New("--expires must not be negative"))
		}
		return nil
	}
	return expires
}
