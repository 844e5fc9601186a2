package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/words"
)

func newUserCommand(s source) *cobra.Command {
	return operator.Group(
		&cobra.Command{Use: "user", Short: "Manage users", Long: "Manage users.\n\n" + through, Example: "  workflow-server user create ann"},
		newUserListCommand(s), newUserCreateCommand(s), newUserDisableCommand(s), newUserEnableCommand(s), newUserDeleteCommand(s),
		newUserOwnedCommand(s), newUserHandOverCommand(s), newUserSessionsCommand(s),
	)
}

func newUserListCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the users",
		Example: `  workflow-server user list
  workflow-server user list --json`,
		Args: operator.NoArgs,
	}
	asJSON := jsonFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		list, err := admin.All(ctx, c, admin.ListUsers, admin.UsersAfter{}, admin.UsersAfter.Next)
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), list)
		}
		var rows [][]string
		for _, u := range list {
			state := "active"
			if u.Disabled != nil {
				state = "disabled"
			}
			var roles []string
			if u.SiteAdmin {
				roles = append(roles, "server: admin")
			}
			for _, org := range slices.Sorted(maps.Keys(u.Roles)) {
				roles = append(roles, org+": "+u.Roles[org])
			}
			rows = append(rows, []string{u.Login, state, u.Name, u.Email, strings.Join(roles, ", "), at(&u.Created), at(u.LastSeen)})
		}
		return operator.PrintTable(cmd.OutOrStdout(), "LOGIN|STATE|NAME|EMAIL|ROLES|CREATED|LAST SEEN", rows)
	})
}

func newUserCreateCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create LOGIN",
		Short: "Create a user and print a personal access token",
		Example: `  workflow-server user create ann --name 'Ann Lee' --member-of organization
  workflow-server user create ann --json`,
		Args: operator.OneArg("the login of the new user"),
	}
	asJSON := jsonFlag(cmd)
	var n admin.NewUser
	cmd.Flags().StringVar(&n.Name, "name", "", "name of the user (default: the login)")
	cmd.Flags().StringVar(&n.Email, "email", "", "email address of the user")
	cmd.Flags().StringVar(&n.Organization, "member-of", "", "organization to add the user to")
	cmd.Flags().StringVar(&n.Role, "role", identity.RoleMember, "role in the organization: "+strings.Join(identity.Roles(), ", "))
	cmd.Flags().BoolVar(&n.SiteAdmin, "site-admin", false, "let the user administer the server: users, and the names and limits of organizations")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(identity.Roles(), cobra.ShellCompDirectiveNoFileComp)) // fails only for an undefined flag
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		n.Login = cmd.Flags().Arg(0)
		created, err := admin.CreateUser.Do(ctx, c, n)
		if err != nil {
			return err
		}
		return printSecret(cmd, *asJSON, created, created.Token)
	})
}

func newUserDisableCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disable LOGIN",
		Short: "End all access of a user, who cannot sign in until enabled again",
		Long: `End all access of a user at once: sessions with their open pages, sign-in links, and personal
access tokens. The user cannot sign in in any way until user enable. Running updates of the user's
CLI end at their next call, and the user's deployments continue without access to other stacks.
Memberships, permissions and passkeys remain.

With --to, another user takes over what the user owns, as with user hand-over, and schedules
continue on behalf of that user. Otherwise the user's schedules are paused. Tokens of
organizations, teams and pools that the user has created remain valid, because others use them.

The last administrator of the server cannot be disabled, and that of an organization only with
--to, which makes the other user an administrator.`,
		Example: `  workflow-server user owned ann
  workflow-server user disable ann --to bob`,
		Args: operator.OneArg("the login of the user"),
	}
	to := toFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		login := cmd.Flags().Arg(0)
		ended, err := admin.DisableUser.Do(ctx, c, admin.Leaving{Login: login, To: *to})
		if err != nil {
			return err
		}
		if err := printEnded(cmd, "Disabled "+login, ended); err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if ended.Paused > 0 {
			fmt.Fprintf(out, "Paused %s.\n", words.Count(ended.Paused, "schedule"))
		}
		if ended.Owned > 0 {
			fmt.Fprintf(out, "%s owns %s. To list them, and to hand them over:\n  workflow-server user owned %[1]s\n  workflow-server user hand-over %[1]s LOGIN\n",
				login, words.Count(ended.Owned, "object"))
		}
		return nil
	})
}

func toFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("to", "", "login of the user who takes over what the user owns")
}

func printEnded(cmd *cobra.Command, what string, e admin.Ended) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s, and ended %s and %s.\n", what, words.Count(e.Sessions, "session"), words.Count(e.Tokens, "access token"))
	return err
}

func newUserOwnedCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "owned LOGIN",
		Short: "List what a user owns",
		Long: `List what a user owns, and must hand over before user delete: stacks, schedules and webhooks that act on
behalf of the user, and the integrations and the tokens of organizations, teams and pools that the user
has created. The list contains at most 1,000 entries.`,
		Example: `  workflow-server user owned ann
  workflow-server user owned ann --json`,
		Args: operator.OneArg("the login of the user"),
	}
	asJSON := jsonFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		login, out := cmd.Flags().Arg(0), cmd.OutOrStdout()
		h, err := admin.ListHoldings.Do(ctx, c, admin.Login{Login: login})
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(out, h)
		}
		for _, org := range h.LastAdministratorOf {
			fmt.Fprintf(out, "%s is the last administrator of %s.\n", login, org)
		}
		var rows [][]string
		for _, v := range h.Owned {
			rows = append(rows, []string{v.Organization, v.Kind, v.Name, v.ID})
		}
		return operator.PrintTable(out, "ORGANIZATION|KIND|NAME|ID", rows)
	})
}

func newUserHandOverCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hand-over LOGIN TO",
		Short: "Give all that a user owns to another user",
		Long: `Give all that a user owns to another user, who becomes the owner of the stacks, and on whose behalf
schedules and webhooks act from then on, with that user's rights. Read what the schedules and webhooks
do before. Paused schedules stay paused. If the user is the last administrator of an organization, the
other user becomes an administrator of it.

The other user must belong to each organization in which the user owns something; an administrator of
the server becomes an administrator of it instead.`,
		Example: "  workflow-server user hand-over ann bob",
		Args:    operator.TwoArgs("the login of the user", "the login of the one who takes over"),
	}
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		login, to := cmd.Flags().Arg(0), cmd.Flags().Arg(1)
		h, err := admin.HandOver.Do(ctx, c, admin.Leaving{Login: login, To: to})
		if err != nil {
			return err
		}
		if h.Total == 0 {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s owned nothing.\n", login)
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Handed over to %s: %s.\n", to, h.Summary)
		return err
	})
}

func newUserEnableCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enable LOGIN",
		Short: "Let a disabled user sign in again",
		Long: `Let a disabled user sign in again. Earlier sessions and access tokens stay invalid; admin sign-in
prints a link for the user.`,
		Example: "  workflow-server user enable ann",
		Args:    operator.OneArg("the login of the user"),
	}
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		login := cmd.Flags().Arg(0)
		if _, err := admin.EnableUser.Do(ctx, c, admin.Login{Login: login}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Enabled %s.\n", login)
		return err
	})
}

func newUserDeleteCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete LOGIN",
		Short: "Delete a user",
		Long: `Delete a user for good, with all access as user disable, and with memberships, permissions, passkeys,
accounts at identity providers, name and email address. Histories and the audit log still name the user;
another user can have the login then.

A user who owns something can only be deleted with --to, which hands it over as user hand-over. The
last administrator of the server cannot be deleted, and that of an organization only with --to. At the
next sign-in at an identity provider, the person becomes a new user if the provider permits it: to keep
a person out, use user disable.`,
		Example: `  workflow-server user delete ann
  workflow-server user delete ann --to bob`,
		Args: operator.OneArg("the login of the user"),
	}
	to := toFlag(cmd)
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		login := cmd.Flags().Arg(0)
		ended, err := admin.DeleteUser.Do(ctx, c, admin.Leaving{Login: login, To: *to})
		if err != nil {
			return err
		}
		return printEnded(cmd, "Deleted "+login+", whom histories call "+ended.Login, ended)
	})
}

func newUserSessionsCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sessions LOGIN",
		Short: "List or end the sessions of a user in the console",
		Long: `List the sessions of a user in the console, or end all of them with --end. A user whose sessions have
ended can sign in again; to prevent that, use user disable.`,
		Example: `  workflow-server user sessions ann
  workflow-server user sessions ann --json
  workflow-server user sessions ann --end`,
		Args: operator.OneArg("the login of the user"),
	}
	asJSON := jsonFlag(cmd)
	end := cmd.Flags().Bool("end", false, "end all sessions of the user")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *asJSON && *end {
			return program.Usage(errors.New("--json lists the sessions, and --end ends them: use one of them"))
		}
		return nil
	}
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		who, out := admin.Login{Login: cmd.Flags().Arg(0)}, cmd.OutOrStdout()
		if *end {
			ended, err := admin.EndSessions.Do(ctx, c, who)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(out, "Ended %s of %s.\n", words.Count(ended.Sessions, "session"), ended.Login)
			return err
		}
		list, err := admin.ListSessions.Do(ctx, c, who)
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(out, list)
		}
		var rows [][]string
		for _, v := range list {
			rows = append(rows, []string{at(&v.Created), at(&v.Seen), at(&v.Ends), v.Way, v.Address, v.Agent})
		}
		return operator.PrintTable(out, "SIGNED IN|LAST USED|ENDS|WITH|ADDRESS|BROWSER", rows)
	})
}
