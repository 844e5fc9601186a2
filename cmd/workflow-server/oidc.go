package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/server"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/outbound"
)

func newOIDCCommand(s source) *cobra.Command {
	return operator.Group(
		&cobra.Command{Use: "oidc", Short: "Manage the keys that sign the identity tokens of jobs", Example: "  workflow-server oidc keys"},
		newOIDCKeysCommand(s), newOIDCRotateCommand(s), newOIDCExportCommand(s), newOIDCCheckCommand(s),
	)
}

func newOIDCKeysCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "List the published keys",
		Example: `  workflow-server oidc keys
  workflow-server oidc keys --json`,
		Args: operator.NoArgs,
	}
	var asJSON bool
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	load := s.flags(cmd, keySettings...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withIssuer(cmd, load, func(s *issuer.Service) error { return printKeys(cmd, s, asJSON) })
	}
	return cmd
}

func newOIDCRotateCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Publish a new key",
		Long: `Publish a new key, which begins to sign tokens after 48 hours. The server does this itself
before a key reaches the age oidc_key_rotation.

With --revoke, the new key signs at once, and the old keys are withdrawn. Use it if a private
key could be known to others. Cloud providers reject the tokens of the old keys when they fetch
the keys again, and might reject new tokens until then. If the documents are exported, export
them immediately afterwards.`,
		Args: operator.NoArgs,
	}
	load := s.flags(cmd, keySettings...)
	revoke := cmd.Flags().Bool("revoke", false, "replace all keys at once")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withIssuer(cmd, load, func(s *issuer.Service) error {
			rotate := s.Rotate
			if *revoke {
				rotate = s.Revoke
			}
			if err := rotate(cmd.Context()); err != nil {
				return err
			}
			return printKeys(cmd, s, false)
		})
	}
	return cmd
}

func newOIDCExportCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export DIR",
		Short: "Write the issuer's documents to a directory",
		Long: `Write .well-known/openid-configuration and .well-known/jwks below DIR and DIR/v2, for a server that
cloud providers cannot reach. Publish the content of DIR at the URL in oidc_issuer_url, and repeat
this at least once per day, so that each new key is public before it signs. If root runs the
command, it writes as the server's user, who needs the right to write to DIR.`,
		Example: "  workflow-server oidc export /srv/oidc",
		Args:    operator.OneArg("the directory"),
	}
	load := s.flags(cmd, append(slices.Clone(keySettings), "external_url", "oidc_issuer_url")...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withNamedIssuer(cmd, load, func(s *issuer.Service) error {
			err := s.Export(cmd.Context(), args[0])
			if errors.Is(err, fs.ErrPermission) {
				return fmt.Errorf("%w: the command writes as user %d; name a directory to which that user can write", err, os.Geteuid())
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Publish the content of %s at %s.\n", args[0], s.URL())
			return err
		})
	}
	return cmd
}

func newOIDCCheckCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check that the issuer's documents are published and current",
		Long: `Fetch the issuer's documents from its URL, as a cloud provider does, and compare them with the
database. The check fails if the URL does not use https, cannot be reached from this machine, or
lacks a key. It cannot check whether the URL is reachable from the internet. What is wrong with the
second issuer, at /v2 below the URL, is only reported.`,
		Args: operator.NoArgs,
	}
	load := s.flags(cmd, append(slices.Clone(keySettings), "external_url", "oidc_issuer_url")...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withNamedIssuer(cmd, load, func(s *issuer.Service) error {
			if err := s.Check(cmd.Context(), &outbound.Client{Reach: outbound.Reach{Anywhere: true}}); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s publishes all keys.\n", s.URL())
			if err := s.CheckCustom(cmd.Context(), &outbound.Client{Reach: outbound.Reach{Anywhere: true}}); err != nil {
				fmt.Fprintf(cmd.OutOrStdout(), "Only environments with fn::open::oidc need the second issuer %s: %v.\n", s.CustomURL(), err)
			}
			return nil
		})
	}
	return cmd
}

// withIssuer runs work with the issuer of the configured database.
func withIssuer(cmd *cobra.Command, load loader, work func(*issuer.Service) error) error {
	return withSecrets(cmd, load, noPreparation, func(o opened) error {
		return work(server.NewIssuer(o.cfg, o.db, o.secrets, o.log))
	})
}

// withNamedIssuer is [withIssuer] for work that needs the issuer's URL.
func withNamedIssuer(cmd *cobra.Command, load loader, work func(*issuer.Service) error) error {
	return withIssuer(cmd, load, func(s *issuer.Service) error {
		if s.URL() == "" {
			return errors.New("the issuer's URL is unknown: set oidc_issuer_url or external_url as the server does")
		}
		return work(s)
	})
}

func printKeys(cmd *cobra.Command, s *issuer.Service, asJSON bool) error {
	keys, err := s.Keys(cmd.Context())
	if err != nil {
		return err
	}
	type key struct {
		ID        string     `json:"id"`
		Status    string     `json:"status"`
		SignsFrom time.Time  `json:"signsFrom"`
		Until     *time.Time `json:"until,omitempty"`
	}
	list := []key{}
	for _, k := range keys {
		shown := key{ID: k.ID, Status: "next", SignsFrom: k.UseFrom}
		if !k.Replaced.IsZero() {
			shown.Status, shown.Until = "replaced", &k.Replaced
		}
		if k.Signs {
			shown.Status = "signs"
		}
		list = append(list, shown)
	}
	if asJSON {
		return operator.PrintJSON(cmd.OutOrStdout(), list)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	io.WriteString(w, "KEY\tSTATUS\tSIGNS FROM\tUNTIL\n")
	for _, k := range list {
		until := "-"
		if k.Until != nil {
			until = k.Until.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", k.ID, k.Status, k.SignsFrom.Format(time.RFC3339), until)
	}
	return w.Flush()
}
