package admin

import (
	"context"
	"time"

	"workflowagent/internal/server/recovery"
)

var (
	// RestoreStatus says what a restored installation waits for, and what to check before its release.
	RestoreStatus = Operation[None, Restore]{"restore-status", (*Service).restoreStatus}
	// RevokeRestored revokes the tokens of the backup from which the installation was restored.
	RevokeRestored = Operation[RestoredTokens, recovery.Revoked]{"restore-revoke-tokens", (*Service).revokeRestored}
)

// RestoredTokens selects tokens of a backup by their kinds, of which at least one is needed.
type RestoredTokens struct {
	Kinds []recovery.TokenKind `json:"kinds"`
}

func (s *Service) revokeRestored(ctx context.Context, q RestoredTokens) (recovery.Revoked, error) {
	return recovery.RevokeTokens(ctx, s.db, s.revoker(), operator, "", q.Kinds)
}

// Restore is the state of an installation that was restored. If it was not, only Restored is set.
type Restore struct {
	Restored bool       `json:"restored"`
	Backup   *time.Time `json:"backup,omitempty"` // time of the backup
	At       *time.Time `json:"restoredAt,omitempty"`
	// Started is set once a server has prepared the installation.
	Started bool `json:"started"`
	// Paused are the organizations that wait for their release.
	Paused   []string `json:"paused"`
	Released []string `json:"released"`
	// Deployments had not ended at the time of the backup.
	Deployments []RestoredDeployment `json:"deployments"`
	// MoreDeployments is the number of further ones, which are not listed.
	MoreDeployments int `json:"moreDeployments"`
}

// RestoredDeployment is a deployment that had not ended at the time of the backup, and can have run since.
type RestoredDeployment struct {
	ID           string `json:"id"`
	Organization string `json:"organization"`
	Project      string `json:"project"`
	Stack        string `json:"stack"`
	Version      int64  `json:"version"`
	Operation    string `json:"operation"`
	Was          string `json:"statusInBackup"`
	Status       string `json:"status"`
	Reason       string `json:"reason,omitempty"`
}

func (s *Service) restoreStatus(ctx context.Context, _ None) (Restore, error) {
	out := Restore{Paused: []string{}, Released: []string{}, Deployments: []RestoredDeployment{}}
	r, err := recovery.Read(ctx, s.db)
	if err != nil || r == nil {
		return out, err
	}
	out.Restored, out.Backup, out.At, out.Started = true, &r.Backup, &r.Restored, r.Prepared
	orgs := map[string]string{}
	for _, o := range r.Organizations {
		orgs[o.ID] = o.Name
		if o.Released.IsZero() {
			out.Paused = append(out.Paused, o.Name)
		} else {
			out.Released = append(out.Released, o.Name)
		}
	}
	list, more, err := recovery.Unfinished(ctx, s.db, "")
	if err != nil {
		return out, err
	}
	out.MoreDeployments = more
	for _, d := range list {
		out.Deployments = append(out.Deployments, RestoredDeployment{
			ID: d.ID, Organization: orgs[d.OrgID], Project: d.Project, Stack: d.Stack, Version: d.Version, Operation: string(d.Operation),
			Was: string(d.Was), Status: string(d.Job.Status), Reason: string(d.Job.Reason),
		})
	}
	return out, nil
}
