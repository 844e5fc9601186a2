package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/retry"
	"workflowagent/internal/server"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/config"
	"workflowagent/internal/sys/boundedfile"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
)

func newBackupCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup DIR",
		Short: "Write a backup to a directory while the server runs",
		Long: `Write a backup of the whole installation to a new directory in DIR: all rows, states and logs,
as they are at one time. The server continues to work, and no client waits. Files that have not
changed since the last backup in DIR need no further space.

The master key, without which the secrets in the backup cannot be decrypted, is not in the backup
unless --key-passphrase-file, or the setting backup_passphrase_file, names a passphrase that seals it.
Only the server's user may have access to DIR.

` + through,
		Example: `  workflow-server backup /var/lib/workflow-server/backups --keep 14
  workflow-server backup /mnt/backups --key-passphrase-file /root/backup-passphrase
  workflow-server backup list
  workflow-server backup verify /mnt/backups`,
		Args: operator.OneArg("the directory of the backups"),
	}
	asJSON := jsonFlag(cmd)
	keep := cmd.Flags().Int("keep", 0, "number of backups in DIR to keep; older ones are removed (0 keeps all)")
	file := cmd.Flags().String("key-passphrase-file", "", "file with the passphrase that seals the master key in the backup")
	load := s.flags(cmd, "data_dir", "database", "master_key_file")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *keep < 0 {
			return program.Usage(errors.New("--keep must not be negative"))
		}
		dir, err := filepath.Abs(args[0])
		if err != nil {
			return fmt.Errorf("finding the directory of the backups: %w", err)
		}
		passphrase, err := readPassphrase(*file)
		if err != nil {
			return err
		}
		return administerWith(cmd, load, server.AdministerAlone, func(ctx context.Context, cfg config.Config, c admin.Caller) error {
			q := admin.NewBackup{Dir: dir, Keep: *keep, Passphrase: cmp.Or(passphrase, cfg.BackupPassphrase.Reveal())}
			b, err := writeBackup(ctx, c, q, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if *asJSON {
				return operator.PrintJSON(cmd.OutOrStdout(), b)
			}
			return printBackup(cmd, b)
		})
	}
	cmd.AddCommand(newBackupListCommand(s), newVerifyCommand())
	return cmd
}

// listed is a backup in the output of a list.
type listed struct {
	Path   string     `json:"path"`
	Time   *time.Time `json:"time,omitempty"`
	Server string     `json:"server,omitempty"`
	Engine string     `json:"engine,omitempty"`
	Rows   int64      `json:"rows"`
	Blobs  int64      `json:"blobs"`
	Bytes  int64      `json:"bytes"`
	Key    bool       `json:"key"`
	// Problem says why nothing else is known, or that the backup is from the future.
	Problem string `json:"problem,omitempty"`
}

func newBackupListCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [DIR]",
		Short: "List the backups in a directory",
		Long: `List the backups in DIR, the oldest first. Without DIR, those in the directory of the setting
backup_directory. The command needs neither a server nor a database, and does not verify the backups.`,
		Example: `  workflow-server backup list
  workflow-server backup list /mnt/backups --json`,
		Args: cobra.MaximumNArgs(1),
	}
	asJSON := jsonFlag(cmd)
	load := s.flags(cmd, "data_dir", "backup_directory")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var dir string
		if len(args) == 1 {
			dir = args[0]
		} else {
			cfg, err := load()
			if err != nil {
				return err
			}
			dir = cfg.Backups().Dir
		}
		found, err := backup.List(dir)
		if len(args) == 0 && errors.Is(err, fs.ErrNotExist) {
			err = nil // the server creates the directory with its first backup
		}
		if err != nil {
			return err
		}
		if len(found) == 0 && !*asJSON {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s contains no backups\n", dir)
		}
		list := []listed{}
		for _, e := range found {
			l := listed{Path: e.Path}
			if e.Problem != nil {
				l.Problem = termtext.OneLine(e.Problem.Error(), 0)
			}
			if m := e.Manifest; m.Format != 0 {
				l.Time, l.Server, l.Engine, l.Rows, l.Blobs, l.Bytes, l.Key = &m.Time, m.Server, m.Engine, m.Rows(), m.Blobs.Count, m.Size(), m.Key != nil
			}
			list = append(list, l)
		}
		return printBackups(cmd, list, *asJSON)
	}
	return cmd
}

