package audit

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/store"
)

// header is the first line of a CSV export.
var header = []string{"time", "actorKind", "actor", "token", "action", "subjectKind", "subject", "address", "way", "detail", "count", "lastTime", "names"}

// WriteCSV writes all selected entries as CSV, newest first.
func (s *Service) WriteCSV(ctx context.Context, w io.Writer, r Reader, f store.AuditFilter) error {
	out := csv.NewWriter(w)
	first := true
	err := s.each(ctx, r, f, func(e store.AuditEntry) error {
		if first {
			first = false
			if err := out.Write(header); err != nil {
				return err
			}
		}
		cells := []string{
			e.At.UTC().Format(time.RFC3339Nano), e.ActorKind, e.Actor, e.TokenName, e.Action,
			e.SubjectKind, e.Subject, e.Address, e.Way, e.Detail, "", "", e.Names,
		}
		if e.Reads > 0 {
			cells[10], cells[11] = strconv.FormatInt(e.Reads, 10), e.LastAt.UTC().Format(time.RFC3339Nano)
		}
		for i := range cells {
			cells[i] = cell(cells[i])
		}
		return out.Write(cells)
	})
	if err == nil && first {
		err = out.Write(header)
	}
	out.Flush()
	if err == nil {
		err = out.Error()
	}
	return err
}

// cell returns a text that no spreadsheet takes for a formula.
func cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// WriteJSON writes all selected entries, newest first, as one JSON object a line.
func (s *Service) WriteJSON(ctx context.Context, w io.Writer, r Reader, f store.AuditFilter) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	return s.each(ctx, r, f, func(e store.AuditEntry) error {
		entry := map[string]any{
			"id": e.ID, "time": e.At.UTC(), "actorKind": e.ActorKind, "actorId": e.ActorID, "actor": e.Actor,
			"tokenId": e.TokenID, "token": e.TokenName, "action": e.Action, "subjectKind": e.SubjectKind, "subjectId": e.SubjectID,
			"subject": e.Subject, "address": e.Address, "way": e.Way, "detail": json.RawMessage(e.Detail),
		}
		if e.Reads > 0 {
			entry["count"], entry["lastTime"], entry["names"] = e.Reads, e.LastAt.UTC(), e.Names
		}
		return out.Encode(entry)
	})
}

// each calls do for all selected entries, newest first. It reads them in several transactions.
func (s *Service) each(ctx context.Context, r Reader, f store.AuditFilter, do func(store.AuditEntry) error) error {
	f.Limit = MaxEntries
	for more := true; more; {
		var list []store.AuditEntry
		var err error
		if list, more, err = s.List(ctx, r, f); err != nil {
			return err
		}
		for _, e := range list {
			if err := do(e); err != nil {
				return fmt.Errorf("writing the audit log: %w", err)
			}
			f.OlderThan = e
		}
	}
	return nil
}
