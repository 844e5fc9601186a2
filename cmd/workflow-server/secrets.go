package main

import (
	"errors"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/server"
	"workflowagent/internal/server/config"
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
