package packages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/host/release"
)

func releases(t *testing.T) lab.Releases {
	t.Helper()
	if reason, ok := lab.ReleasesAvailable(); !ok {
		t.Skip(reason)
	}
	r := must.Get(lab.MakeReleases(t.Context(), os.Stderr))(t)
	return r
}

type member struct {
	header *tar.Header
	data   []byte
}

func tarMembers(t *testing.T, archive io.Reader) map[string]member {
	t.Helper()
	members := map[string]member{}
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return members
		}
		must.OK(t, err)
		if header.Typeflag == tar.TypeDir {
			continue
		}
		data := must.Get(io.ReadAll(r))(t)
		members[path.Clean(header.Name)] = member{header, data}
	}
}

func archiveMembers(t *testing.T, file string) map[string]member {
	t.Helper()
	data := harness.Read(t, file)
	unpacked := must.Get(gzip.NewReader(bytes.NewReader(data)))(t)
	return tarMembers(t, unpacked)
}

// checkMembers compares the members with want, which maps names to modes. A name that ends with *
// matches one or more members.
func checkMembers(t *testing.T, members map[string]member, want map[string]fs.FileMode) {
	t.Helper()
	for name, m := range members {
		mode, ok := want[name]
		if !ok {
			mode, ok = want[path.Join(path.Dir(name), "*")]
		}
		if !ok {
			t.Errorf("%s is unexpected", name)
			continue
		}
		if m.header.Uid != 0 || m.header.Gid != 0 || m.header.Typeflag != tar.TypeSymlink && fs.FileMode(m.header.Mode).Perm() != mode {
			t.Errorf("%s has mode %o and is of %d:%d, want %o of root", name, m.header.Mode, m.header.Uid, m.header.Gid, mode)
		}
	}
	for name := range want {
		found := slices.ContainsFunc(slices.Collect(maps.Keys(members)), func(have string) bool {
			return have == name || path.Base(name) == "*" && path.Dir(have) == path.Dir(name)
		})
		if !found {
			t.Errorf("%s is missing", name)
		}
	}
}

// TestPackagesContents checks that the archives contain the files that installers expect, and that
// their programs are static, report their version, and are identical in every form of the release.
func TestPackagesContents(t *testing.T) {
	r := releases(t)
	dir := r.Dir(lab.NextRelease)
	archive := must.Get(release.Archive(lab.NextRelease, runtime.GOOS, runtime.GOARCH))(t)
	wrap := strings.TrimSuffix(archive, ".tar.gz")
	members := archiveMembers(t, filepath.Join(dir, archive))
	want := map[string]fs.FileMode{
		wrap + "/" + release.OldName: 0o777, wrap + "/LICENSE": 0o644, wrap + "/THIRD_PARTY_NOTICES": 0o644, wrap + "/pulumi-workflow-agent.yaml.sample": 0o644, wrap + "/man/*": 0o644,
	}
	for _, program := range release.Programs() {
		want[wrap+"/"+program] = 0o755
	}
	checkMembers(t, members, want)
	if old := members[wrap+"/"+release.OldName]; old.header == nil || old.header.Linkname != release.Program {
		t.Errorf("the old name is %+v", old.header)
	}
	public := harness.Read(t, r.PublicKey)
	for _, builtin := range []string{lab.ReleaseHome, base64.StdEncoding.EncodeToString(public)} {
		if !bytes.Contains(members[wrap+"/"+release.Program].data, []byte(builtin)) {
			t.Errorf("the agent does not contain %s", builtin)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	native := "workflow-runner-embeddable"
	if runtime.GOARCH == "arm64" {
		native += "-arm64"
	}
	if !bytes.Equal(members[wrap+"/workflow-runner"].data, members[wrap+"/"+native].data) {
		t.Errorf("workflow-runner and %s are different builds of the same program", native)
	}
	for name, machine := range map[string]elf.Machine{"workflow-runner-embeddable": elf.EM_X86_64, "workflow-runner-embeddable-arm64": elf.EM_AARCH64} {
		file := must.Get(elf.NewFile(bytes.NewReader(members[wrap+"/"+name].data)))(t)
		if file.Machine != machine || slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			t.Errorf("%s is for %v, want a static program for %v", name, file.Machine, machine)
		}
	}
	for _, program := range []string{release.Program, "workflow-runner"} {
		file := filepath.Join(t.TempDir(), program)
		harness.Write(t, file, members[wrap+"/"+program].data, 0o755)
		if got := strings.TrimSpace(harness.Say(t, "/", file, "version")); got != lab.NextRelease {
			t.Errorf("%s says that it is %s, want %s", program, got, lab.NextRelease)
		}
	}
	checkDeb(t, dir, members, wrap)
	checkRPM(t, dir, r.ArchiveKey)
	checkServer(t, dir)
}

// TestPackagesSignatures checks that the list of checksums is signed with the mirror's key and
// contains every file of the release, and that a changed file is detected.
func TestPackagesSignatures(t *testing.T) {
	r := releases(t)
	public := harness.Read(t, r.PublicKey)
	keys := must.Get(release.ParseKeys(public))(t)
	signed := func(file string) []byte {
		t.Helper()
		text := harness.Read(t, file)
		signature := harness.Read(t, file+release.SignatureSuffix)
		if err := keys.Verify(text, signature); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		return text
	}
	for _, version := range []string{lab.FirstRelease, lab.NextRelease} {
		sums := must.Get(release.ParseChecksums(signed(filepath.Join(r.Dir(version), release.ChecksumsFile))))(t)
		entries := must.Get(os.ReadDir(r.Dir(version)))(t)
		for _, entry := range entries {
			name := entry.Name()
			if strings.HasPrefix(name, release.ChecksumsFile) {
				continue
			}
			data := harness.Read(t, filepath.Join(r.Dir(version), name))
			if sum, ok := sums[name]; !ok || sum != sha256.Sum256(data) {
				t.Errorf("%s: the list says %x of %s (listed: %v)", version, sum, name, ok)
			}
			delete(sums, name)
		}
		if len(sums) > 0 {
			t.Errorf("%s: the list has missing files: %v", version, slices.Collect(maps.Keys(sums)))
		}
	}
	installer := harness.Read(t, filepath.Join(r.Mirror, "install.sh"))
	for _, line := range []string{`RELEASE_URL="` + lab.ReleaseHome + `"`, `RELEASE_KEY="` + base64.StdEncoding.EncodeToString(public) + `"`} {
		if !strings.Contains(string(installer), "\n"+line+"\n") {
			t.Errorf("install.sh does not have the line %s", line)
		}
	}
	for _, channel := range []string{release.Stable, release.Beta} {
		c, err := release.ParseChannel(signed(filepath.Join(r.Mirror, release.ChannelFile(channel))))
		if err != nil || c.Version != lab.NextRelease {
			t.Errorf("%s: %+v, %v", channel, c, err)
		}
	}
}
