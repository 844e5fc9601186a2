package installer

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/host/release"
)

// TestForgery checks that the installer rejects a release that the mirror has changed, with one
// clear message and exit code 1. It must change neither an empty disk nor an existing installation.
func TestForgery(t *testing.T) {
	t.Parallel()
	flip := func(t *testing.T, path string) {
		t.Helper()
		data := must.Get(os.ReadFile(path))(t)
		data[len(data)/2] ^= 1
		writeFile(t, path, data, 0o644)
	}
	type forgery struct {
		forge func(t *testing.T, m *mirror)
		says  string
	}
	forgeries := map[string]forgery{
		"tampered archive":   {func(t *testing.T, m *mirror) { flip(t, filepath.Join(m.dir, "v1.2.3", host(t, "v1.2.3"))) }, "the checksum of customer-managed-workflow-agent-v1.2.3-"},
		"tampered checksums": {func(t *testing.T, m *mirror) { flip(t, filepath.Join(m.dir, "v1.2.3/checksums.txt")) }, "the signature of checksums.txt"},
		"tampered channel":   {func(t *testing.T, m *mirror) { flip(t, filepath.Join(m.dir, "stable.txt")) }, "the signature of stable.txt"},
		"tampered signature": {func(t *testing.T, m *mirror) { flip(t, filepath.Join(m.dir, "v1.2.3/checksums.txt.sig")) }, "the signature of checksums.txt"},
		"empty signature":    {func(t *testing.T, m *mirror) { writeFile(t, filepath.Join(m.dir, "stable.txt.sig"), nil, 0o644) }, "the signature of stable.txt"},
		"missing signature":  {func(t *testing.T, m *mirror) { remove(t, m, "v1.2.3/checksums.txt.sig") }, "has no signature for checksums.txt"},
		"unsigned channel":   {func(t *testing.T, m *mirror) { remove(t, m, "stable.txt.sig") }, "has no signature for stable.txt"},
		"another's key":      {func(t *testing.T, m *mirror) { m.key = newKey(t); m.newest(t, "v1.2.3") }, "the signature of stable.txt"},
		"another's list":     {func(t *testing.T, m *mirror) { m.key = newKey(t); m.release(t, "v1.2.3") }, "the signature of checksums.txt"},
		"no channel":         {func(t *testing.T, m *mirror) { remove(t, m, "stable.txt") }, "has no channel stable"},
		"no such release":    {func(t *testing.T, m *mirror) { m.channel(t, "stable", "v9.9.9") }, "has no release v9.9.9"},
		"no archive":         {func(t *testing.T, m *mirror) { remove(t, m, "v1.2.3/"+host(t, "v1.2.3")) }, "has no customer-managed-workflow-agent-v1.2.3"},
		"strange version":    {func(t *testing.T, m *mirror) { m.put(t, "stable.txt", []byte("version: v1.2.3/../..\n"), m.key) }, "names no version"},
		"two versions": {func(t *testing.T, m *mirror) {
			m.put(t, "stable.txt", []byte("version: v1.2.3\nversion: v1.2.4\n"), m.key)
		}, "names no version"},
		"other release's": {func(t *testing.T, m *mirror) { m.release(t, "v1.2.4"); move(t, m, "v1.2.4", "v1.2.3") }, "it is the list of another release"},
		"signed nonsense": {func(t *testing.T, m *mirror) {
			m.put(t, "v1.2.3/checksums.txt", []byte("; rm -rf x  "+host(t, "v1.2.3")+"\n"), m.key)
		}, "it is the list of another release"},
		"other directory": {func(t *testing.T, m *mirror) { m.sign(t, archive(t, "elsewhere", members(t, "v1.2.3"))) }, "the agent v1.2.3 does not run on this machine"},
		"no programs":     {func(t *testing.T, m *mirror) { m.sign(t, archive(t, top(t), members(t, "v1.2.3")[:3])) }, "the agent v1.2.3 does not run on this machine"},
		"other's version": {func(t *testing.T, m *mirror) { m.sign(t, archive(t, top(t), members(t, "v1.2.2"))) }, "reports the version v1.2.2"},
		"not an archive":  {func(t *testing.T, m *mirror) { m.sign(t, []byte("not an archive")) }, "the agent v1.2.3 does not run on this machine"},
		"evil member":     {func(t *testing.T, m *mirror) { m.release(t, "v1.2.3", member{name: "../../evil", data: []byte("x")}) }, `"../../evil" is not in the directory`},
	}
	for name, c := range forgeries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMirror(t, "v1.2.3")
			b := newBox(t, m, dash(t))
			b.script = m.script(t)
			c.forge(t, m)
			out := b.want(t, 1, []string{c.says})
			if strings.Count(out, "\n") != 1 {
				t.Errorf("it prints more than one line:\n%s", out)
			}
			b.nothing(t)

			old := newMirror(t, "v1.0.0")
			b.want(t, 0, nil, "--mirror", old.url, "--key", old.keyFile)
			b.want(t, 1, []string{c.says})
			b.whole(t, "v1.0.0", "")
		})
	}
}

