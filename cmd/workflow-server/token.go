package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/identity"
)

func newTokenCommand(s source) *cobra.Command {
	return operator.Group(
		&cobra.Command{
			Use: "token", Short: "Manage access tokens without the API", Long: "Manage access tokens without the API.\n\n" + through,
			Example: "  workflow-server token create",
		},
		newTokenListCommand(s), newTokenCreateCommand(s), newTokenRevokeCommand(s),
	)
}

func newTokenListCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the access tokens",
		Long: `List the tokens of users, organizations, teams and agent pools, newest first, without their
texts, which the server does not store. The list omits the tokens of running deployments and those
that were exchanged for an identity token: both end soon by themselves.`,
		Example: `  workflow-server token list
  workflow-server token list --user ann --json
  workflow-server token list --kind pool --org research`,
		Args: operator.NoArgs,
	}
	org, asJSON := orgFlag(cmd, "organization of the tokens (default: all)"), jsonFlag(cmd)
	user := cmd.Flags().String("user", "", "login of the user as whom the tokens act")
	creator := cmd.Flags().String("created-by", "", "login of the user who has created the tokens")
	kind := cmd.Flags().String("kind", "", "kind of the tokens: "+strings.Join(admin.TokenKinds(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(admin.TokenKinds(), cobra.ShellCompDirectiveNoFileComp)) // fails only for an undefined flag
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		q := admin.TokensOf{Kind: *kind, User: *user, Organization: *org, CreatedBy: *creator}
		list, err := admin.All(ctx, c, admin.ListTokens, q, admin.TokensOf.Next)
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), list)
		}
		var rows [][]string
		for _, t := range list {
			rows = append(rows, []string{t.ID, t.Kind, holder(t), cmp.Or(t.Description, t.Name), t.CreatedBy, at(&t.Created), at(t.Expires), at(t.LastUsed)})
		}
		return operator.PrintTable(cmd.OutOrStdout(), "ID|KIND|OF|DESCRIPTION|CREATED BY|CREATED|EXPIRES|LAST USED", rows)
	})
}

// holder returns to whom a token belongs.
func holder(t admin.Token) string {
	if t.User != "" {
		return t.User
	}
	if part := cmp.Or(t.Team, t.Pool); part != "" {
		return t.Organization + "/" + part
	}
	return t.Organization
}

func newTokenCreateCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a personal access token and print it",
		Long: `Create a personal access token and print it, without the API. It replaces the token of an
administrator who has lost it.`,
		Example: `  workflow-server token create
  workflow-server token create --user ann --description 'her laptop' --expires 2160h`,
		Args: operator.NoArgs,
	}
	asJSON := jsonFlag(cmd)
	user := cmd.Flags().String("user", identity.AdminLogin, "login of the user that the token acts as")
	description := cmd.Flags().String("description", "created on the command line of the server", "what the token is for")
	expires := expiresFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		token, err := admin.CreateToken.Do(ctx, c, admin.NewToken{User: *user, Description: *description, Lifetime: *expires})
		if err != nil {
			return err
		}
		return printSecret(cmd, *asJSON, token, token.Token)
	})
}

func newTokenRevokeCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke an access token",
		Long: `Revoke a token of a user, an organization, a team or an agent pool at once. Sessions that began with
the token end, too, and a running update that uses it loses its lease. token list shows the ids.`,
		Example: "  workflow-server token revoke 0b7b6c1e-6a8e-4ff7-9c52-6e0e6a3d1c11",
		Args:    operator.OneArg("the id of the token"),
	}
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		id := cmd.Flags().Arg(0)
		if _, err := admin.RevokeToken.Do(ctx, c, admin.OldToken{ID: id}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Revoked the token %s.\n", id)
		return err
	})
}
