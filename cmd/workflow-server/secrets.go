package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
)

func newSecretsCommand(s source) *cobra.Command {
	rotate := &cobra.Command{
		Use:   "rotate",
		Short: "Encrypt new secrets with a new key",
		Long: `Add a key to the ring that encrypts the secrets of stacks. Secrets that were encrypted with
older keys stay readable. A running server uses the new key after its next start.`,
		Args: operator.NoArgs,
	}
	load := s.flags(rotate, keySettings...)
	rotate.RunE = func(cmd *cobra.Command, _ []string) error {
		return withSecrets(cmd, load, noPreparation, func(o opened) error { return o.secrets.Rotate(cmd.Context()) })
	}
	return operator.Group(&cobra.Command{Use: "secrets", Short: "Manage the keys that encrypt secrets", Example: "  workflow-server secrets rotate"}, rotate, newReplaceMasterKeyCommand(s), newDiscardCommand(s))
}

func newDiscardCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "discard --yes",
		Short: "Give up all secrets, because the master key is lost",
		Long: `Let an installation whose master key is lost start with a new one. This cannot be undone. Stop all
servers first: the command refuses while one runs, and with PostgreSQL for some seconds after that.

Lost are the secrets of stacks, in their configuration and their states, those of deployment settings
and webhooks, and the credentials of git hosts: set them again. The issuer of identity tokens and ACME
get new keys: register the issuer's keys again with clouds to which they were given.

Not lost are the states' other values, histories, logs, users, passkeys, access tokens, pools and
agents, schedules and settings.`,
		Example: "  workflow-server secrets discard --yes",
		Args:    operator.NoArgs,
	}
	yes := cmd.Flags().Bool("yes", false, "confirm that all secrets are given up")
	load := s.flags(cmd, keySettings...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*yes {
			return program.Usage(errors.New("this gives up all secrets, and cannot be undone: read workflow-server secrets discard --help, and confirm with --yes"))
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		if err := server.DiscardSecrets(cmd.Context(), cfg, newLog(cfg, cmd.ErrOrStderr())); err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "The secrets are given up. Start the server, which makes new keys.")
		return err
	}
	return cmd
}

// keySettings are the settings with which a command opens the key ring.
var keySettings = []string{"data_dir", "database", "master_key_file", "master_key_command"}

func newReplaceMasterKeyCommand(s source) *cobra.Command {
	var next keyring.Source
	var finish bool
	cmd := &cobra.Command{
		Use:   "replace-master-key {--new-file FILE | --new-command COMMAND | --finish}",
		Short: "Replace the master key without stopping the servers",
		Long: `Replace the master key in three steps:

1. With --new-file or --new-command, make a new key valid in addition to the current one. If the
   file does not exist, the command creates it with a new key.
2. Name the new key in the settings of each server, and restart one server after another.
3. With --finish, end the validity of the old key. Backups from before still need it. The command
   refuses, and names the servers, while some run with the old key. A server that was killed counts
   for 3 minutes.`,
		Example: `  workflow-server secrets replace-master-key --new-file /etc/workflow-server/master-key-2
  workflow-server secrets replace-master-key --finish`,
		Args: operator.NoArgs,
	}
	cmd.Flags().StringVar(&next.File, "new-file", "", "the `file` with the new key")
	cmd.Flags().StringVar(&next.Command, "new-command", "", "the shell `command` that prints the new key")
	cmd.Flags().BoolVar(&finish, "finish", false, "end the validity of the old key")
	cmd.MarkFlagsOneRequired("new-file", "new-command", "finish")
	cmd.MarkFlagsMutuallyExclusive("new-file", "new-command", "finish")
	load := s.flags(cmd, keySettings...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		var key []byte
		var created, added bool
		loadNext := func() (err error) {
			if !finish {
				next.Create = true
				if created, err = isNewKey(next.File); err == nil {
					key, err = next.Load(ctx)
				}
			}
			return err
		}
		err := withSecrets(cmd, load, loadNext, func(o opened) error {
			if finish {
				if err := o.secrets.RetireMaster(ctx); err != nil {
					return err
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "The old master key is no longer valid. Keep it as long as backups that need it.")
				return err
			}
			err := o.secrets.AddMaster(ctx, key)
			added = err == nil || !fault.Refuses(err) // without a refusal, the key can be in use
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is a second master key now. Name it in the settings of all servers, restart them, and then run this command with --finish.\n", next)
			return err
		})
		if err != nil && created && !added && key != nil {
			err = discardKey(next.File, err)
		}
		return err
	}
	return cmd
}

// isNewKey reports whether the file for a new master key is missing, so that it will be created. It returns an error
// if other users can have read the key.
func isNewKey(path string) (bool, error) {
	if path == "" {
		return false, nil // a command prints the key
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("--new-file: %w", err)
	case info.Mode().Perm()&0o007 != 0:
		return false, fmt.Errorf("--new-file: %s is open to all users (mode %04o), who can have read the key: remove it, and repeat the command, which creates a new key", path, info.Mode().Perm())
	}
	return false, nil
}

// discardKey removes the file with a new key that was refused because of err.
func discardKey(path string, err error) error {
	if os.Remove(path) == nil {
		return err
	}
	return fmt.Errorf("%w; the new key in %s is not in use, and this command, which is no longer root, cannot remove it: remove the file", err, path)
}

// opened is an installation's database, and what a command needs with it.
type opened struct {
	cfg     config.Config
	db      *store.DB
	secrets *keyring.Ring
	log     *logrus.Entry
}

func noPreparation() error { return nil }

// withSecrets runs work on the configured database, as the user of the server if root runs the command. Before that,
// prepare runs as root. A server may be using the database at the same time.
func withSecrets(cmd *cobra.Command, load loader, prepare func() error, work func(opened) error) error {
	cfg, err := load()
	if err != nil {
		return err
	}
	log := newLog(cfg, cmd.ErrOrStderr())
	db, secrets, err := server.OpenWithSecrets(cmd.Context(), cfg, log, prepare)
	if err != nil {
		return err
	}
	return errors.Join(work(opened{cfg, db, secrets, log}), db.Close())
}
