package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"workflowagent/internal/dev/release/homebrew"
	"workflowagent/internal/host/release"
)

func (m *maker) formula(context.Context) error {
	if m.home == "" {
		m.notes = append(m.notes, "the Homebrew formula was not created: it requires RELEASE_HOME, the URL of the archives")
		return nil
	}
	sums := release.Checksums{}
	for _, p := range m.targets {
		name, err := release.Archive(m.version, p.os, p.arch)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Join(m.files, name))
		if err != nil {
			return fmt.Errorf("reading an archive: %w", err)
		}
		sums[name] = sha256.Sum256(data)
	}
	text, err := os.ReadFile(filepath.Join(m.root, homebrew.Template))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing from the repository", homebrew.Template)
	} else if err != nil {
		return fmt.Errorf("reading the formula's template: %w", err)
	}
	formula, err := homebrew.Formula(string(text), m.version, m.home, sums)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(m.files, homebrew.File), formula)
}
