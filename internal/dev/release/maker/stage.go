package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"workflowagent/internal/host/release"
)

// stage creates the files of archives and packages that goreleaser does not compile.
func (m *maker) stage(ctx context.Context) error {
	// goreleaser accepts only files below its working directory. git ignores dist.
	if err := os.MkdirAll(filepath.Join(m.root, "dist"), 0o755); err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	dir, err := os.MkdirTemp(filepath.Join(m.root, "dist"), "stage-")
	if err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	m.staged = dir
	// Each archive contains the runners for Linux containers, regardless of the agent's platform.
	for name, arch := range map[string]string{
		"workflow-runner-embeddable":       "amd64",
		"workflow-runner-embeddable-arm64": "arm64",
	} {
		if err := m.compile(ctx, filepath.Join(dir, "embeddable", name), arch); err != nil {
			return err
		}
	}
	if err := os.Symlink(release.Program, filepath.Join(dir, release.OldName)); err != nil {
		return fmt.Errorf("creating the link with the old name: %w", err)
	}
	if _, err := m.generated(ctx, release.Program, dir); err != nil {
		return err
	}
	server, err := m.generated(ctx, release.Server, filepath.Join(dir, "server"))
	if err != nil {
		return err
	}
	// The packages contain what "service install" writes for archives.
	if _, err := output(exec.CommandContext(ctx, server, "service", "files", "--dir", filepath.Join(dir, "server", "files"))); err != nil {
		return err
	}
	return m.copyright(filepath.Join(dir, "copyright"))
}

func (m *maker) compile(ctx context.Context, to, arch string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true",
		"-ldflags", "-s -w -X main.version="+m.version, "-o", to, "./cmd/workflow-runner")
	cmd.Dir = m.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	_, err := output(cmd)
	return err
}

// generated builds a program and writes its manual pages, completion files and changelog to a directory.
func (m *maker) generated(ctx context.Context, name, dir string) (program string, err error) {
	program = filepath.Join(m.scratch, name)
	// With the same flags as the other builds, each package is compiled only once.
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+m.version,
		"-o", program, "./cmd/"+name)
	build.Dir = m.root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if _, err := output(build); err != nil {
		return "", err
	}
	if err := m.manual(ctx, program, dir); err != nil {
		return "", err
	}
	if err := completions(ctx, program, filepath.Join(dir, "completions")); err != nil {
		return "", err
	}
	return program, m.changelog(name, filepath.Join(dir, "changelog.Debian.gz"))
}

// completions writes a program's completion files under the names that each shell expects.
func completions(ctx context.Context, program, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	base := filepath.Base(program)
	for shell, name := range map[string]string{"bash": base, "zsh": "_" + base, "fish": base + ".fish"} {
		text, err := output(exec.CommandContext(ctx, program, "completion", shell))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return fmt.Errorf("writing the completions of %s: %w", shell, err)
		}
	}
	return nil
}

// manual writes the manual pages, uncompressed for archives and compressed for packages.
func (m *maker) manual(ctx context.Context, program, dir string) error {
	plain, packed := filepath.Join(dir, "man"), filepath.Join(dir, "man-gz")
	cmd := exec.CommandContext(ctx, program, "man", "--dir", plain)
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", m.time.Unix()))
	if _, err := output(cmd); err != nil {
		return err
	}
	if err := os.Mkdir(packed, 0o755); err != nil {
		return fmt.Errorf("creating a directory: %w", err)
	}
	pages, err := os.ReadDir(plain)
	if err != nil {
		return fmt.Errorf("reading the manual pages: %w", err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(plain, page.Name()))
		if err != nil {
			return fmt.Errorf("reading a manual page: %w", err)
		}
		if err := writeGzip(filepath.Join(packed, page.Name()+".gz"), text); err != nil {
			return err
		}
	}
	return nil
}

const maintainer = "The workflowagent developers <maintainers@example.invalid>"

// changelog writes a Debian changelog that contains only this version, because the published
// release describes its changes.
func (m *maker) changelog(name, file string) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s (%s-1) stable; urgency=medium\n\n  * Release %s.\n\n -- %s  %s\n",
		name, debianVersion(m.version), m.version, maintainer, m.time.Format(time.RFC1123Z))
	return writeGzip(file, text.Bytes())
}

func (m *maker) copyright(file string) error {
	text := fmt.Sprintf(`Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: workflowagent

Files: *
Copyright: %d The workflowagent developers
License: Apache-2.0
 On Debian systems, the text of the Apache License version 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
`, m.time.Year())
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing the copyright: %w", err)
	}
	return nil
}

// writeGzip compresses reproducibly, without a name or a time.
func writeGzip(file string, text []byte) error {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return fmt.Errorf("compressing: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("compressing: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("compressing: %w", err)
	}
	if err := os.WriteFile(file, packed.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the compressed file: %w", err)
	}
	return nil
}
