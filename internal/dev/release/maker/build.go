package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
	"golang.org/x/term"
)

// build runs goreleaser, which compiles the programs and creates archives and packages, and moves
// them into the release's directory.
func (m *maker) build(ctx context.Context) error {
	dist := filepath.Join(m.dist, "build")
	config, err := m.goreleaserConfig(dist)
	if err != nil {
		return err
	}
	stage, err := filepath.Rel(m.root, m.staged)
	if err != nil {
		return fmt.Errorf("finding the staged files: %w", err)
	}
	for _, args := range [][]string{
		{"check"}, // fails if the configuration uses deprecated settings
		// Builds run one at a time, so that the order of an archive's members does not depend on
		// which build finishes first. The compiler uses all processors anyway.
		{"release", "--snapshot", "--clean", "--parallelism", "1", "--config"},
	} {
		cmd := exec.CommandContext(ctx, m.goreleaser, append(args, config)...)
		cmd.Dir = m.root
		cmd.Env = append(os.Environ(), m.environment(stage)...)
		if !term.IsTerminal(int(os.Stderr.Fd())) {
			cmd.Env = append(cmd.Env, "NO_COLOR=1", "CI=") // without this, goreleaser colours its output in CI
		}
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("goreleaser %s: %w", args[0], err)
		}
	}
	return m.collect(dist)
}

func (m *maker) environment(stage string) []string {
	signing := m.gpgKeyFile
	if m.gpg != nil {
		signing = m.gpg.file
	}
	return []string{
		"VERSION=" + m.version,
		"SOURCE_DATE=" + m.time.Format(time.RFC3339),
		fmt.Sprintf("SOURCE_DATE_EPOCH=%d", m.time.Unix()),
		"STAGE=" + stage,
		"RELEASE_PUBLIC_KEYS=" + base64.StdEncoding.EncodeToString(m.publicPEM),
		"RELEASE_HOME=" + m.home,
		"GPG_SIGNING_KEY=" + signing,
	}
}

// goreleaserConfig writes a copy of .goreleaser.yaml with the output directory and the platforms of
// this run, and returns the copy's path.
func (m *maker) goreleaserConfig(dist string) (string, error) {
	text, err := os.ReadFile(filepath.Join(m.root, ".goreleaser.yaml"))
	if err != nil {
		return "", fmt.Errorf("reading the configuration: %w", err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(text, &config); err != nil {
		return "", fmt.Errorf("reading .goreleaser.yaml: %w", err)
	}
	config["dist"] = dist
	builds, _ := config["builds"].([]any)
	for _, b := range builds {
		build, ok := b.(map[string]any)
		if !ok {
			return "", fmt.Errorf("reading .goreleaser.yaml: a build is not a mapping")
		}
		delete(build, "goos")
		delete(build, "goarch")
		var targets []string
		for _, p := range m.targets {
			targets = append(targets, p.os+"_"+p.arch)
		}
		build["targets"] = targets
	}
	if text, err = yaml.Marshal(config); err != nil {
		return "", fmt.Errorf("writing the configuration: %w", err)
	}
	file := filepath.Join(m.scratch, "goreleaser.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", fmt.Errorf("writing the configuration: %w", err)
	}
	return file, nil
}

// collect empties the directory of the release's files and moves the archives and packages into it.
func (m *maker) collect(dist string) error {
	if err := os.RemoveAll(m.files); err != nil {
		return fmt.Errorf("clearing the last release: %w", err)
	}
	if err := os.MkdirAll(m.files, 0o755); err != nil {
		return fmt.Errorf("creating the release's directory: %w", err)
	}
	entries, err := os.ReadDir(dist)
	if err != nil {
		return fmt.Errorf("reading goreleaser's output directory: %w", err)
	}
	for _, entry := range entries {
		if !isPackage(entry.Name()) {
			continue
		}
		if err := os.Rename(filepath.Join(dist, entry.Name()), filepath.Join(m.files, entry.Name())); err != nil {
			return fmt.Errorf("moving %s: %w", entry.Name(), err)
		}
	}
	return nil
}

func isPackage(name string) bool {
	for _, suffix := range []string{".tar.gz", ".deb", ".rpm"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// debianVersion returns a version in the form for packages, in which 1.2.3~rc.1 sorts before 1.2.3.
func debianVersion(version string) string {
	return strings.Replace(strings.TrimPrefix(version, "v"), "-", "~", 1)
}
