package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// VCSReport is what a forge is to show: the status of a stack or of a whole commit, or the comment
// of a pull request, which has neither commit nor context.
type VCSReport struct {
	ID                    string
	IntegrationID, RepoID string
	Pull                  int64 // 0 for pushes and tags
	CommitID, Context     string
	StackID               string // of the status of a stack
	Note                  string // see package outbox
	RemoteID              string // the forge's id of what it shows, or ""
	Wanted, Sent          int64  // number of the newest change, and of the newest that the forge knows
	Failures              int64  // since the last success
	Error                 string // of the last attempt, or ""
	WantedAt              time.Time
	TryAt                 time.Time
	SentAt                time.Time
	OrgID                 string `db:"-" read:"(SELECT i.org_id FROM vcs_integrations i JOIN vcs_repos o ON o.integration_id = i.id WHERE o.id = r.repo_id)"`
}

var vcsReports = database.NewTable[VCSReport]("vcs_reports r")

// CheckoutsOfPull returns the newest checkouts for a pull request, at most limit, the newest first.
func (tx *Tx) CheckoutsOfPull(repoID string, pull int64, limit int) ([]VCSCheckout, error) {
	return vcsCheckouts.All(tx.Tx, fmt.Sprintf(`JOIN deployments d ON d.id = c.deployment_id
		WHERE c.repo_id = $1 AND c.pull = $2 AND c.pull > 0 ORDER BY d.created_at DESC, d.version DESC, d.id LIMIT %d`, limit), repoID, pull)
}

// CheckoutsOfCommit returns the newest checkouts of a commit for a pull request, or for pushes if
// pull is 0, at most limit, the newest first.
func (tx *Tx) CheckoutsOfCommit(repoID string, pull int64, commit string, limit int) ([]VCSCheckout, error) {
	return vcsCheckouts.All(tx.Tx, fmt.Sprintf(`JOIN deployments d ON d.id = c.deployment_id
		WHERE c.repo_id = $1 AND c.commit_id = $2 AND c.pull = $3 ORDER BY d.created_at DESC, d.version DESC, d.id LIMIT %d`, limit), repoID, commit, pull)
}

// VCSReport returns a report by its id.
func (tx *Tx) VCSReport(id string) (VCSReport, error) {
	return vcsReports.One(tx.Tx, "WHERE r.id = $1", id)
}

// VCSReportOf returns the report with the same subject as r, or [ErrNotFound].
func (tx *Tx) VCSReportOf(r VCSReport) (VCSReport, error) {
	return vcsReports.One(tx.Tx, "WHERE r.repo_id = $1 AND r.pull = $2 AND r.commit_id = $3 AND r.context = $4", r.RepoID, r.Pull, r.CommitID, r.Context)
}

// InsertVCSReport adds a report.
func (tx *Tx) InsertVCSReport(r VCSReport) error { return vcsReports.Insert(tx.Tx, r) }

// WantVCSReport records that the report with the subject of r has changed, and adds it if necessary. Its
// note changes only if note is not nil. The change commutes with the others.
func (tx *Tx) WantVCSReport(r VCSReport, note *string) error {
	set := ""
	if r.Wanted = 1; note != nil {
		r.Note, set = *note, ", note = excluded.note"
	}
	return vcsReports.Merge(tx.Tx, r, "repo_id, pull, commit_id, context", `wanted = vcs_reports.wanted + 1, wanted_at = excluded.wanted_at,
		try_at = CASE WHEN vcs_reports.try_at < excluded.try_at THEN excluded.try_at ELSE vcs_reports.try_at END`+set)
}

// SaveVCSReport writes the outcome of an attempt to send a report. Changes of the report since the
// attempt remain.
func (tx *Tx) SaveVCSReport(r VCSReport) error {
	_, err := tx.Exec(`UPDATE vcs_reports SET remote_id = $2, sent = $3, failures = $4, error = $5, sent_at = $6,
		try_at = CASE WHEN try_at < $7 THEN $7 ELSE try_at END WHERE id = $1`, r.ID, r.RemoteID, r.Sent, r.Failures, r.Error, r.SentAt, r.TryAt)
	return err
}

// WantVCSReports records that a stack's deployment of a commit has changed: in the reports on the
// stack, on the whole commit, whose context is aggregate, and in the comment of the pull request. Writes of
// several stacks change the comment and the report on the whole commit at the same time, so all lock the
// comment first, then the report on the whole commit.
func (tx *Tx) WantVCSReports(c VCSCheckout, stackID, aggregate string, now, due time.Time) error {
	_, err := tx.Exec(`UPDATE vcs_reports SET wanted = wanted + 1, wanted_at = $1, try_at = CASE WHEN try_at < $2 THEN $2 ELSE try_at END
		WHERE id IN (SELECT id FROM vcs_reports
			WHERE repo_id = $3 AND pull = $4 AND (commit_id = $5 AND (stack_id = $6 OR context = $7) OR commit_id = '')
			ORDER BY CASE WHEN commit_id = '' THEN 0 WHEN context = $7 THEN 1 ELSE 2 END, id`+tx.InOrder("vcs_reports")+")",
		now, due, c.RepoID, c.Pull, c.CommitID, stackID, aggregate)
	return err
}

// DueVCSIntegrations returns the integrations with due reports.
func (tx *Tx) DueVCSIntegrations(now time.Time) ([]string, error) {
	return database.Scalars[string](tx.Tx, "SELECT DISTINCT integration_id FROM vcs_reports WHERE wanted > sent AND try_at <= $1 ORDER BY integration_id", now)
}

// DueVCSReport returns the report of an integration that is due first, or [ErrNotFound].
func (tx *Tx) DueVCSReport(integrationID string, now time.Time) (VCSReport, error) {
	return vcsReports.One(tx.Tx, "WHERE r.wanted > r.sent AND r.integration_id = $1 AND r.try_at <= $2 ORDER BY r.try_at, r.id LIMIT 1", integrationID, now)
}

// LastVCSReport returns the time of the last report that an integration's forge accepted, or the
// zero time.
func (tx *Tx) LastVCSReport(integrationID string) (time.Time, error) {
	at, err := database.Scalar[int64](tx.Tx, "SELECT COALESCE(MAX(sent_at), 0) FROM vcs_reports WHERE integration_id = $1", integrationID)
	if err != nil || at == 0 {
		return time.Time{}, err
	}
	return time.UnixMicro(at).UTC(), nil
}

// PostponeVCSReports makes no report of an integration due before a time, except those that other writes
// change at this moment. It does not wait for them, because it changes reports in any order.
func (tx *Tx) PostponeVCSReports(integrationID string, until time.Time) error {
	_, err := tx.Exec(`UPDATE vcs_reports SET try_at = $1 WHERE id IN (SELECT id FROM vcs_reports
		WHERE integration_id = $2 AND wanted > sent AND try_at < $1`+tx.SkipLocked()+")", until, integrationID)
	return err
}

// DeleteOldVCSReports removes up to limit reports that have not changed since a time, and returns
// their number.
func (tx *Tx) DeleteOldVCSReports(before time.Time, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf("DELETE FROM vcs_reports WHERE id IN (SELECT id FROM vcs_reports WHERE wanted_at < $1 LIMIT %d%s)", limit, tx.SkipLocked()), before)
}
