package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"workflowagent/internal/dev/must"
)

// TestGoreleaserConfig checks that goreleaser's configuration differs from the repository's only in
// the directory and the platforms.
func TestGoreleaserConfig(t *testing.T) {
	m := newTestMaker(t)
	m.targets = []platform{{"linux", "arm64"}, {"darwin", "amd64"}}
	file := must.Get(m.goreleaserConfig("/elsewhere/build"))(t)
	var got, want map[string]any
	for name, into := range map[string]*map[string]any{file: &got, filepath.Join(m.root, ".goreleaser.yaml"): &want} {
		text := read(t, name)
		must.OK(t, yaml.Unmarshal(text, into))
	}
	builds, ok := got["builds"].([]any)
	if !ok || len(builds) != 4 {
		t.Fatalf("the builds are %v", got["builds"])
	}
	for _, b := range builds {
		build := b.(map[string]any)
		if !slices.Equal(build["targets"].([]any), []any{"linux_arm64", "darwin_amd64"}) || build["goos"] != nil || build["goarch"] != nil {
			t.Errorf("the targets of %s: %v %v %v", build["id"], build["targets"], build["goos"], build["goarch"])
		}
	}
	if got["dist"] != "/elsewhere/build" {
		t.Errorf("dist is %v", got["dist"])
	}
	for _, part := range []string{"dist", "builds"} {
		delete(got, part)
		delete(want, part)
	}
	one := must.Get(yaml.Marshal(got))(t)
	two := must.Get(yaml.Marshal(want))(t)
	if !bytes.Equal(one, two) {
		t.Errorf("the other settings are\n%s\nwant\n%s", one, two)
	}
}

// TestEnvironment checks that goreleaser's environment contains no key, but only the path of the
// GPG key's file.
func TestEnvironment(t *testing.T) {
	m := newTestMaker(t)
	m.version, m.gpgKeyFile = "v1.2.3", "/keys/gpg.asc"
	env := m.environment("dist/stage")
	for _, want := range []string{"VERSION=v1.2.3", "SOURCE_DATE=2026-11-22T01:02:03Z", "SOURCE_DATE_EPOCH=1795309323", "STAGE=dist/stage", "GPG_SIGNING_KEY=/keys/gpg.asc", "RELEASE_HOME=https://releases.example.com/agent"} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is not in %v", want, env)
		}
	}
	private := read(t, filepath.Join(m.cache, "release-keys", "release.pem"))
	for line := range strings.Lines(string(private)) {
		if strings.Contains(strings.Join(env, "\n"), strings.TrimSpace(line)) {
			t.Errorf("a line of the release key is in the environment")
		}
	}
}

// TestCollect checks that a release's directory contains no file of the previous release.
func TestCollect(t *testing.T) {
	m := newTestMaker(t)
	built := t.TempDir()
	for _, name := range []string{"a.tar.gz", "a.deb", "a.rpm", "config.yaml", "agent_linux_amd64_v1/agent"} {
		write(t, filepath.Join(built, name), []byte(name))
	}
	write(t, filepath.Join(m.files, "of-the-last.tar.gz"), nil)
	must.OK(t, m.collect(built))
	entries := must.Get(os.ReadDir(m.files))(t)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if want := []string{"a.deb", "a.rpm", "a.tar.gz"}; !slices.Equal(names, want) {
		t.Errorf("the release is %v, want %v", names, want)
	}
}

func TestChangelog(t *testing.T) {
	m := newTestMaker(t)
	m.version = "v1.2.3-rc.1"
	file := filepath.Join(t.TempDir(), "changelog.gz")
	must.OK(t, m.changelog("workflow-server", file))
	packed := read(t, file)
	r := must.Get(gzip.NewReader(bytes.NewReader(packed)))(t)
	if !r.ModTime.IsZero() || r.Name != "" {
		t.Errorf("the compressed file contains the name %q and the time %v", r.Name, r.ModTime)
	}
	text, err := io.ReadAll(r)
	want := "workflow-server (1.2.3~rc.1-1) stable; urgency=medium\n\n  * Release v1.2.3-rc.1.\n\n -- " + maintainer + "  Sun, 22 Nov 2026 01:02:03 +0000\n"
	if err != nil || string(text) != want {
		t.Errorf("the changes are %q, %v, want %q", text, err, want)
	}
	config, err := os.ReadFile(filepath.Join(m.root, ".goreleaser.yaml"))
	if err != nil || !strings.Contains(string(config), "maintainer: "+maintainer+"\n") {
		t.Errorf(".goreleaser.yaml names another maintainer than %s (%v)", maintainer, err)
	}
}
