package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"workflowagent/internal/server"
	"workflowagent/internal/settings/conffile"
)

// examineTime bounds the examination: the owner of the database can replace it by a file that never ends.
const examineTime = time.Minute

// newUntouchedCommand returns the command with which configure, as root, examines the database of another user.
func newUntouchedCommand() *cobra.Command {
	return &cobra.Command{
		Use: "untouched FILE", Short: "Print whether a SQLite database has no data of users", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			untouched, err := server.Untouched(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), untouched)
			return err
		},
	}
}

// isUntouched returns [server.Untouched]. As root, it runs this program again, because a process that has become the
// owner of the database cannot write the configuration file.
func isUntouched(ctx context.Context, path string) (bool, error) {
	if os.Geteuid() != 0 {
		return server.Untouched(ctx, path)
	}
	return examine(ctx, conffile.Program(), path, examineTime)
}

// examine runs a program that examines a database, for at most the time limit.
func examine(ctx context.Context, program, path string, limit time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "untouched", "--", path)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return false, fmt.Errorf("examining the database %s: %w", path, ctx.Err())
	}
	if err != nil {
		return false, fmt.Errorf("examining the database %s: %w", path, err)
	}
	return strconv.ParseBool(strings.TrimSpace(string(out)))
}
