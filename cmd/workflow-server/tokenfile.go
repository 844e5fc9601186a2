package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server/admin"
)

// newTokenMaker completes a command that creates a token of agents, with flags that say where the token goes. If keep is
// set, the command does nothing if the file exists, so that it can run at each start of an installation.
func newTokenMaker(s source, cmd *cobra.Command, keep bool, create func(ctx context.Context, c admin.Caller) (created any, token string, err error)) *cobra.Command {
	asJSON := jsonFlag(cmd)
	existing := "replaced if it exists"
	if keep {
		existing = "if it exists, create nothing"
	}
	file := cmd.Flags().String("token-file", "", "write the token to this file, which only its owner can read, instead of printing it; "+existing)
	newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		if *file != "" {
			return writeSecret(*file, func() (string, error) {
				_, token, err := create(ctx, c)
				return token, err
			})
		}
		created, token, err := create(ctx, c)
		if err != nil {
			return err
		}
		return printSecret(cmd, *asJSON, created, token)
	})
	administer := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *file == "" {
			return administer(cmd, args)
		}
		switch _, err := os.Stat(*file); {
		case *asJSON:
			return program.Usage(errors.New("--json prints the token, which --token-file writes to a file: use one of them"))
		case err == nil && keep:
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "The file %s exists, so nothing was created.\n", *file)
			return err
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("--token-file: %w", err)
		}
		return administer(cmd, args)
	}
	return cmd
}

// writeSecret writes a new secret to a file that only its owner can read. It begins the file first, because what has
// no place must not be created.
func writeSecret(path string, create func() (string, error)) error {
	draft, err := renameio.NewPendingFile(path, renameio.WithStaticPermissions(0o600), renameio.WithTempDir(filepath.Dir(path)))
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	secret, err := create()
	if err == nil {
		_, err = fmt.Fprintln(draft, secret)
	}
	if err != nil {
		return errors.Join(err, draft.Cleanup())
	}
	return draft.CloseAtomicallyReplace()
}
