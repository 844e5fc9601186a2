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
		newUserListCommand(s), newUserCreateCommand(s), newUserDisableCommand(s), newUserEnableCommand(s), newUserDeleteCommand(s), newUserSessionsCommand(s),
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
	cmd.Flags().BoolVar(&n.SiteAdmin, "site-admin", false, "let the user administer all organizations")
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
CLI lose their lease, the user's schedules start nothing, and the user's deployments continue without
access to other stacks. Memberships, permissions and passkeys remain.

Tokens of organizations, teams and pools that the user has created remain valid, because others use
them; the command counts them. The last administrator of the server cannot be disabled, and that of an
organization only with --force.`,
		Example: `  workflow-server user disable ann
  workflow-server user disable ann --force`,
		Args: operator.OneArg("the login of the user"),
	}
	force := cmd.Flags().Bool("force", false, "disable even the last administrator of an organization")
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		login := cmd.Flags().Arg(0)
		ended, err := admin.DisableUser.Do(ctx, c, admin.Disabling{Login: login, Force: *force})
		if err != nil {
			return err
		}
		return printEnded(cmd, "Disabled "+login, ended)
	})
}

func printEnded(cmd *cobra.Command, what string, e admin.Ended) error {
	out := cmd.OutOrStdout()
	_, err := fmt.Fprintf(out, "%s, and ended %s and %s.\n", what, words.Count(e.Sessions, "session"), words.Count(e.Tokens, "access token"))
	if e.Shared > 0 {
		fmt.Fprintf(out, "The user has created %s of organizations, teams and pools, which stay valid. To list them:\n  workflow-server token list --created-by %s\n",
			words.Count(e.Shared, "token"), e.Login)
	}
	return err
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
another user can have the login then. The stacks that the user created have no owner any more, and belong
to the administrators of their organizations.

The last administrator of the server or of an organization cannot be deleted. At the next sign-in at an
identity provider, the person becomes a new user if the provider permits it: to keep a person out, use
user disable.`,
		Example: "  workflow-server user delete ann",
		Args:    operator.OneArg("the login of the user"),
	}
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		login := cmd.Flags().Arg(0)
		ended, err := admin.DeleteUser.Do(ctx, c, admin.Login{Login: login})
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
