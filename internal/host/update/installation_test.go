package update

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/host/release"
)

func TestFind(t *testing.T) {
	h := newHouse(t, "v1.0.0")
	h.add(t, "v1.1.0", polls)
	for path, version := range map[string]string{
		filepath.Join(h.root, release.Program):                        "v1.0.0",
		filepath.Join(h.root, currentLink, release.Program):           "v1.0.0",
		filepath.Join(h.root, versionsDir, "v1.1.0", release.Program): "v1.1.0",
	} {
		i, err := Find(t.Context(), path)
		if err != nil || i != (Installation{Root: h.root, Version: version}) {
			t.Errorf("Find(%s) = %+v, %v", path, i, err)
		}
	}
	alone := filepath.Join(t.TempDir(), release.Program)
	if err := os.WriteFile(alone, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if i, err := Find(t.Context(), alone); err == nil || !strings.Contains(err.Error(), "install.sh") || errors.As(err, new(*PackagedError)) {
		t.Errorf("a file outside an installation: %+v, %v", i, err)
	}
	if _, err := Find(t.Context(), alone+"-not-there"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.Remove(filepath.Join(h.root, currentLink)); err != nil {
		t.Fatal(err)
	}
	if i, err := Find(t.Context(), filepath.Join(h.root, versionsDir, "v1.1.0", release.Program)); err == nil {
		t.Errorf("without a current version: %+v", i)
	}
}

func TestCurrent(t *testing.T) {
	h := newHouse(t, "v1.0.0")
	for target, want := range map[string]string{
		"versions/v1.0.0": "v1.0.0", "versions/v1.0.0/": "v1.0.0", "versions/../v1.0.0": "", "/etc": "", "versions/": "", "versions/x": "", "../versions/v1.0.0": "",
	} {
		path := filepath.Join(h.root, currentLink)
		if err := errors.Join(os.Remove(path), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
		if got, err := h.applier().Current(); got != want || (err == nil) != (want != "") {
			t.Errorf("current -> %s is %q, %v, want %q", target, got, err, want)
		}
	}
}

// TestPackaged checks with fake package managers that the owner of a file is found.
func TestPackaged(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	script := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const path = "/usr/lib/customer-managed-workflow-agent/customer-managed-workflow-agent"
	check := func(path, manager, name, command string) {
		t.Helper()
		err := owner(context.Background(), path)
		var packaged *PackagedError
		if !errors.As(err, &packaged) || packaged.Manager != manager || packaged.Package != name || packaged.Command != command || !strings.Contains(err.Error(), command) {
			t.Errorf("the owner of %s is %v, want %s of %s", path, err, name, manager)
		}
	}
	if err := owner(t.Context(), path); err != nil {
		t.Errorf("without package managers: %v", err)
	}
	check("/opt/homebrew/Cellar/customer-managed-workflow-agent/1.2.3/bin/x", "Homebrew", "customer-managed-workflow-agent", "brew upgrade customer-managed-workflow-agent")
	script("rpm", `[ "$*" = "-qf --queryformat %{NAME}\n -- `+path+`" ] || exit 1; echo customer-managed-workflow-agent`)
	check(path, "rpm", "customer-managed-workflow-agent", "sudo dnf upgrade customer-managed-workflow-agent")
	script("zypper", "")
	check(path, "rpm", "customer-managed-workflow-agent", "sudo zypper update customer-managed-workflow-agent")
	for _, answer := range []string{"customer-managed-workflow-agent: ", "customer-managed-workflow-agent:amd64: ", "customer-managed-workflow-agent, other: "} {
		script("dpkg-query", `[ "$*" = "-S -- `+path+`" ] || exit 1; echo "`+answer+path+`"`)
		check(path, "dpkg", "customer-managed-workflow-agent", "sudo apt-get update && sudo apt-get install --only-upgrade customer-managed-workflow-agent")
	}
	if err := owner(t.Context(), "/home/user/agent"); err != nil {
		t.Errorf("a file of no package: %v", err)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add(`{"phase":"forward","from":"v1.0.0","to":"v1.1.0","wait":"polled","tries":1}`)
	f.Add(`{"phase":"backward","from":"v1.0.0","to":"v1.1.0","wait":"waiting"}`)
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, JournalFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		j, err := readJournal(root)
		if err != nil {
			return
		}
		for _, version := range []string{j.From, j.To} {
			if release.CheckVersion(version) != nil || filepath.Base(version) != version {
				t.Errorf("%q has the version %q", text, version)
			}
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add(`{"version":"v1.1.0"}`)
	f.Add(`{"version":"v1.1.0/..","explicit":true}`)
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, RequestFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		stage, err := openIntake(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer stage.Close()
		if r, err := readRequest(stage); err == nil && (release.CheckVersion(r.Version) != nil || filepath.Base(r.Version) != r.Version) {
			t.Errorf("%q asks for %q", text, r.Version)
		}
	})
}
