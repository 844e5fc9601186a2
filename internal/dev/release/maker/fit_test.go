package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
)

// TestOldEscapes makes releases of commits that are older and newer than six months after the last
// entry in doctor's list of container escapes.
func TestOldEscapes(t *testing.T) {
	until := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		key           string
		days          int
		refused, note bool
	}{
		{"real.pem", 180, false, false},
		{"real.pem", 190, true, false},
		{"", 190, false, true},
		{"real.pem", -100, false, false},
	} {
		m := &maker{options: options{keyFile: tt.key}, time: until.AddDate(0, 0, tt.days)}
		err := m.checkEscapes(until)
		if (err != nil) != tt.refused || (len(m.notes) > 0) != tt.note {
			t.Errorf("after %d days with the key %q: %v, notes %q", tt.days, tt.key, err, m.notes)
		}
		if err != nil && !strings.Contains(err.Error(), "2026-01-01") {
			t.Errorf("the error lacks the date: %v", err)
		}
	}
}

// TestUnfinishedPapers makes releases without an address for reports of vulnerabilities and with
// changes that the changelog lacks.
func TestUnfinishedPapers(t *testing.T) {
	for _, tt := range []struct {
		name, key, version, address, note string
		refused                           string
	}{
		{"finished", "real.pem", "v1.2.3", "security@example.com", "README.md", ""},
		{"placeholder", "real.pem", "v1.2.3-rc.1", "security@example.invalid", "README.md", "SECURITY.md"},
		{"placeholder, test key", "", "v1.2.3", "security@example.invalid", "README.md", ""},
		{"pending change", "real.pem", "v1.2.3", "security@example.com", "added-x.md", "make changelog VERSION=v1.2.3"},
		{"pending change, prerelease", "real.pem", "v1.2.3-rc.1", "security@example.com", "added-x.md", ""},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, "SECURITY.md"), []byte("Write to "+tt.address))
		must.OK(t, os.Mkdir(filepath.Join(root, "changes"), 0o700))
		write(t, filepath.Join(root, "changes", tt.note), []byte("text"))
		m := &maker{options: options{keyFile: tt.key, version: tt.version}, root: root}
		if err := m.checkPapers(); (err != nil) != (tt.refused != "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if noted := len(m.notes) > 0; noted != (tt.key == "") {
			t.Errorf("%s: notes %q", tt.name, m.notes)
		}
	}
}
