package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// writeFile atomically writes a world-readable file.
func writeFile(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	if err := renameio.WriteFile(file, text, 0o644, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return nil
}

// copyFile copies a file atomically and makes it world-readable.
func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copying: %w", err)
	}
	defer source.Close()
	draft, err := renameio.NewPendingFile(to, renameio.WithStaticPermissions(0o644))
	if err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	if _, err := io.Copy(draft, source); err != nil {
		return errors.Join(fmt.Errorf("copying %s: %w", from, err), draft.Cleanup())
	}
	if err := draft.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	return nil
}

func (m *maker) copyPackages(pattern, to string) error {
	packages, err := filepath.Glob(filepath.Join(m.files, pattern))
	if err != nil {
		return fmt.Errorf("finding the packages: %w", err)
	}
	for _, file := range packages {
		if err := copyFile(file, filepath.Join(to, filepath.Base(file))); err != nil {
			return err
		}
	}
	return nil
}

// eachFile calls visit for the regular files in a release archive.
func eachFile(archive io.Reader, visit func(header *tar.Header, content []byte) error) error {
	unpacked, err := gzip.NewReader(archive)
	if err != nil {
		return fmt.Errorf("reading the archive: %w", err)
	}
	for files := tar.NewReader(unpacked); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(files)
		if err == nil {
			err = visit(header, content)
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", header.Name, err)
		}
	}
}
