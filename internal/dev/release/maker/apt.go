package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"workflowagent/internal/host/release"
)

// archiveKeyFile is the name of the file with the repositories' public GPG key.
const archiveKeyFile = release.Program + ".asc"

func aptTools() []tool { return append(gpgTools(), tool{"apt-ftparchive", "apt-utils"}) }

// apt adds the .deb packages to the mirror's repository. Each channel is a suite and keeps all its
// versions.
func (m *maker) apt(ctx context.Context) error {
	root := filepath.Join(m.mirror, "apt")
	for _, channel := range channelsOf(m.version) {
		if err := m.copyPackages("*.deb", filepath.Join(root, "pool", channel)); err != nil {
			return err
		}
		if err := m.aptSuite(ctx, root, channel); err != nil {
			return err
		}
	}
	return m.writeArchiveKey(ctx, root, release.Program+".sources", m.aptSources)
}

func (m *maker) aptSuite(ctx context.Context, root, suite string) error {
	dists := filepath.Join(root, "dists", suite)
	// The old signature must not remain next to the new lists.
	if err := os.RemoveAll(dists); err != nil {
		return fmt.Errorf("clearing the suite %s: %w", suite, err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		list, err := ftparchive(ctx, root, "--arch", arch, "packages", "pool/"+suite)
		if err != nil {
			return err
		}
		file := filepath.Join(dists, "main", "binary-"+arch, "Packages")
		if err := writeFile(file, list); err != nil {
			return err
		}
		if err := writeGzip(file+".gz", list); err != nil {
			return err
		}
	}
	options := []string{}
	for _, field := range []string{
		"Origin=" + release.Program, "Label=" + release.Program, "Suite=" + suite, "Codename=" + suite,
		"Architectures=amd64 arm64", "Components=main", "Description=releases of the channel " + suite,
	} {
		options = append(options, "-o", "APT::FTPArchive::Release::"+field)
	}
	text, err := ftparchive(ctx, root, append(options, "release", "dists/"+suite)...)
	if err != nil {
		return err
	}
	file := filepath.Join(dists, "Release")
	if err := writeFile(file, text); err != nil {
		return err
	}
	if _, err := m.gpg.run(ctx, "--armor", "--detach-sign", "--output", file+".gpg", file); err != nil {
		return err
	}
	_, err = m.gpg.run(ctx, "--clearsign", "--output", filepath.Join(dists, "InRelease"), file)
	return err
}

// ftparchive runs apt-ftparchive in the repository's directory, so that the lists contain relative
// paths.
func ftparchive(ctx context.Context, root string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "apt-ftparchive", args...)
	cmd.Dir = root
	return output(cmd)
}

// aptSources returns the file for /etc/apt/sources.list.d, with the key.
func (m *maker) aptSources(key []byte) []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "# Put this file into /etc/apt/sources.list.d/. Suites: stable, or beta.\n"+
		"Types: deb\nURIs: %s/apt\nSuites: %s\nComponents: main\nSigned-By:\n", m.home, m.defaultChannel())
	for line := range strings.Lines(string(key)) {
		line = strings.TrimRight(line, "\n")
		if line == "" {
			line = "." // an empty line would end the paragraph
		}
		fmt.Fprintf(&text, " %s\n", line)
	}
	return text.Bytes()
}

// writeArchiveKey writes the public GPG key into a repository. If the mirror has a home, it also
// writes the file that configures the repository on a machine.
func (m *maker) writeArchiveKey(ctx context.Context, root, name string, text func(key []byte) []byte) error {
	key, err := m.gpg.run(ctx, "--armor", "--export")
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(root, archiveKeyFile), key); err != nil {
		return err
	}
	if m.home == "" {
		return nil // newMaker has already added a note about this
	}
	return writeFile(filepath.Join(root, name), text(key))
}
