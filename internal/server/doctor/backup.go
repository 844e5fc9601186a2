package doctor

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"workflowagent/internal/checkup"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/words"
)

// unplanned is the age up to which a backup counts that the server has not written by its schedule.
const unplanned = 8 * 24 * time.Hour

// checkBackup checks that the installation is backed up.
func (e *examination) checkBackup(ctx context.Context) checkup.Result {
	if e.db == nil {
		return checkup.Skip("no server has set up the database yet")
	}
	status, err := backup.ReadStatus(ctx, e.db)
	if err != nil {
		return fail(databaseFailed, err.Error(), "check the log of the database")
	}
	found := "no backup was written yet"
	if last := status.Last; last != nil {
		found = fmt.Sprintf("the last backup is %s old: %s, with %s", words.Duration(time.Since(last.Time)), last.Path, words.Bytes(last.Bytes))
	}
	if e.cfg.BackupSchedule == "" {
		return e.judgeUnplanned(status.Last, found)
	}
	return e.judgePlanned(status, found)
}

func (e *examination) judgeUnplanned(last *backup.Written, found string) checkup.Result {
	switch u, err := url.Parse(e.cfg.ExternalURL); {
	case last != nil && time.Since(last.Time) < unplanned:
		return checkup.OK(found)
	case err != nil || e.cfg.ExternalURL == "" || protocol.IsLoopback(u.Host):
		return checkup.Skip("the server is only for this machine, and backup_schedule is not set")
	}
	return warn(backupMissing, found+", and backup_schedule is not set", "set backup_schedule, such as to 0 3 * * *, and copy the backups to another machine")
}

func (e *examination) judgePlanned(status backup.Status, found string) checkup.Result {
	if failure := status.Failing(); failure != nil {
		return warn(backupFailed, "the backup of "+words.Clock(failure.Time)+" failed: "+failure.Error, "solve the problem: the server tries again at least once an hour", found)
	}
	if status.Last == nil {
		if !e.running {
			return checkup.Skip("the server writes the first backup when it runs")
		}
		return warn(backupOverdue, found, "the first backup begins about a minute after the start: look in the server's log")
	}
	due := status.Last.Time
	for range 2 { // one can be late
		var err error
		if due, err = triggers.NextTime(e.cfg.BackupSchedule, due); err != nil {
			return checkup.Skip("not checked, because of: configuration")
		}
	}
	if time.Now().After(due) {
		return warn(backupOverdue, found+", although backup_schedule is "+e.cfg.BackupSchedule, "let the server run, and look for \"backing up\" in its log")
	}
	if status.Unsealed != "" && !e.cfg.BackupPassphrase.IsZero() {
		return warn(backupUnsealed, "the last backup of the schedule does not contain the sealed master key, although backup_passphrase_file is set: "+status.Unsealed,
			"restart the server, unless it was restarted since that backup: it seals the key in its next one", found)
	}
	return checkup.OK(found)
}
