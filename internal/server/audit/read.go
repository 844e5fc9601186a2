package audit

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// Service reads the audit log.
type Service struct{ db *store.DB }

// New returns a service that uses a database.
func New(db *store.DB) *Service { return &Service{db} }

// Reader is a caller who reads the audit log.
type Reader interface {
	// CanAdminOrg reports whether the reader administers an organization.
	CanAdminOrg(orgID string) bool
	// CanAdminServer reports whether the reader administers the server.
	CanAdminServer() bool
}

// MaxEntries is the maximum number of entries in one answer.
const MaxEntries = 1000

func check(r Reader, orgID string) error {
	switch {
	case orgID == "" && !r.CanAdminServer():
		return fault.Forbidden("only administrators of the server may read its audit log")
	case orgID != "" && !r.CanAdminOrg(orgID):
		return fault.Forbidden("only administrators of the organization may read its audit log")
	}
	return nil
}

// List returns up to f.Limit of the selected entries, newest first, and whether more follow.
func (s *Service) List(ctx context.Context, r Reader, f store.AuditFilter) (list []store.AuditEntry, more bool, err error) {
	if err := check(r, f.OrgID); err != nil {
		return nil, false, err
	}
	limit := min(f.Limit, MaxEntries)
	f.Limit = limit + 1
	list, err = store.ReadLong(ctx, s.db, func(tx *store.Tx) ([]store.AuditEntry, error) { return tx.AuditEntries(f) })
	if err != nil {
		return nil, false, fmt.Errorf("reading the audit log: %w", err)
	}
	return list[:min(limit, len(list))], len(list) > limit, nil
}

// Count returns the number of selected entries, at most f.Limit.
func (s *Service) Count(ctx context.Context, r Reader, f store.AuditFilter) (int64, error) {
	if err := check(r, f.OrgID); err != nil {
		return 0, err
	}
	n, err := store.ReadLong(ctx, s.db, func(tx *store.Tx) (int64, error) { return tx.CountAuditEntries(f) })
	return n, fault.While(err, "counting the entries of the audit log")
}

// Position returns the place of an entry in the log as text.
func Position(e store.AuditEntry) string {
	return strconv.FormatInt(e.At.UnixMicro(), 10) + "-" + e.ID
}

// ParsePosition returns an entry with the time and id of a position; "" is the zero entry.
func ParsePosition(text string) (e store.AuditEntry, err error) {
	if text == "" {
		return e, nil
	}
	at, id, ok := strings.Cut(text, "-")
	micros, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || id == "" || len(id) > 64 {
		return e, fault.Invalid("the position %q in the audit log is not valid", line(text))
	}
	e.At, e.ID = time.UnixMicro(micros).UTC(), id
	return e, nil
}

// Describe returns an entry as a sentence.
func Describe(e store.AuditEntry) string {
	what, how, _ := strings.Cut(e.Action, ".")
	text := what + " " + strings.ReplaceAll(how, "-", " ")
	if e.Subject != "" {
		text += ": " + e.Subject
	}
	text += " (by " + e.Actor
	if e.Names != "" {
		text += ": " + e.Names
	}
	if e.Reads > 1 {
		text += fmt.Sprintf(", %d times until %s", e.Reads, e.LastAt.UTC().Format(time.DateTime+" MST"))
	}
	return text + ")"
}
