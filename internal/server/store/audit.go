package store

import (
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
)

// AuditEntry is one change, one sign-in, or several reads of a kind, in the audit log.
type AuditEntry struct {
	ID          string
	OrgID       string    // "" for an entry about the whole server
	At          time.Time // of the first read
	ActorKind   string
	ActorID     string
	Actor       string // the actor's name at the time
	TokenID     string
	TokenName   string
	Action      string
	SubjectKind string
	SubjectID   string
	Subject     string // the subject's name at the time
	Address     string // from which the requests came, separated by ", "; or ""
	Way         string
	Detail      string // JSON object

	// The following fields are for entries about reads.

	Reads  int64     // their number; 0 for a change
	LastAt time.Time // of the last read
	Names  string    // what the reads named, separated by ", "
}

// AuditFilter selects entries of the audit log. Empty fields select all.
type AuditFilter struct {
	OrgID   string // "" selects the entries about the whole server
	Actor   string
	Action  string
	Subject string // a part of the subject's name
	Way     string
	From    time.Time // inclusive
	Before  time.Time // exclusive
	// OlderThan is the entry before the selected ones, NewerThan the one behind them. UpTo is the
	// newest selected entry. Only their times and ids count.
	OlderThan, NewerThan, UpTo AuditEntry
	Limit                      int
}

var auditEntries = database.NewTable[AuditEntry]("audit_entries a")

// InsertAuditEntry adds an entry to the audit log.
func (tx *Tx) InsertAuditEntry(e AuditEntry) error { return auditEntries.Insert(tx.Tx, e) }

// maxListed bounds the lists in an entry about reads, in bytes.
const maxListed = 1000

// mergeReads counts a read in the entry about earlier ones. Times of the database can go back.
var mergeReads = strings.Join([]string{
	"reads = audit_entries.reads + excluded.reads",
	"last_at = CASE WHEN excluded.last_at > audit_entries.last_at THEN excluded.last_at ELSE audit_entries.last_at END",
	"address = " + listed("address"),
	"names = " + listed("names"),
}, ", ")

// listed returns an expression for a list that also contains the value of the same column in the row to
// add. The last element of a list that is too long is "…".
func listed(column string) string {
	return strings.ReplaceAll(fmt.Sprintf(`CASE
		WHEN excluded.COLUMN = '' THEN audit_entries.COLUMN
		WHEN audit_entries.COLUMN = '' THEN excluded.COLUMN
		WHEN REPLACE(', ' || audit_entries.COLUMN || ', ', ', ' || excluded.COLUMN || ', ', '') <> ', ' || audit_entries.COLUMN || ', '
			THEN audit_entries.COLUMN
		WHEN LENGTH(audit_entries.COLUMN) + LENGTH(excluded.COLUMN) <= %d THEN audit_entries.COLUMN || ', ' || excluded.COLUMN
		WHEN audit_entries.COLUMN LIKE '%%, …' THEN audit_entries.COLUMN
		ELSE audit_entries.COLUMN || ', …' END`, maxListed), "COLUMN", column)
}

// CountRead adds an entry about a read to the audit log, or counts the read in the entry with the same
// id.
func (tx *Tx) CountRead(e AuditEntry) error {
	e.Reads, e.LastAt = 1, e.At
	return auditEntries.Merge(tx.Tx, e, "id", mergeReads)
}

func (f AuditFilter) where() (text string, args []any) {
	var b strings.Builder
	add := func(condition string, values ...any) {
		for _, v := range values {
			args = append(args, v)
			condition = strings.Replace(condition, "?", fmt.Sprintf("$%d", len(args)), 1)
		}
		if b.Len() > 0 {
			b.WriteString(" AND ")
		}
		b.WriteString(condition)
	}
	add("a.org_id = ?", f.OrgID)
	for _, c := range []struct{ column, value string }{{"actor", f.Actor}, {"action", f.Action}, {"way", f.Way}} {
		if c.value != "" {
			add("a."+c.column+" = ?", c.value)
		}
	}
	if f.Subject != "" {
		pattern := likeText.Replace(f.Subject)
		add(`LOWER(a.subject) LIKE LOWER(?) ESCAPE '\'`, "%"+pattern+"%")
	}
	if !f.From.IsZero() {
		add("a.at >= ?", f.From)
	}
	if !f.Before.IsZero() {
		add("a.at < ?", f.Before)
	}
	if e := f.OlderThan; e.ID != "" {
		add("a.at <= ? AND (a.at < ? OR a.id < ?)", e.At, e.At, e.ID)
	}
	if e := f.UpTo; e.ID != "" {
		add("a.at <= ? AND (a.at < ? OR a.id <= ?)", e.At, e.At, e.ID)
	}
	if e := f.NewerThan; e.ID != "" {
		add("a.at >= ? AND (a.at > ? OR a.id > ?)", e.At, e.At, e.ID)
	}
	return "WHERE " + b.String(), args
}

// AuditEntries returns up to f.Limit of the selected entries, newest first.
func (tx *Tx) AuditEntries(f AuditFilter) ([]AuditEntry, error) {
	where, args := f.where()
	return auditEntries.All(tx.Tx, fmt.Sprintf("%s ORDER BY a.at DESC, a.id DESC LIMIT %d", where, f.Limit), args...)
}

// SettingsChanges returns the newest changes of the deployment settings of a stack, newest first.
func (tx *Tx) SettingsChanges(orgID, stackID string, limit int) ([]AuditEntry, error) {
	return auditEntries.All(tx.Tx, fmt.Sprintf("WHERE a.subject_id = $1 AND a.action = 'settings.changed' AND a.org_id = $2 ORDER BY a.at DESC, a.id DESC LIMIT %d", limit), stackID, orgID)
}

// CountAuditEntries returns the number of selected entries, at most f.Limit.
func (tx *Tx) CountAuditEntries(f AuditFilter) (int64, error) {
	where, args := f.where()
	return database.Scalar[int64](tx.Tx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 AS one FROM audit_entries a %s LIMIT %d) counted", where, f.Limit), args...)
}
