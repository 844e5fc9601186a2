package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"workflowagent/internal/dev/release/signing"
	"workflowagent/internal/host/doctor"
	"workflowagent/internal/host/release"
)

type releaseKey struct {
	private *ecdsa.PrivateKey
	public  []byte // PEM
}

// keys finds the signing keys. If a key is not given, it uses this machine's key, which the first
// run creates.
func (m *maker) keys(ctx context.Context) error {
	if err := m.findReleaseKey(); err != nil {
		return err
	}
	if err := errors.Join(m.checkEscapes(doctor.EscapesUntil()), m.checkPapers()); err != nil {
		return err
	}
	return m.findGPGKey(ctx)
}

func (m *maker) findReleaseKey() error {
	file := m.keyFile
	if file == "" {
		var err error
		if file, err = m.machineKey("release.pem", newReleaseKey); err != nil {
			return err
		}
		m.notes = append(m.notes, "checksums and channel files are signed with the key of this machine, "+file+": for tests only. Set RELEASE_KEY_FILE to the real key")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the release key: %w", err)
	}
	private, err := signing.ParsePrivateKey(text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	public, err := signing.PublicPEM(private)
	if err != nil {
		return err
	}
	m.key = &releaseKey{private, public}
	m.publicPEM = public
	if m.trust == "" {
		return nil
	}
	more, err := os.ReadFile(m.trust)
	if err != nil {
		return fmt.Errorf("reading the other public keys: %w", err)
	}
	if _, err := release.ParseKeys(more); err != nil {
		return fmt.Errorf("%s: %w", m.trust, err)
	}
	m.publicPEM = append(append([]byte(nil), public...), more...)
	return nil
}

// machineKey returns the file with one of this machine's keys. If the file is missing, machineKey
// creates it with the output of fresh, readable only by the owner.
func (m *maker) machineKey(name string, fresh func() ([]byte, error)) (string, error) {
	dir := filepath.Join(m.cache, "release-keys")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("creating a directory for this machine's keys: %w", err)
	}
	file := filepath.Join(dir, name)
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	key, err := fresh()
	if err != nil {
		return "", err
	}
	// Concurrent runs must use the same key: only the first link succeeds.
	draft, err := renameio.NewPendingFile(file, renameio.WithPermissions(0o600))
	if err != nil {
		return "", fmt.Errorf("storing this machine's key: %w", err)
	}
	defer func() { _ = draft.Cleanup() }()
	if _, err = draft.Write(key); err == nil {
		err = draft.Sync()
	}
	if err == nil {
		err = os.Link(draft.Name(), file)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("storing this machine's key: %w", err)
	}
	return file, nil
}

func newReleaseKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("creating a release key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("writing a release key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
