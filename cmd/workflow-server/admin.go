package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"workflowagent/internal/server"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/store"
)

// newTokenCommand returns the command that creates a token in the database, for an operator who
// lost the first token.
func newTokenCommand() *cobra.Command {
	token := &cobra.Command{Use: "token", Short: "Manage access tokens without the API"}
	create := &cobra.Command{
		Use:   "create",
		Short: "Create a personal access token and print it",
		Args:  cobra.NoArgs,
	}
	load := configFlags(create, "data_dir", "database")
	user := create.Flags().String("user", identity.AdminLogin, "login of the user that the token acts as")
	description := create.Flags().String("description", "created on the command line of the server", "what the token is for")
	expires := create.Flags().Duration("expires", 0, "how long the token is valid (default: forever)")
	create.RunE = func(cmd *cobra.Command, _ []string) error {
		if *expires < 0 {
			return errors.New("--expires must not be negative")
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
	token.AddCommand(create)
	return token
}

// newUserCommand returns the command that creates users, because the public API has no call for it.
func newUserCommand() *cobra.Command {
	user := &cobra.Command{Use: "user", Short: "Manage users"}
	create := &cobra.Command{
		Use:   "create LOGIN",
		Short: "Create a user and print a personal access token",
		Args:  cobra.ExactArgs(1),
	}
	load := configFlags(create, "data_dir", "database")
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
	user.AddCommand(create)
	return user
}

// newOrgCommand returns the command that creates organizations, for operators without a token.
func newOrgCommand() *cobra.Command {
	org := &cobra.Command{Use: "org", Short: "Manage organizations"}
	create := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an organization",
		Long: "create creates an organization. Its first administrator is an existing user, who adds members,\n" +
			"teams and pools. Organizations share the server, but not stacks, pools, integrations or limits.",
		Example: "  workflow-server org create research --admin ann --data-dir /var/lib/workflow-server",
		Args:    cobra.ExactArgs(1),
	}
	load := configFlags(create, "data_dir", "database")
	admin := create.Flags().String("admin", "", "login of the organization's first administrator (required)")
	_ = create.MarkFlagRequired("admin") // fails only for an undefined flag
	create.RunE = func(cmd *cobra.Command, args []string) error {
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
	org.AddCommand(create)
	return org
}

func newSecretsCommand() *cobra.Command {
	secrets := &cobra.Command{Use: "secrets", Short: "Manage the keys that encrypt secrets"}
	rotate := &cobra.Command{
		Use:   "rotate",
		Short: "Encrypt new secrets with a new key",
		Long: "rotate adds a key to the ring that encrypts the secrets of stacks. Secrets that were encrypted\n" +
			"with older keys stay readable. A running server uses the new key after its next start.",
		Args: cobra.NoArgs,
	}
	load := configFlags(rotate, "data_dir", "database", "master_key_file")
	rotate.RunE = func(cmd *cobra.Command, _ []string) error {
		return withDatabase(cmd, load, func(cfg config.Config, db *store.DB, _ *logrus.Entry) error {
			keys, err := server.OpenSecrets(cmd.Context(), cfg, db)
			if err != nil {
				return err
			}
			return keys.Rotate(cmd.Context())
		})
	}
	secrets.AddCommand(rotate)
	return secrets
}

// withDatabase runs work on the configured database. A server may be using the database at the same
// time.
func withDatabase(cmd *cobra.Command, load func() (config.Config, error), work func(config.Config, *store.DB, *logrus.Entry) error) error {
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
func newAdminCommand() *cobra.Command {
	admin := &cobra.Command{Use: "admin", Short: "Help users who cannot sign in"}
	signIn := &cobra.Command{
		Use:   "sign-in USER",
		Short: "Print a link that signs a user in to the console once",
		Long: "sign-in prints a link that signs a user in to the console. The link is valid for 10 minutes and\n" +
			"works once. The first administrator is " + identity.AdminLogin + ".",
		Args: cobra.ExactArgs(1),
	}
	load := configFlags(signIn, "data_dir", "database", "external_url", "console_url", "listen")
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
	admin.AddCommand(signIn)
	return admin
}
