package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"workflowagent/internal/host/release"
)

func yumTools() []tool { return append(gpgTools(), tool{"createrepo_c", "createrepo-c"}) }

// yum adds the .rpm packages to the mirror's repositories. Each channel is a repository and keeps
// all its versions.
func (m *maker) yum(ctx context.Context) error {
	root := filepath.Join(m.mirror, "yum")
	for _, channel := range channelsOf(m.version) {
		if err := m.copyPackages("*.rpm", filepath.Join(root, channel)); err != nil {
			return err
		}
		if err := m.yumChannel(ctx, filepath.Join(root, channel)); err != nil {
			return err
		}
	}
	return m.writeArchiveKey(ctx, root, release.Program+".repo", func([]byte) []byte { return m.yumRepo() })
}

func (m *maker) yumChannel(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { // without a Linux platform the release has no packages
		return fmt.Errorf("creating the repository: %w", err)
	}
	if _, err := output(exec.CommandContext(ctx, "createrepo_c", "--quiet", "--no-database", dir)); err != nil {
		return err
	}
	list := filepath.Join(dir, "repodata", "repomd.xml")
	_, err := m.gpg.run(ctx, "--armor", "--detach-sign", "--output", list+".asc", list)
	return err
}

// yumRepo returns the file for /etc/yum.repos.d. Both packages and lists must be signed.
func (m *maker) yumRepo() []byte {
	var text bytes.Buffer
	fmt.Fprintln(&text, "# Put this file into /etc/yum.repos.d/.")
	for _, channel := range []string{release.Stable, release.Beta} {
		enabled := 0
		if channel == m.defaultChannel() {
			enabled = 1
		}
		fmt.Fprintf(&text, "\n[%[1]s-%[2]s]\nname=%[1]s, releases of the channel %[2]s\nbaseurl=%[3]s/yum/%[2]s\nenabled=%[4]d\ngpgcheck=1\nrepo_gpgcheck=1\ngpgkey=%[3]s/yum/%[5]s\n",
			release.Program, channel, m.home, enabled, archiveKeyFile)
	}
	return text.Bytes()
}
