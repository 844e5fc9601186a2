// Package changes moves the notes on changes into CHANGELOG.md. Each change is a file of the directory
// changes, so that two branches never edit the same line. Its name is KIND-WORDS.md, and its text is
// one entry of the list.
package changes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	dir       = "changes"
	changelog = "CHANGELOG.md"
	// mark is the line of the changelog that the newest release follows.
	mark = "<!-- releases -->\n"
)

// kinds are the sections of a release in their order, from keepachangelog.com.
var kinds = []string{"security", "removed", "changed", "added", "fixed"}

// Entry is the note on a change.
type Entry struct {
	File string // relative to the root of the repository
	Kind string
	Text string
}

// Pending returns the notes on the changes since the last release.
func Pending(root string) ([]Entry, error) {
	files, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return nil, fmt.Errorf("reading the notes on changes: %w", err)
	}
	var entries []Entry
	for _, f := range files {
		file := filepath.Join(dir, f.Name())
		if f.Name() == "README.md" {
			continue
		}
		kind, _, _ := strings.Cut(f.Name(), "-")
		if f.IsDir() || filepath.Ext(file) != ".md" || !slices.Contains(kinds, kind) {
			return nil, fmt.Errorf("%s is no note on a change: name it KIND-WORDS.md; KIND is one of %s", file, strings.Join(kinds, ", "))
		}
		data, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, fmt.Errorf("reading a note on a change: %w", err)
		}
		text := strings.TrimSpace(string(data))
		if text == "" || strings.HasPrefix(text, "#") || strings.HasPrefix(text, "* ") {
			return nil, fmt.Errorf("%s must contain one paragraph without a heading or a bullet", file)
		}
		entries = append(entries, Entry{file, kind, text})
	}
	return entries, nil
}

// Release moves the pending notes into a section of CHANGELOG.md for the version.
func Release(root, version string, day time.Time) error {
	entries, err := Pending(root)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("%s contains no notes on changes: there is nothing to release", dir)
	}
	file := filepath.Join(root, changelog)
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the changelog: %w", err)
	}
	before, after, found := strings.Cut(string(data), mark)
	if !found {
		return fmt.Errorf("%s has no line %q, which the newest release follows", changelog, strings.TrimSpace(mark))
	}
	if strings.Contains(after, "\n## "+version+" ") {
		return fmt.Errorf("%s already has a section for %s", changelog, version)
	}
	text := before + mark + section(version, day, entries) + after
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing the changelog: %w", err)
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(root, e.File)); err != nil {
			return fmt.Errorf("removing a note that is in the changelog now: %w", err)
		}
	}
	return nil
}

func section(version string, day time.Time, entries []Entry) string {
	var out strings.Builder
	fmt.Fprintf(&out, "\n## %s (%s)\n", version, day.Format(time.DateOnly))
	for _, kind := range kinds {
		first := true
		for _, e := range entries {
			if e.Kind != kind {
				continue
			}
			if first {
				fmt.Fprintf(&out, "\n### %s%s\n\n", strings.ToUpper(kind[:1]), kind[1:])
				first = false
			}
			out.WriteString("* " + strings.ReplaceAll(e.Text, "\n", "\n  ") + "\n")
		}
	}
	return out.String()
}
