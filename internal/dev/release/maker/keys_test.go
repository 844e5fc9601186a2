package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/release/signing"
	"workflowagent/internal/host/release"
)

// TestMachineKey checks that this machine's key is created only once, even by concurrent runs, and
// is readable only by its owner.
func TestMachineKey(t *testing.T) {
	m := &maker{options: options{cache: t.TempDir()}}
	files, keys := make([]string, 8), make([][]byte, 8)
	var wg sync.WaitGroup
	for i := range files {
		wg.Go(func() {
			var err error
			if files[i], err = m.machineKey("release.pem", newReleaseKey); err != nil {
				t.Error(err)
				return
			}
			if keys[i], err = os.ReadFile(files[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range files {
		if files[i] != files[0] || !bytes.Equal(keys[i], keys[0]) {
			t.Fatalf("two runs have different keys: %s and %s", files[0], files[i])
		}
	}
	info, err := os.Stat(files[0])
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v, %v", info.Mode(), err)
	}
	left, err := os.ReadDir(filepath.Dir(files[0]))
	if err != nil || len(left) != 1 {
		t.Errorf("the key's directory also contains %v, %v", left, err)
	}
}

// TestGivenKeys checks that a given key signs, that the trusted keys are built in alongside it, and
// that no note mentions a key of this machine.
func TestGivenKeys(t *testing.T) {
	dir := t.TempDir()
	text := must.Get(newReleaseKey())(t)
	file, trusted := filepath.Join(dir, "key.pem"), filepath.Join(dir, "old.pem")
	old := newTestMaker(t)
	for name, content := range map[string][]byte{file: text, trusted: old.publicPEM} {
		write(t, name, content)
	}
	m := &maker{options: options{keyFile: file, trust: trusted}}
	must.OK(t, m.findReleaseKey())
	if len(m.notes) > 0 {
		t.Errorf("notes: %v", m.notes)
	}
	keys, err := release.ParseKeys(m.publicPEM)
	if err != nil || len(keys) != 2 {
		t.Fatalf("programs trust %d keys, %v, want 2", len(keys), err)
	}
	for name, signer := range map[string]*maker{"the new key": m, "the old key": old} {
		signature := must.Get(signing.Sign(signer.key.private, []byte("text")))(t)
		if err := keys.Verify([]byte("text"), signature); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBadKeys checks that an invalid key is rejected, with an error that contains no part of the
// file.
func TestBadKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key.pem")
	write(t, file, []byte("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"))
	m := &maker{options: options{keyFile: file}}
	if err := m.findReleaseKey(); err == nil || strings.Contains(err.Error(), "c2VjcmV0") || !strings.Contains(err.Error(), file) {
		t.Errorf("an invalid key: %v", err)
	}
	m = newTestMaker(t)
	m.trust = file
	if err := m.findReleaseKey(); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("an invalid key to trust: %v", err)
	}
}
