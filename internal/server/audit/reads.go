package audit

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"workflowagent/internal/server/store"
)

// period is the time whose reads share an entry. It begins at the full hour of UTC.
const period = time.Hour

// Read is a read of secrets to record.
type Read struct {
	OrgID   string
	Action  Action
	Subject Subject
	// Name is what the read names, such as a version, or "". It must not be a secret.
	Name string
	// Detail is that of the first read.
	Detail map[string]any
	// DeploymentID is the deployment whose job makes the read, or "". All reads of its jobs share an
	// entry per subject and action, whenever they are made.
	DeploymentID string
}

// RecordRead counts a read in the entry for the token, the subject, the action and the hour, and adds
// that entry if it does not exist. Secrets may leave the server only after the transaction has committed.
//
// The id of the entry follows from what the reads have in common, so that reads on several servers meet in
// the primary key. No read looks for the entry first, because such writes conflict more on PostgreSQL.
func RecordRead(ctx context.Context, tx *store.Tx, r Read) error {
	row, err := rowOf(ctx, tx, Entry{OrgID: r.OrgID, Action: r.Action, Subject: r.Subject, Detail: r.Detail})
	if err != nil {
		return err
	}
	reader := []string{"token", row.ActorKind, row.ActorID, row.TokenID, row.At.UTC().Truncate(period).Format(time.RFC3339)}
	if r.DeploymentID != "" {
		reader = []string{"deployment", r.DeploymentID}
	}
	key := slices.Concat(reader, []string{row.OrgID, row.Action, row.SubjectKind, row.SubjectID})
	row.ID = uuid.NewSHA1(uuid.NameSpaceOID, []byte(strings.Join(key, "\x00"))).String()
	row.Names = strings.ReplaceAll(line(r.Name), ", ", "; ") // a comma separates names
	return tx.CountRead(row)
}
