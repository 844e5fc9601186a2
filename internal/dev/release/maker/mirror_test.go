package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/host/release"
)

func publishVersion(t *testing.T, m *maker, version string) {
	t.Helper()
	m.version, m.files = version, t.TempDir()
	write(t, filepath.Join(m.files, "archive-"+version+".tar.gz"), []byte(version))
	must.OK(t, m.checksums(t.Context()))
	must.OK(t, m.publishFiles())
	write(t, filepath.Join(m.mirror, publicKeyFile), m.publicPEM)
	must.OK(t, m.channels(t.Context()))
}

// channel verifies and reads a channel file of the mirror. It returns "" if the file is missing.
func channel(t *testing.T, m *maker, name string) string {
	t.Helper()
	file := filepath.Join(m.mirror, release.ChannelFile(name))
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	must.OK(t, err)
	signature := read(t, file+release.SignatureSuffix)
	keys := must.Get(release.ParseKeys(m.publicPEM))(t)
	if err := keys.Verify(text, signature); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	c := must.Get(release.ParseChannel(text))(t)
	return c.Version
}

// TestMirror checks that each release is added to the previous ones, and that a channel names its
// newest release, regardless of the order of releases.
func TestMirror(t *testing.T) {
	m := newTestMaker(t)
	for _, step := range []struct{ version, stable, beta string }{
		{"v1.0.0-rc.1", "", "v1.0.0-rc.1"},
		{"v1.0.0", "v1.0.0", "v1.0.0"},
		{"v1.1.0-rc.2", "v1.0.0", "v1.1.0-rc.2"},
		{"v1.1.0-rc.10", "v1.0.0", "v1.1.0-rc.10"},
		{"v1.0.1", "v1.0.1", "v1.1.0-rc.10"},
		{"v1.1.0", "v1.1.0", "v1.1.0"},
		{"v1.0.2", "v1.1.0", "v1.1.0"},
		{"v1.1.0", "v1.1.0", "v1.1.0"}, // the same version again
	} {
		publishVersion(t, m, step.version)
		if stable, beta := channel(t, m, release.Stable), channel(t, m, release.Beta); stable != step.stable || beta != step.beta {
			t.Errorf("after %s: stable is %q, beta is %q, want %q and %q", step.version, stable, beta, step.stable, step.beta)
		}
	}
	for _, version := range []string{"v1.0.0-rc.1", "v1.0.0", "v1.1.0-rc.2", "v1.1.0-rc.10", "v1.0.1", "v1.1.0", "v1.0.2"} {
		text, err := os.ReadFile(filepath.Join(m.mirror, version, "archive-"+version+".tar.gz"))
		if err != nil || string(text) != version {
			t.Errorf("%s: %q, %v", version, text, err)
		}
	}
	entries := must.Get(os.ReadDir(m.mirror))(t)
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			t.Errorf("%s was not removed", entry.Name())
		}
		if info, err := entry.Info(); err != nil || info.Mode()&0o444 != 0o444 {
			t.Errorf("%s is not world-readable: %v, %v", entry.Name(), info.Mode(), err)
		}
	}
}

// TestChecksums verifies the signatures with common tools.
func TestChecksums(t *testing.T) {
	need(t, "openssl", "sha256sum")
	m := newTestMaker(t)
	publishVersion(t, m, "v1.2.3")
	dir := filepath.Join(m.mirror, m.version)
	command(t, dir, "sha256sum", "--strict", "--check", "checksums.txt")
	command(t, dir, "openssl", "dgst", "-sha256", "-verify", "../"+publicKeyFile, "-signature", "checksums.txt.sig", "checksums.txt")
	command(t, m.mirror, "openssl", "dgst", "-sha256", "-verify", publicKeyFile, "-signature", "stable.txt.sig", "stable.txt")
	text, err := os.ReadFile(filepath.Join(dir, "checksums.txt"))
	if err != nil || strings.Count(string(text), "\n") != 1 || !strings.HasSuffix(string(text), "  archive-v1.2.3.tar.gz\n") {
		t.Errorf("the list: %q, %v", text, err)
	}
}

// TestBrokenChannel checks that an unreadable channel file is not overwritten.
func TestBrokenChannel(t *testing.T) {
	m := newTestMaker(t)
	file := filepath.Join(m.mirror, release.ChannelFile(release.Stable))
	write(t, file, []byte("version: 7\n"))
	m.version = "v1.2.3"
	if err := m.channels(t.Context()); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("the error is %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "version: 7\n" {
		t.Errorf("the file is now %q, %v", text, err)
	}
}

// TestDefaultChannel publishes a prerelease, a release and another prerelease. As long as the mirror
// has no stable release, what it offers to clients must be its channel beta.
func TestDefaultChannel(t *testing.T) {
	m := &maker{options: options{mirror: t.TempDir(), home: "https://releases.example.com"}}
	for _, step := range []struct{ version, want string }{
		{"v0.0.0-dev.1", release.Beta}, {"v1.0.0", release.Stable}, {"v1.1.0-rc.1", release.Stable},
	} {
		m.version = step.version
		if got := m.defaultChannel(); got != step.want {
			t.Errorf("after %s the default channel is %s, want %s", step.version, got, step.want)
		}
		if text := string(m.aptSources(nil)); !strings.Contains(text, "\nSuites: "+step.want+"\n") {
			t.Errorf("after %s the file for apt is\n%s", step.version, text)
		}
		if text := string(m.yumRepo()); !strings.Contains(text, "/yum/"+step.want+"\nenabled=1\n") || strings.Count(text, "enabled=1") != 1 {
			t.Errorf("after %s the file for dnf is\n%s", step.version, text)
		}
		for _, channel := range channelsOf(step.version) {
			must.OK(t, os.WriteFile(filepath.Join(m.mirror, release.ChannelFile(channel)), []byte("x"), 0o600))
		}
	}
}

func TestFillInstaller(t *testing.T) {
	const script = "#!/bin/sh\nRELEASE_URL=\"\"\nRELEASE_KEY=\"\"\nRELEASE_CHANNEL=\"\"\n# RELEASE_URL=\"\" is filled in\n  RELEASE_KEY=\"\"\n"
	got, err := fillInstaller([]byte(script), "https://example.com/a", release.Beta, []byte("key"))
	want := "#!/bin/sh\nRELEASE_URL=\"https://example.com/a\"\nRELEASE_KEY=\"a2V5\"\nRELEASE_CHANNEL=\"beta\"\n# RELEASE_URL=\"\" is filled in\n  RELEASE_KEY=\"\"\n"
	if err != nil || string(got) != want {
		t.Errorf("filled in: %q, %v", got, err)
	}
	for name, script := range map[string]string{
		"no URL":     "RELEASE_KEY=\"\"\nRELEASE_CHANNEL=\"\"\n",
		"no key":     "RELEASE_URL=\"\"\nRELEASE_CHANNEL=\"\"\n",
		"no channel": "RELEASE_URL=\"\"\nRELEASE_KEY=\"\"\n",
		"twice":      "RELEASE_URL=\"\"\nRELEASE_KEY=\"\"\nRELEASE_CHANNEL=\"\"\nRELEASE_KEY=\"\"\n",
		"twice only": "RELEASE_URL=\"\"\nRELEASE_URL=\"\"\nRELEASE_URL=\"\"\n",
		"filled in":  "RELEASE_URL=\"x\"\nRELEASE_KEY=\"\"\nRELEASE_CHANNEL=\"\"\n",
	} {
		if _, err := fillInstaller([]byte(script), "", release.Stable, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
