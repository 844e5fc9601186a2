package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"workflowagent/internal/server/store/database"
)

// brief is what lists and searches read of a deployment's configuration, which can be a megabyte long.
type brief struct {
	DeploymentID string
	Branch       string
	CommitID     string
	Remediates   bool // the deployment remediates the drift that it detects
}

var briefs = database.NewTable[brief]("deployment_briefs b")

// The maximum sizes of the texts of a brief, in bytes.
const (
	maxBriefBranch = 800
	maxBriefCommit = 200
)

// briefOf returns the brief of a configuration, and whether it contains anything.
func briefOf(deploymentID, configuration string) (b brief, ok bool) {
	var settings struct {
		SourceContext struct {
			Git struct{ Branch, Commit string }
		}
		OperationContext struct {
			Options struct{ RemediateIfDriftDetected bool }
		}
	}
	if json.Unmarshal([]byte(configuration), &settings) != nil {
		return b, false
	}
	git := settings.SourceContext.Git
	b = brief{
		Branch: cutOff(git.Branch, maxBriefBranch), CommitID: cutOff(git.Commit, maxBriefCommit),
		Remediates: settings.OperationContext.Options.RemediateIfDriftDetected,
	}
	ok = b != (brief{})
	b.DeploymentID = deploymentID
	return b, ok
}

// cutOff returns the longest beginning of a text that has at most limit bytes and whole characters.
func cutOff(text string, limit int) string {
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return text
}

// briefsPerRead is the number of configurations that addBriefs holds at once.
const briefsPerRead = 50

// addBriefs adds the briefs of the deployments that earlier versions have stored. SQL for both engines
// cannot read JSON.
func addBriefs(ctx context.Context, tx *sql.Tx, _ bool) error {
	for after := ""; ; {
		found, n, last, err := readBriefs(ctx, tx, after)
		if err != nil {
			return fmt.Errorf("reading the configurations of deployments: %w", err)
		}
		after = last
		for _, b := range found {
			remediates := 0
			if b.Remediates {
				remediates = 1
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO deployment_briefs (deployment_id, branch, commit_id, remediates) VALUES ($1, $2, $3, $4)",
				b.DeploymentID, b.Branch, b.CommitID, remediates)
			if err != nil {
				return fmt.Errorf("adding what lists read of deployment %s: %w", b.DeploymentID, err)
			}
		}
		if n < briefsPerRead {
			return nil
		}
	}
}

// readBriefs reads the configurations of the deployments that follow an id. It returns their briefs, the
// number of deployments, and the last id.
func readBriefs(ctx context.Context, tx *sql.Tx, after string) (found []brief, n int, last string, err error) {
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT id, configuration FROM deployments WHERE id > $1 ORDER BY id LIMIT %d", briefsPerRead), after)
	if err != nil {
		return nil, 0, "", err
	}
	defer rows.Close()
	for rows.Next() {
		var configuration string
		if err := rows.Scan(&last, &configuration); err != nil {
			return nil, 0, "", err
		}
		n++
		if b, ok := briefOf(last, configuration); ok {
			found = append(found, b)
		}
	}
	return found, n, last, rows.Err()
}
