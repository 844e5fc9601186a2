package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	"workflowagent/internal/host/release"
)

// publicKeyFile is a mirror's file with the public release keys. It is only a convenience: a client
// that verifies a release must have the keys from another source.
const publicKeyFile = "release-key.pem"

func (m *maker) publish(context.Context) error {
	if err := m.publishFiles(); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(m.mirror, publicKeyFile), m.publicPEM); err != nil {
		return err
	}
	return m.publishInstaller()
}

// publishFiles moves the release's files into the version's directory, atomically.
func (m *maker) publishFiles() error {
	entries, err := os.ReadDir(m.files)
	if err != nil {
		return fmt.Errorf("reading the release: %w", err)
	}
	if err := os.MkdirAll(m.mirror, 0o755); err != nil {
		return fmt.Errorf("creating the mirror: %w", err)
	}
	draft, err := os.MkdirTemp(m.mirror, ".new-")
	if err != nil {
		return fmt.Errorf("writing the mirror: %w", err)
	}
	defer func() { _ = os.RemoveAll(draft) }()
	for _, entry := range entries {
		if err := copyFile(filepath.Join(m.files, entry.Name()), filepath.Join(draft, entry.Name())); err != nil {
			return err
		}
	}
	if err := os.Chmod(draft, 0o755); err != nil {
		return fmt.Errorf("writing the mirror: %w", err)
	}
	final := filepath.Join(m.mirror, m.version)
	if err := os.RemoveAll(final); err != nil { // the version was already published
		return fmt.Errorf("replacing %s in the mirror: %w", m.version, err)
	}
	if err := os.Rename(draft, final); err != nil {
		return fmt.Errorf("writing the mirror: %w", err)
	}
	return nil
}

func channelsOf(version string) []string {
	if strings.Contains(version, "-") {
		return []string{release.Beta}
	}
	return []string{release.Stable, release.Beta}
}

// defaultChannel returns the channel for clients that choose none: stable, unless the mirror has no
// stable release.
func (m *maker) defaultChannel() string {
	_, err := os.Stat(filepath.Join(m.mirror, release.ChannelFile(release.Stable)))
	if err != nil && !slices.Contains(channelsOf(m.version), release.Stable) {
		return release.Beta
	}
	return release.Stable
}

// channels writes the files that name each channel's newest release. It must be the last step,
// because clients download a release once a channel names it.
func (m *maker) channels(context.Context) error {
	for _, channel := range channelsOf(m.version) {
		file := filepath.Join(m.mirror, release.ChannelFile(channel))
		newest, err := newestIn(file, m.version)
		if err != nil {
			return err
		}
		if newest != m.version {
			continue // a newer release exists, so the channel does not change
		}
		text := release.Channel{Version: m.version, Published: time.Now()}.Text()
		if err := m.writeSigned(file, text); err != nil {
			return err
		}
	}
	return nil
}

// newestIn returns the newer one of a version and the version that a channel file names, if the
// file exists.
func newestIn(file, version string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return version, nil
	} else if err != nil {
		return "", fmt.Errorf("reading the mirror: %w", err)
	}
	was, err := release.ParseChannel(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	old, err := semver.StrictNewVersion(strings.TrimPrefix(was.Version, "v"))
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	this, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v"))
	if err != nil {
		return "", fmt.Errorf("reading the version %s: %w", version, err)
	}
	if old.GreaterThan(this) {
		return was.Version, nil
	}
	return version, nil
}

// installerLines matches the lines of install.sh that a release fills in.
var installerLines = regexp.MustCompile(`(?m)^(RELEASE_URL|RELEASE_KEY|RELEASE_CHANNEL)=""$`)

// publishInstaller writes install.sh with the home and the keys of this release.
func (m *maker) publishInstaller() error {
	script, err := os.ReadFile(filepath.Join(m.root, "install.sh"))
	if err != nil {
		return fmt.Errorf("reading the installer: %w", err)
	}
	if script, err = fillInstaller(script, m.home, m.defaultChannel(), m.publicPEM); err != nil {
		return err
	}
	return writeFile(filepath.Join(m.mirror, "install.sh"), script)
}

// fillInstaller returns the installer with a home, which can be empty, a default channel, and public
// keys.
func fillInstaller(script []byte, home, channel string, keys []byte) ([]byte, error) {
	values := map[string]string{"RELEASE_URL": home, "RELEASE_CHANNEL": channel, "RELEASE_KEY": base64.StdEncoding.EncodeToString(keys)}
	filled := installerLines.ReplaceAllFunc(script, func(line []byte) []byte {
		name, _, _ := strings.Cut(string(line), "=")
		value, ok := values[name]
		if !ok {
			return line // a second line with this name, which is counted below
		}
		delete(values, name)
		return []byte(name + `="` + value + `"`)
	})
	if len(values) > 0 || len(installerLines.FindAll(script, -1)) != 3 {
		return nil, errors.New(`install.sh must have the lines RELEASE_URL="", RELEASE_KEY="" and RELEASE_CHANNEL="" once each`)
	}
	return filled, nil
}

// homePattern restricts a mirror's URL, which is inserted into a shell script, configuration files
// and linker flags.
var homePattern = regexp.MustCompile(`^https?://[A-Za-z0-9.:\[\]_-]+(/[A-Za-z0-9._~/-]*)?$`)

// checkHome returns a valid mirror URL without trailing slashes, or an error.
func checkHome(home string) (string, error) {
	if home != "" && !homePattern.MatchString(home) {
		return "", &usageError{fmt.Errorf("invalid mirror URL %q: use the form https://releases.example.com/agent, without spaces, quotes or a query", home)}
	}
	return strings.TrimRight(home, "/"), nil
}
