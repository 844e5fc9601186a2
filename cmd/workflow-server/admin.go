package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/store"
)

// newTokenCommand returns the command that creates a token in the database, for an operator who
// lost the first token.
func newTokenCommand(s source) *cobra.Command {
	create := &cobra.Command{
		Use:   "create",
		Short: "Create a personal access token and print it",
		Long: `Create a personal access token and print it, without the API. It replaces the token of an
administrator who has lost it.`,
		Example: `  workflow-server token create
  workflow-server token create --user ann --description 'her laptop' --expires 2160h`,
		Args: operator.NoArgs,
	}
	load := s.flags(create, "data_dir", "database")
	user := create.Flags().String("user", identity.AdminLogin, "login of the user that the token acts as")
	description := create.Flags().String("description", "created on the command line of the server", "what the token is for")
	expires := create.Flags().Duration("expires", 0, "how long the token is valid (default: forever)")
	create.RunE = func(cmd *cobra.Command, _ []string) error {
		if *expires < 0 {
			return negative("expires")
		}
		return withDatabase(cmd, load, func(_ config.Config, db *store.DB, log *logrus.Entry) error {
			ids := identity.New(db, log)
			u, err := ids.UserByLogin(cmd.Context(), *user)
			if err != nil {
				return err
			}
			spec := identity.NewTokenSpec{Kind: store.PersonalToken, Description: *description, UserID: u.ID, CreatedBy: u.ID}
			if *expires > 0 {
				spec.Expires = time.Now().Add(*expires)
			}
			text, _, err := ids.CreateToken(cmd.Context(), spec)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		})
	}
	return operator.Group(&cobra.Command{Use: "token", Short: "Manage access tokens without the API", Example: "  workflow-server token create"}, create)
}

// newUserCommand returns the command that creates users, because the public API has no call for it.
func newUserCommand(s source) *cobra.Command {
	create := &cobra.Command{
		Use:     "create LOGIN",
		Short:   "Create a user and print a personal access token",
		Example: "  workflow-server user create ann --name 'Ann Lee' --member-of organization",
		Args:    operator.OneArg("the login of the new user"),
	}
	load := s.flags(create, "data_dir", "database")
	var n identity.NewUser
	create.Flags().StringVar(&n.Name, "name", "", "name of the user (default: the login)")
	create.Flags().StringVar(&n.Email, "email", "", "email address of the user")
	create.Flags().StringVar(&n.Org, "member-of", "", "organization to add the user to")
	create.Flags().StringVar(&n.Role, "role", identity.RoleMember, "role in the organization: "+strings.Join(identity.Roles(), ", "))
	create.Flags().BoolVar(&n.SiteAdmin, "site-admin", false, "let the user administer all organizations")
	create.RunE = func(cmd *cobra.Command, args []string) error {
		n.Login = args[0]
		n.Name = cmp.Or(n.Name, n.Login)
		return withDatabase(cmd, load, func(_ config.Config, db *store.DB, log *logrus.Entry) error {
			text, err := identity.New(db, log).CreateUser(cmd.Context(), n)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		})
	}
	return operator.Group(&cobra.Command{Use: "user", Short: "Manage users", Example: "  workflow-server user create ann"}, create)
}

// newOrgCommand returns the command that creates organizations, for operators without a token.
func newOrgCommand(s source) *cobra.Command {
	create := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an organization",
		Long: `Create an organization. Its first administrator is an existing user, who adds members, teams
and pools. Organizations share the server, but not stacks, pools, integrations or limits.`,
		Example: "  workflow-server org create research --admin ann",
		Args:    operator.OneArg("the name of the new organization"),
	}
	load := s.flags(create, "data_dir", "database")
	admin := create.Flags().String("admin", "", "login of the organization's first administrator (required)")
	create.RunE = func(cmd *cobra.Command, args []string) error {
		if *admin == "" {
			return program.Usage(errors.New("--admin is required: the login of an existing user"))
		}
		return withDatabase(cmd, load, func(_ config.Config, db *store.DB, log *logrus.Entry) error {
			ctx := audit.By(cmd.Context(), audit.WayCommand, audit.Actor{})
			o, err := identity.New(db, log).CreateOrganization(ctx, args[0], *admin)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Created organization %q. Its administrator is %s.\n", o.Name, *admin)
			return err
		})
	}
	return operator.Group(&cobra.Command{Use: "org", Short: "Manage organizations", Example: "  workflow-server org create research --admin ann"}, create)
}

func newSecretsCommand(s source) *cobra.Command {
	rotate := &cobra.Command{
		Use:   "rotate",
		Short: "Encrypt new secrets with a new key",
		Long: `Add a key to the ring that encrypts the secrets of stacks. Secrets that were encrypted with
older keys stay readable. A running server uses the new key after its next start.`,
		Args: operator.NoArgs,
	}
	load := s.flags(rotate, "data_dir", "database", "master_key_file")
	rotate.RunE = func(cmd *cobra.Command, _ []string) error {
		return withDatabase(cmd, load, func(cfg config.Config, db *store.DB, _ *logrus.Entry) error {
			keys, err := server.OpenSecrets(cmd.Context(), cfg, db)
			if err != nil {
				return err
			}
			return keys.Rotate(cmd.Context())
		})
	}
	return operator.Group(&cobra.Command{Use: "secrets", Short: "Manage the keys that encrypt secrets", Example: "  workflow-server secrets rotate"}, rotate)
}

// withDatabase runs work on the configured database. A server may be using the database at the same
// time.
func withDatabase(cmd *cobra.Command, load loader, work func(config.Config, *store.DB, *logrus.Entry) error) error {
	cfg, err := load()
	if err != nil {
		return err
	}
	log := newLog(cfg, cmd.ErrOrStderr())
	db, err := server.OpenExistingDatabase(cmd.Context(), cfg, log)
	if err != nil {
		return err
	}
	return errors.Join(work(cfg, db, log), db.Close())
}

// newAdminCommand returns the commands that let an operator act without the API.
func newAdminCommand(s source) *cobra.Command {
	signIn := &cobra.Command{
		Use:   "sign-in USER",
		Short: "Print a link that signs a user in to the console once",
		Long: `Print a link that signs a user in to the console. The link is valid for 10 minutes and works
once. The first administrator is ` + identity.AdminLogin + `.`,
		Example: "  workflow-server admin sign-in " + identity.AdminLogin,
		Args:    operator.OneArg("the login of the user"),
	}
	load := s.flags(signIn, "data_dir", "database", "external_url", "console_url", "listen")
	signIn.RunE = func(cmd *cobra.Command, args []string) error {
		return withDatabase(cmd, load, func(cfg config.Config, db *store.DB, log *logrus.Entry) error {
			u, err := identity.New(db, log).UserByLogin(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			key, err := signin.New(db, signin.Options{Log: log}).MakeLink(audit.By(cmd.Context(), audit.WayCommand, audit.Actor{}), u)
			if err != nil {
				return err
			}
			address, known := cfg.ConsoleOrListen()
			if !known {
				log.Warn("neither external_url nor console_url is set: the link contains the address to listen on, which is wrong if the server has been started with another one")
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), address+"/-/login/link?key="+key)
			return err
		})
	}
	return operator.Group(&cobra.Command{Use: "admin", Short: "Help users who cannot sign in", Example: "  workflow-server admin sign-in admin"}, signIn)
}
