package backup_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/backup"
)

// TestWrongClock checks that backups are ordered by their times, and that those from the future replace none.
func TestWrongClock(t *testing.T) {
	s := newSite(t, storetest.SQLite(t))
	move := func(path, name string) string {
		t.Helper()
		to := filepath.Join(s.backups, name)
		must.OK(t, os.Rename(path, to))
		return to
	}
	const later, earlier = "2990-01-01T00-00-00Z", "1990-01-01T00-00-00Z"
	move(s.backup(backup.Request{Keep: 1}).Path, later) // only its name is from the future
	second := s.backup(backup.Request{Keep: 1})
	if !slices.Equal(second.Removed, []string{later}) || second.Unremoved != nil {
		t.Errorf("removed %v, %v", second.Removed, second.Unremoved)
	}

	future := move(second.Path, earlier)
	edit := must.Get(os.ReadFile(filepath.Join(future, "manifest.json")))(t)
	year := second.Manifest.Time.Format("2006-")
	must.OK(t, os.WriteFile(filepath.Join(future, "manifest.json"), []byte(strings.Replace(string(edit), `"time": "`+year, `"time": "2990-`, 1)), 0o600))
	third := s.backup(backup.Request{Keep: 1})
	if len(third.Removed) > 0 || third.Linked > 0 || third.Unremoved == nil || !strings.Contains(third.Unremoved.Error(), earlier+" is neither counted nor removed: its time is later") {
		t.Errorf("with a backup from the future, removed %v, linked %d, %v", third.Removed, third.Linked, third.Unremoved)
	}
	fourth := s.backup(backup.Request{Keep: 2})
	if len(fourth.Removed) > 0 || fourth.Linked == 0 {
		t.Errorf("removed %v, linked %d", fourth.Removed, fourth.Linked)
	}
	var paths, problems []string
	for _, e := range must.Get(backup.List(s.backups))(t) {
		paths = append(paths, e.Path)
		if e.Problem != nil {
			problems = append(problems, e.Path+": "+e.Problem.Error())
		}
	}
	if !slices.Equal(paths, []string{third.Path, fourth.Path, future}) || len(problems) != 1 || !strings.HasPrefix(problems[0], future+": its time, 2990-") {
		t.Errorf("listed %v with the problems %v", paths, problems)
	}
	if found, err := backup.Find(s.backups); err == nil || !strings.Contains(err.Error(), "name the backup that is to be used") {
		t.Errorf("found %s, %v", found, err)
	}
	must.OK(t, os.RemoveAll(future))
	if found := must.Get(backup.Find(s.backups))(t); found != fourth.Path {
		t.Errorf("found %s", found)
	}
}

// TestForeignDirectory checks that a backup removes no directory without a manifest, such as one that is being copied.
func TestForeignDirectory(t *testing.T) {
	s := newSite(t, storetest.SQLite(t))
	s.backup(backup.Request{})
	copied := filepath.Join(s.backups, time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15-04-05Z"))
	must.OK(t, os.MkdirAll(filepath.Join(copied, "tables"), 0o700))
	r := s.backup(backup.Request{Keep: 1})
	if len(r.Removed) != 1 || r.Unremoved == nil || !strings.Contains(r.Unremoved.Error(), "it has no manifest.json") {
		t.Errorf("removed %v, %v", r.Removed, r.Unremoved)
	}
	if _, err := os.Stat(copied); err != nil {
		t.Errorf("what was being copied: %v", err)
	}
}
