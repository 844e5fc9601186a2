package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// gpg signs packages and repositories, with a temporary key ring that contains one key.
type gpg struct {
	home string
	file string // the secret key, armored
}

// findGPGKey imports the given key, or this machine's key, into a temporary key ring. Without gpg
// it imports no key, and the steps that require the key are skipped.
func (m *maker) findGPGKey(ctx context.Context) error {
	if len(missingTools(gpgTools())) > 0 {
		if m.gpgKeyFile == "" {
			m.notes = append(m.notes, "RPMs are not signed: GPG_KEY_FILE is not set, and gpg, which creates a key for this machine, is missing")
		}
		return nil
	}
	m.gpg = &gpg{home: filepath.Join(m.scratch, "gpg"), file: m.gpgKeyFile}
	if err := os.Mkdir(m.gpg.home, 0o700); err != nil {
		return fmt.Errorf("creating a key ring: %w", err)
	}
	if m.gpg.file == "" {
		file, err := m.machineKey("gpg.asc", func() ([]byte, error) { return m.newGPGKey(ctx) })
		if err != nil {
			return err
		}
		m.gpg.file = file
		m.notes = append(m.notes, "packages and repositories are signed with the GPG key of this machine, "+file+": for tests only. Set GPG_KEY_FILE to the real key")
	}
	if _, err := m.gpg.run(ctx, "--import", m.gpg.file); err != nil {
		return fmt.Errorf("reading the GPG key (it must be armored and without a passphrase): %w", err)
	}
	return nil
}

func gpgTools() []tool { return []tool{{"gpg", "gnupg"}} }

// newGPGKey returns a new armored secret key. It is an RSA key, because every current rpm can
// verify RSA.
func (m *maker) newGPGKey(ctx context.Context) ([]byte, error) {
	fresh := &gpg{home: filepath.Join(m.scratch, "gpg-new")}
	if err := os.Mkdir(fresh.home, 0o700); err != nil {
		return nil, fmt.Errorf("creating a key ring: %w", err)
	}
	defer fresh.close()
	const who = "workflowagent releases of this machine"
	if _, err := fresh.run(ctx, "--passphrase", "", "--quick-generate-key", who, "rsa3072", "sign", "never"); err != nil {
		return nil, fmt.Errorf("creating a GPG key: %w", err)
	}
	return fresh.run(ctx, "--armor", "--export-secret-keys")
}

func (g *gpg) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "gpg", append([]string{"--homedir", g.home, "--batch", "--yes", "--quiet", "--no-tty", "--pinentry-mode", "loopback"}, args...)...)
	return output(cmd)
}

// close stops the agent that gpg started for the key ring.
func (g *gpg) close() {
	//nolint:noctx // It must run even if the context has ended, and takes no time.
	cmd := exec.Command("gpgconf", "--homedir", g.home, "--kill", "all")
	_ = cmd.Run() // the agent also exits when its directory is removed
}
