package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/host/release"
)

// packageOf prepares the maker for a release of version that has only one file. It returns the
// file's path, and the caller creates the file.
func (m *maker) packageOf(t *testing.T, version, name string) string {
	t.Helper()
	m.version, m.files = version, t.TempDir()
	return filepath.Join(m.files, name)
}

// verifier returns a gpg home directory that contains only a repository's key.
func verifier(t *testing.T, key string) string {
	t.Helper()
	home := t.TempDir()
	command(t, home, "gpg", "--homedir", home, "--batch", "--quiet", "--import", key)
	t.Cleanup(func() { (&gpg{home: home}).close() })
	return home
}

func TestAptRepository(t *testing.T) {
	need(t, "gpg", "apt-ftparchive", "dpkg-deb", "sha256sum")
	m := newTestMaker(t)
	must.OK(t, m.findGPGKey(t.Context()))
	for _, version := range []string{"v1.0.0", "v1.1.0-rc.1", "v1.1.0"} {
		tree := t.TempDir()
		control := fmt.Sprintf("Package: %s\nVersion: %s-1\nArchitecture: amd64\nMaintainer: a <a@example.invalid>\nDescription: test\n", release.Program, debianVersion(version))
		write(t, filepath.Join(tree, "DEBIAN", "control"), []byte(control))
		deb := m.packageOf(t, version, release.Program+"_"+debianVersion(version)+"-1_amd64.deb")
		command(t, tree, "dpkg-deb", "--build", "--root-owner-group", tree, deb)
		must.OK(t, m.apt(t.Context()))
	}
	root := filepath.Join(m.mirror, "apt")
	home := verifier(t, filepath.Join(root, archiveKeyFile))
	for suite, versions := range map[string][]string{
		release.Stable: {"1.0.0-1", "1.1.0-1"},
		release.Beta:   {"1.0.0-1", "1.1.0~rc.1-1", "1.1.0-1"},
	} {
		dir := filepath.Join(root, "dists", suite)
		command(t, dir, "gpg", "--homedir", home, "--batch", "--verify", "Release.gpg", "Release")
		signed := command(t, dir, "gpg", "--homedir", home, "--batch", "--quiet", "--decrypt", "InRelease")
		for _, line := range []string{"Suite: " + suite, "Architectures: amd64 arm64", "Components: main"} {
			if !strings.Contains(signed, line+"\n") {
				t.Errorf("%s: %q is not in InRelease:\n%s", suite, line, signed)
			}
		}
		list := read(t, filepath.Join(dir, "main", "binary-amd64", "Packages"))
		if got := strings.Count(string(list), "\nVersion: "); got != len(versions) {
			t.Errorf("%s has %d packages, want %d:\n%s", suite, got, len(versions), list)
		}
		for _, version := range versions {
			if !strings.Contains(string(list), "Version: "+version+"\n") {
				t.Errorf("%s has no %s:\n%s", suite, version, list)
			}
		}
		// The list has paths relative to the repository.
		for line := range strings.Lines(string(list)) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Filename: "); ok {
				if _, err := os.Stat(filepath.Join(root, name)); err != nil {
					t.Error(err)
				}
			}
		}
		// The signed file names the list by its checksum.
		sum := strings.Fields(command(t, dir, "sha256sum", "main/binary-amd64/Packages"))[0]
		if !strings.Contains(signed, " "+sum+" ") {
			t.Errorf("%s: InRelease does not name the list %s:\n%s", suite, sum, signed)
		}
	}
	sources, err := os.ReadFile(filepath.Join(root, release.Program+".sources"))
	if err != nil || !strings.Contains(string(sources), "URIs: https://releases.example.com/agent/apt\n") || !strings.Contains(string(sources), "\n .\n ") {
		t.Errorf("the file for apt: %s, %v", sources, err)
	}
}

func TestYumRepository(t *testing.T) {
	need(t, "gpg", "createrepo_c", "rpmbuild")
	m := newTestMaker(t)
	must.OK(t, m.findGPGKey(t.Context()))
	for _, version := range []string{"v1.0.0", "v1.1.0-rc.1"} {
		top := t.TempDir()
		spec := fmt.Sprintf("Name: %s\nVersion: %s\nRelease: 1\nSummary: test\nLicense: none\nBuildArch: noarch\n%%description\ntest\n%%files\n", release.Program, debianVersion(version))
		write(t, filepath.Join(top, "test.spec"), []byte(spec))
		rpm := m.packageOf(t, version, release.Program+"-"+debianVersion(version)+"-1.noarch.rpm")
		command(t, top, "rpmbuild", "-bb", "--quiet", "--nodeps", "--define", "_topdir "+top, "--define", "_rpmdir "+top, "test.spec")
		must.OK(t, os.Rename(filepath.Join(top, "noarch", filepath.Base(rpm)), rpm))
		must.OK(t, errors.Join(m.yum(t.Context()), m.channels(t.Context())))
	}
	root := filepath.Join(m.mirror, "yum")
	home := verifier(t, filepath.Join(root, archiveKeyFile))
	for channel, versions := range map[string]int{release.Stable: 1, release.Beta: 2} {
		repodata := filepath.Join(root, channel, "repodata")
		command(t, repodata, "gpg", "--homedir", home, "--batch", "--verify", "repomd.xml.asc", "repomd.xml")
		list := command(t, repodata, "sh", "-c", "gzip -dc *primary.xml.gz")
		if !strings.Contains(list, fmt.Sprintf(`packages="%d"`, versions)) {
			t.Errorf("%s: want %d packages:\n%s", channel, versions, list)
		}
	}
	repo := read(t, filepath.Join(root, release.Program+".repo"))
	if text := string(repo); strings.Count(text, "repo_gpgcheck=1\n") != 2 || strings.Count(text, "enabled=1\n") != 1 || !strings.Contains(text, "baseurl=https://releases.example.com/agent/yum/stable\nenabled=1\n") {
		t.Errorf("the file for dnf:\n%s", text)
	}
}

// TestRepositoryWithoutHome checks that without a home no file contains the repository's address.
func TestRepositoryWithoutHome(t *testing.T) {
	need(t, "gpg", "apt-ftparchive")
	m := newTestMaker(t)
	must.OK(t, m.findGPGKey(t.Context()))
	m.home, m.version = "", "v1.0.0"
	root := filepath.Join(m.mirror, "apt")
	must.OK(t, os.MkdirAll(filepath.Join(root, "pool", release.Stable), 0o755))
	must.OK(t, m.writeArchiveKey(t.Context(), root, "x.sources", m.aptSources))
	if _, err := os.Stat(filepath.Join(root, archiveKeyFile)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(root, "x.sources")); err == nil {
		t.Error("a file for apt was created without a URL")
	}
}
