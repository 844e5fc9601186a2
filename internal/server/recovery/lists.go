package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

const (
	// unfinishedName is the name of the installation's value with the deployments that had not ended in the backup.
	unfinishedName = "restored-deployments"
	// maxUnfinished bounds the deployments that are listed.
	maxUnfinished = 2000
)

// unfinished are the deployments that had not ended at the time of the backup.
type unfinished struct {
	Listed []listed `json:"listed"`
	More   int      `json:"more"` // number of those that are not listed
}

type listed struct {
	ID  string          `json:"id"`
	Was workflow.Status `json:"was"`
}

func listUnfinished(tx *store.Tx) error {
	var all unfinished
	for after := ""; ; {
		found, err := tx.Unfinished(after, piece)
		if err != nil {
			return err
		}
		for _, u := range found {
			after = u.JobID
			if len(all.Listed) < maxUnfinished {
				all.Listed = append(all.Listed, listed{u.DeploymentID, u.Status})
			} else {
				all.More++
			}
		}
		if len(found) < piece {
			break
		}
	}
	value, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encoding the deployments that may have run: %w", err)
	}
	return tx.SetInstallation(unfinishedName, value)
}

// Deployment is a deployment that had not ended at the time of the backup: what became of it since, only its agent and
// the infrastructure can tell.
type Deployment struct {
	store.DeploymentJob
	Was workflow.Status // at the time of the backup
}

// Unfinished is like the function of this name.
func (s *Service) Unfinished(ctx context.Context, orgID string) (list []Deployment, more int, err error) {
	return Unfinished(ctx, s.db, orgID)
}

// Unfinished returns the deployments of an organization, or of all if orgID is "", that had not ended at the time of the
// backup, and the number of further ones, of all organizations, that are not listed.
func Unfinished(ctx context.Context, db *store.DB, orgID string) (list []Deployment, more int, err error) {
	err = db.Read(ctx, func(tx *store.Tx) error {
		list, more = nil, 0
		value, err := tx.Installation(unfinishedName)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		var all unfinished
		if err := json.Unmarshal(value, &all); err != nil {
			return fmt.Errorf("reading the deployments that may have run: %w", err)
		}
		more = all.More
		for _, l := range all.Listed {
			d, err := tx.DeploymentSummary(l.ID)
			if errors.Is(err, store.ErrNotFound) {
				continue // deleted with its organization
			}
			if err != nil {
				return err
			}
			if orgID == "" || d.OrgID == orgID {
				list = append(list, Deployment{d, l.Was})
			}
		}
		return nil
	})
	return list, more, err
}

// StateOf returns the time of the backup from which the state of a stack is, or the zero time if the installation was not
// restored, or if an update or refresh of the stack has succeeded since.
func (s *Service) StateOf(ctx context.Context, st store.Stack) (backup time.Time, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		backup = time.Time{}
		r, err := load(tx)
		if err != nil || r == nil || st.StateBlob == "" {
			return err
		}
		updated, err := tx.UpdatedSince(st.ID, r.Restored)
		if err == nil && !updated {
			backup = r.Backup
		}
		return err
	})
	return backup, err
}
