package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/audit"
)

func newRestoreStatusCommand(s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what to check before a restored server works again",
		Long: `Show which organizations a restore has paused, which deployments can have run since the backup, and
which access tokens of the backup are valid. Tokens that were revoked since the backup are valid
again: with --audit-log, a JSON export of the lost installation's audit log, the list marks them.

` + through,
		Example: `  workflow-server restore status
  workflow-server restore status --audit-log audit.jsonl
  workflow-server restore status --json`,
		Args: operator.NoArgs,
	}
	asJSON := jsonFlag(cmd)
	file := cmd.Flags().String("audit-log", "", "file with the audit log of the lost installation, as JSON lines")
	_ = cmd.MarkFlagFilename("audit-log", "jsonl") // fails only for an undefined flag
	return newAdministration(s, cmd, func(ctx context.Context, c admin.Caller) error {
		revoked, err := readRevoked(*file)
		if err != nil {
			return err
		}
		r, err := admin.RestoreStatus.Do(ctx, c, admin.None{})
		if err != nil {
			return err
		}
		tokens, err := admin.All(ctx, c, admin.ListTokens, admin.TokensOf{InBackup: true}, admin.TokensOf.Next)
		if err != nil {
			return err
		}
		if *asJSON {
			return operator.PrintJSON(cmd.OutOrStdout(), restoreStatus(r, tokens, revoked))
		}
		return printRestore(cmd.OutOrStdout(), r, tokens, revoked)
	})
}

// restoredToken is a valid token of a restored installation.
type restoredToken struct {
	admin.Token
	// Revoked says that the lost installation had revoked the token.
	Revoked bool `json:"revokedSinceBackup,omitempty"`
}

func restoreStatus(r admin.Restore, tokens []admin.Token, revoked map[string]time.Time) any {
	out := struct {
		admin.Restore
		Tokens []restoredToken `json:"tokens"`
	}{r, []restoredToken{}}
	for _, t := range tokens {
		_, gone := revoked[t.ID]
		out.Tokens = append(out.Tokens, restoredToken{t, gone})
	}
	return out
}

func printRestore(w io.Writer, r admin.Restore, tokens []admin.Token, revoked map[string]time.Time) error {
	if !r.Restored {
		_, err := fmt.Fprintln(w, "The installation was not restored from a backup.")
		return err
	}
	paused := "No organization is paused by the restore."
	switch {
	case !r.Started:
		paused = "Its server has not started since."
	case len(r.Paused) > 0:
		paused = "Paused until their release: " + strings.Join(r.Paused, ", ") + "."
	}
	fmt.Fprintf(w, "The installation was restored from the backup of %s.\n%s\n", at(r.Backup), paused)
	if len(r.Deployments) > 0 {
		fmt.Fprintln(w, "\nThese deployments had not ended at the time of the backup, and can have run since. Check each, and start it again if it has not run:")
		var rows [][]string
		for _, d := range r.Deployments {
			rows = append(rows, []string{d.Organization + "/" + d.Project + "/" + d.Stack, strconv.FormatInt(d.Version, 10), d.Operation, d.Was, strings.TrimSpace(d.Status + " " + d.Reason)})
		}
		if err := operator.PrintTable(w, "STACK|DEPLOYMENT|OPERATION|IN THE BACKUP|NOW", rows); err != nil {
			return err
		}
		if r.MoreDeployments > 0 {
			fmt.Fprintf(w, "and %d more\n", r.MoreDeployments)
		}
	}
	if len(tokens) == 0 {
		_, err := fmt.Fprintln(w, "\nNo token of the backup is valid.")
		return err
	}
	fmt.Fprintln(w, "\nThese tokens of the backup are valid, also those that were revoked since. Revoke those with: workflow-server token revoke ID; or all with: workflow-server restore revoke-tokens --all")
	var rows [][]string
	for _, t := range tokens {
		gone := ""
		if when, ok := revoked[t.ID]; ok {
			gone = at(&when)
		}
		kind := t.Kind
		if t.Exchanged {
			kind += ", exchanged"
		}
		rows = append(rows, []string{t.ID, kind, holder(t), cmp.Or(t.Description, t.Name), at(&t.Created), at(t.LastUsed), gone})
	}
	return operator.PrintTable(w, "ID|KIND|OF|DESCRIPTION|CREATED|LAST USED|REVOKED", rows)
}

// maxAuditLine bounds an entry of an audit log.
const maxAuditLine = 1 << 20

// readRevoked returns the times at which tokens were revoked, by their ids, from an audit log; "" names none.
func readRevoked(path string) (map[string]time.Time, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer f.Close()
	revoked := map[string]time.Time{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxAuditLine)
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var e struct {
			Time      time.Time
			Action    audit.Action
			SubjectID string
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Action == "" {
			return nil, program.Usage(fmt.Errorf("line %d of %s is no entry of an audit log: export the log as JSON, not as CSV", n, path))
		}
		if e.Action == audit.TokenRevoked {
			revoked[e.SubjectID] = e.Time
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, program.Usage(fmt.Errorf("%s is no audit log: it has a line of more than 1 MiB", path))
	} else if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	return revoked, nil
}