func printBackups(cmd *cobra.Command, list []listed, asJSON bool) error {
	if asJSON {
		return operator.PrintJSON(cmd.OutOrStdout(), list)
	}
	var rows [][]string
	for _, l := range list {
		if l.Time == nil {
			rows = append(rows, []string{l.Path, "", "", "", "", "", "", l.Problem})
			continue
		}
		key := "no"
		if l.Key {
			key = "sealed"
		}
		rows = append(rows, []string{l.Path, at(l.Time), words.Bytes(l.Bytes), number(l.Rows), number(l.Blobs), key, l.Server, l.Problem})
	}
	return operator.PrintTable(cmd.OutOrStdout(), "BACKUP|TIME|SIZE|ROWS|FILES|MASTER KEY|SERVER|PROBLEM", rows)
}

// progressEvery is the interval between two lines about a long backup.
const progressEvery = 10 * time.Second

// writeBackup runs the operation, and prints its progress.
func writeBackup(ctx context.Context, c admin.Caller, q admin.NewBackup, progress io.Writer) (b admin.Backup, err error) {
	group, ctx := errgroup.WithContext(ctx)
	working, done := context.WithCancel(ctx)
	group.Go(func() error {
		defer done()
		b, err = admin.WriteBackup.Do(ctx, c, q)
		return err
	})
	group.Go(func() error {
		for retry.Sleep(working, progressEvery) == nil {
			p, err := admin.BackupProgress.Do(working, c, admin.None{})
			if err == nil && p.Running {
				fmt.Fprintf(progress, "%d rows and %d files (%s) written\n", p.Rows, p.Blobs, words.Bytes(p.Bytes))
			}
		}
		return nil
	})
	return b, group.Wait()
}

func printBackup(cmd *cobra.Command, b admin.Backup) error {
	for _, problem := range b.Problems {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+problem)
	}
	if len(b.Missing) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: the installation has lost the content of states; the first of them is %s: find out what has removed it, and restore these stacks from an earlier backup\n", b.Missing[0])
	}
	key := "It does not contain the master key: keep a copy of that elsewhere."
	if b.Key {
		key = "It contains the master key, sealed with the passphrase."
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "Wrote %s: %d rows, and %d files with states and logs (%s), of which %d have not changed since the last backup.\n%s\n",
		b.Path, b.Rows, b.Blobs, words.Bytes(b.Bytes), b.Linked, key)
	return err
}

func newVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check that a backup is whole",
		Long: `Read a whole backup, compare everything with its hash, and its tables with the schema that this
program creates. DIR is a backup, or a directory of backups, of which the newest is checked. The
command prints whether the backup contains the sealed master key. With --key-passphrase-file, it
also checks that the passphrase opens this key, and that the key opens the secrets of the backup.
It needs neither a server nor a database.`,
		Example: `  workflow-server backup verify /mnt/backups
  workflow-server backup verify /mnt/backups --key-passphrase-file /root/backup-passphrase
  workflow-server backup verify /mnt/backups/2026-11-29T14-05-00Z --json`,
		Args: operator.OneArg("the directory of the backup"),
	}
	asJSON := jsonFlag(cmd)
	file := cmd.Flags().String("key-passphrase-file", "", "file with the passphrase of the master key in the backup")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		passphrase, err := readPassphrase(*file)
		if err != nil {
			return err
		}
		report, err := backup.Verify(cmd.Context(), args[0], passphrase)
		if err != nil {
			return err
		}
		m := report.Manifest
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), m)
		}
		key := "It does not contain the master key: keep a copy of that elsewhere."
		switch {
		case passphrase != "":
			key = "The passphrase opens its master key, and the key opens its secrets."
		case m.Key != nil:
			key = "It contains the master key, sealed with a passphrase, which was not checked: --key-passphrase-file checks it."
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is whole: %d rows, and %d files with states and logs (%s), of %s, written by workflow-server %s on %s.\n%s\n",
			report.Path, m.Rows(), m.Blobs.Count, words.Bytes(m.Blobs.Bytes), m.Time.Format(time.RFC3339), m.Server, m.Engine, key)
		return err
	}
	return cmd
}

func newRestoreCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore DIR",
		Short: "Restore a backup to an empty data directory or database",
		Long: `Verify a backup, and restore it to an empty data directory, or to an empty PostgreSQL database. DIR
is a backup, or a directory of backups, of which the newest is restored. The backup can be of a
server with another kind of database, and of an older version.

The server must not run. Start it afterwards: it then updates the schema of an older backup. If the
backup contains the master key, --key-passphrase-file opens it. Otherwise, put the installation's
key into its file before. Without the key, the command restores nothing, unless you permit it with
--without-key.`,
		Example: `  workflow-server restore /mnt/backups --data-dir /var/lib/workflow-server
  workflow-server restore /mnt/backups --key-passphrase-file /root/backup-passphrase`,
		Args: operator.OneArg("the directory of the backup"),
	}
	file := cmd.Flags().String("key-passphrase-file", "", "file with the passphrase of the master key in the backup")
	withoutKey := cmd.Flags().Bool("without-key", false, "restore although the master key is missing; the server needs it to start")
	load := s.flags(cmd, "data_dir", "database", "master_key_file")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		passphrase, err := readPassphrase(*file)
		if err != nil {
			return err
		}
		r, err := server.Restore(cmd.Context(), cfg, cmd.Root().Version, server.RestoreRequest{Dir: args[0], Passphrase: passphrase, WithoutKey: *withoutKey}, newLog(cfg, cmd.ErrOrStderr()))
		if err != nil {
			return err
		}
		if !r.Key && *withoutKey {
			sealed := ""
			if r.Manifest.Key != nil {
				sealed = fmt.Sprintf(", which age --decrypt reads from %s with its passphrase", filepath.Join(r.Path, "master-key.age"))
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: the master key is missing: before you start the server, put that of the installation into %s%s; if it is lost, workflow-server secrets discard gives up all secrets\n", cfg.MasterKey(), sealed)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Restored %s: the installation is in the state of %s.\nIts server starts paused. Start it, see what to check with workflow-server restore status, and let it work again with workflow-server restore release --all.\n", r.Path, r.Manifest.Time.Format(time.RFC3339))
		return err
	}
	cmd.AddCommand(newReleaseCommand(s), newRestoreStatusCommand(s), newRevokeTokensCommand(s))
	return cmd
}

func newReleaseCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release [ORGANIZATION]",
		Short: "Let a restored server work again",
		Long: `Resume the deployments of an organization, or of all with --all, that a restore has paused. Schedules,
pushes, pull requests, webhooks and reports resume when the last organization was released.

` + through,
		Example: `  workflow-server restore release --all
  workflow-server restore release research`,
		Args: cobra.MaximumNArgs(1),
	}
	asJSON := jsonFlag(cmd)
	all := cmd.Flags().Bool("all", false, "release all organizations")
	release := newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		r, err := admin.ReleaseRestored.Do(ctx, c, admin.ReleaseOf{Organization: cmd.Flags().Arg(0)})
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), r)
		}
		rest := "The restored server works again."
		if len(r.Remaining) > 0 {
			rest = "Paused until their release: " + strings.Join(r.Remaining, ", ") + "."
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Released %s. %s\n", strings.Join(r.Released, ", "), rest)
		return err
	})
	release.PreRunE = func(_ *cobra.Command, args []string) error {
		if *all == (len(args) == 1) {
			return program.Usage(errors.New("name one organization, or all with --all"))
		}
		return nil
	}
	return release
}

const maxPassphrase = 4096

// readPassphrase returns the content of a file, or "" if no file is named.
func readPassphrase(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("reading the passphrase: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", program.Usage(fmt.Errorf("other users may read the passphrase in %s: run chmod 600 %s", path, path))
	}
	data, err := boundedfile.Read(path, maxPassphrase)
	if err != nil {
		return "", fmt.Errorf("reading the passphrase: %w", err)
	}
	passphrase := strings.TrimSpace(string(data))
	if passphrase == "" {
		return "", program.Usage(fmt.Errorf("the file %s contains no passphrase", path))
	}
	return passphrase, nil
}