func top(t *testing.T) string {
	t.Helper()
	return strings.TrimSuffix(host(t, "v1.2.3"), ".tar.gz")
}

func (m *mirror) sign(t *testing.T, packed []byte) {
	t.Helper()
	var text bytes.Buffer
	must.Get((release.Checksums{host(t, "v1.2.3"): sha256.Sum256(packed)}).WriteTo(&text))(t)
	writeFile(t, filepath.Join(m.dir, "v1.2.3", host(t, "v1.2.3")), packed, 0o644)
	m.put(t, "v1.2.3/checksums.txt", text.Bytes(), m.key)
}

func remove(t *testing.T, m *mirror, name string) {
	t.Helper()
	must.OK(t, os.Remove(filepath.Join(m.dir, name)))
}

func move(t *testing.T, m *mirror, from, to string) {
	t.Helper()
	must.OK(t, os.RemoveAll(filepath.Join(m.dir, to)))
	must.OK(t, os.Rename(filepath.Join(m.dir, from), filepath.Join(m.dir, to)))
}

func TestMachines(t *testing.T) {
	t.Parallel()
	intel := machine(t, "Darwin", "x86_64")
	rosetta := machine(t, "Darwin", "x86_64")
	writeFile(t, filepath.Join(intel, "sysctl"), []byte("#!/bin/sh\nexit 1\n"), 0o755)
	writeFile(t, filepath.Join(rosetta, "sysctl"), []byte("#!/bin/sh\necho 1\n"), 0o755)
	for name, c := range map[string]struct {
		path, want string // want is the archive's platform; "" means none
	}{
		"linux amd64": {machine(t, "Linux", "amd64"), "linux-x64"},
		"linux arm64": {machine(t, "Linux", "aarch64"), "linux-arm64"},
		"mac":         {machine(t, "Darwin", "arm64"), "darwin-arm64"},
		"old mac":     {intel, "darwin-x64"},
		"rosetta":     {rosetta, "darwin-arm64"},
		"i386":        {machine(t, "Linux", "i686"), ""},
		"arm 32":      {machine(t, "Linux", "armv7l"), ""},
		"freebsd":     {machine(t, "FreeBSD", "amd64"), ""},
		"windows":     {machine(t, "MINGW64_NT-10.0", "x86_64"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMirror(t, "v1.2.3")
			b := newBox(t, m, dash(t))
			b.path = []string{c.path}
			if c.want == "" {
				b.want(t, 1, []string{"no agent is available for this machine", "Linux and macOS", "x86-64", "ARM64"})
				b.nothing(t)
				return
			}
			b.run(t) // can fail later, because the archive contains this machine's agent
			if asked := m.downloads(); !strings.Contains(asked, c.want+".tar.gz") {
				t.Errorf("it downloaded %s", asked)
			}
		})
	}
}

// TestMissingTools checks that the installer names each missing program, its purpose and its
// package.
func TestMissingTools(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.2.3")
	for lacking, from := range map[string]string{
		"awk": "gawk", "tar": "tar", "gzip": "gzip", "openssl": "openssl", "mktemp": "mktemp", "curl": "curl",
	} {
		t.Run(lacking, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, m, dash(t))
			b.only = tools(t, without(used, lacking)...)
			writeFile(t, filepath.Join(b.only, "apk"), nil, 0o755)
			b.want(t, 1, []string{"this machine lacks " + lacking, "apk add " + from})
			b.nothing(t)
		})
	}
}

// TestPackaged checks that the installer does not change an agent that a package manager installed,
// and names the package manager's command.
func TestPackaged(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.2.3")
	for name, c := range map[string]struct {
		manager, said, upgrade, remove string
	}{
		"dpkg": {"dpkg-query", release.Program + ": file", "apt-get install --only-upgrade", "apt-get remove"},
		"rpm":  {"rpm", release.Program, "dnf upgrade", "dnf remove"},
		"brew": {"", "", "brew upgrade", "brew uninstall"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, m, dash(t))
			dir := t.TempDir()
			agent := filepath.Join(dir, release.Program)
			if c.manager == "" {
				cellar := filepath.Join(dir, "Cellar", release.Program, release.Program)
				writeFile(t, cellar, []byte("#!/bin/sh\nexit 1\n"), 0o755)
				must.OK(t, os.Symlink(cellar, agent))
				agent = cellar
			} else {
				writeFile(t, agent, []byte("#!/bin/sh\nexit 1\n"), 0o755)
				writeFile(t, filepath.Join(dir, c.manager), []byte("#!/bin/sh\nfor file; do :; done\nif [ \"$file\" != "+agent+" ]; then exit 1; fi\necho "+c.said+"\n"), 0o755)
			}
			b.path = []string{dir}
			b.want(t, 1, []string{agent, c.upgrade + " " + release.Program})
			b.want(t, 1, []string{agent, c.remove + " " + release.Program}, "--uninstall", "--purge")
			b.nothing(t)
		})
	}
}
