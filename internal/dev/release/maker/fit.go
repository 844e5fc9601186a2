package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/dev/release/changes"
)

// escapesAge is the age of the list of container escapes in doctor from which it misleads users.
const escapesAge = 183 * 24 * time.Hour

// checkEscapes refuses to sign a release with a real key if its doctor knows no container escapes of
// the last months. The age is that at the commit, so that an old release can be built again.
func (m *maker) checkEscapes(until time.Time) error {
	if m.time.Sub(until) <= escapesAge {
		return nil
	}
	return m.unfit(fmt.Sprintf("the list of container escapes in internal/host/doctor/escapes.go ends at %s: add the escapes of newer advisories, and set its date", until.Format(time.DateOnly)))
}

// placeholder is in addresses that are not real ones.
const placeholder = "@example.invalid"

// checkPapers refuses to sign a release with a real key if SECURITY.md has no real address or
// CHANGELOG.md lacks changes. A prerelease does not need a changelog.
func (m *maker) checkPapers() error {
	text, err := os.ReadFile(filepath.Join(m.root, "SECURITY.md"))
	if err != nil {
		return fmt.Errorf("reading the address for reports of vulnerabilities: %w", err)
	}
	if strings.Contains(string(text), placeholder) {
		if err := m.unfit("SECURITY.md contains no real address for reports of vulnerabilities: replace the one with " + placeholder); err != nil {
			return err
		}
	}
	if strings.Contains(m.version, "-") {
		return nil
	}
	pending, err := changes.Pending(m.root)
	if err != nil {
		return err
	}
	if len(pending) > 0 {
		return m.unfit(fmt.Sprintf("CHANGELOG.md lacks the %d changes in the directory changes: run make changelog VERSION=%s, and commit the result", len(pending), m.version))
	}
	return nil
}

// unfit returns an error with a reason why a release must not be published. A release that this
// machine's keys sign only gets a note.
func (m *maker) unfit(reason string) error {
	if m.keyFile != "" {
		return errors.New(reason)
	}
	m.notes = append(m.notes, reason)
	return nil
}
