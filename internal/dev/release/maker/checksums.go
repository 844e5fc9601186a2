package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"workflowagent/internal/dev/release/signing"
	"workflowagent/internal/host/release"
)

func (m *maker) checksums(context.Context) error {
	entries, err := os.ReadDir(m.files)
	if err != nil {
		return fmt.Errorf("reading the release: %w", err)
	}
	sums := release.Checksums{}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(m.files, entry.Name()))
		if err != nil {
			return fmt.Errorf("reading a release file: %w", err)
		}
		sums[entry.Name()] = sha256.Sum256(data)
	}
	var text bytes.Buffer
	if _, err := sums.WriteTo(&text); err != nil {
		return fmt.Errorf("computing the checksums: %w", err)
	}
	return m.writeSigned(filepath.Join(m.files, release.ChecksumsFile), text.Bytes())
}

// writeSigned writes the signature of a text by the release key, and then the text. A client that
// downloads the two files in different versions rejects them and retries.
func (m *maker) writeSigned(file string, text []byte) error {
	signature, err := signing.Sign(m.key.private, text)
	if err != nil {
		return err
	}
	if err := writeFile(file+release.SignatureSuffix, signature); err != nil {
		return err
	}
	return writeFile(file, text)
}
