package e2e

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"workflowagent/internal/lab"
	"workflowagent/internal/release"
)

// checkDeb checks the .deb against the archive that was made with it.
func checkDeb(t *testing.T, dir string, archive map[string]member, wrap string) {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Log("dpkg-deb is not installed: the .deb was not looked at")
		return
	}
	deb := filepath.Join(dir, release.Program+"_"+lab.NextRelease[1:]+"-1_"+runtime.GOARCH+".deb")
	cmd := exec.CommandContext(t.Context(), "dpkg-deb", "--fsys-tarfile", deb)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	members := tarMembers(t, bytes.NewReader(out))
	const lib, doc = "usr/lib/" + release.Program, "usr/share/doc/" + release.Program
	want := map[string]fs.FileMode{
		"usr/bin/" + release.Program: 0o777, "usr/bin/" + release.OldName: 0o777,
		doc + "/copyright": 0o644, doc + "/changelog.Debian.gz": 0o644, doc + "/pulumi-workflow-agent.yaml.sample": 0o644,
		"usr/share/man/man1/*": 0o644, "usr/share/lintian/overrides/" + release.Program: 0o644,
	}
	for _, program := range release.Programs() {
		want[lib+"/"+program] = 0o755
		if !bytes.Equal(members[lib+"/"+program].data, archive[wrap+"/"+program].data) {
			t.Errorf("%s is another one in the .deb than in the archive", program)
		}
	}
	checkMembers(t, members, want)
	if version := say(t, dir, "dpkg-deb", "--field", deb, "Version"); version != lab.NextRelease[1:]+"-1\n" {
		t.Errorf("the .deb has the version %q", version)
	}
	checkLintian(t, deb)
}

// checkLintian has Debian's own checker look at the package. It must find nothing that
// packaging/deb/lintian-overrides does not explain.
func checkLintian(t *testing.T, deb string) {
	t.Helper()
	if _, err := exec.LookPath("lintian"); err != nil {
		t.Log("lintian is not installed: it was not asked")
		return
	}
	args := []string{"lintian", "--fail-on", "error,warning", deb}
	if os.Getuid() == 0 { // It wants no root, and needs none.
		home, err := os.MkdirTemp("", "lintian-") // where another user can come to
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(home) })
		data, err := os.ReadFile(deb)
		if err != nil {
			t.Fatal(err)
		}
		args[3] = filepath.Join(home, filepath.Base(deb))
		if err := errors.Join(os.WriteFile(args[3], data, 0o644), os.Chmod(home, 0o777)); err != nil {
			t.Fatal(err)
		}
		args = append([]string{"setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "env", "HOME=" + home, "TMPDIR=" + home}, args...)
	}
	say(t, "/", args...)
}

// checkRPM checks the signature of the .rpm as a machine does that knows only the key of
// the repository. Nothing is unpacked.
func checkRPM(t *testing.T, dir, key string) {
	t.Helper()
	if _, err := exec.LookPath("rpmkeys"); err != nil {
		t.Log("rpmkeys is not installed: the .rpm was not looked at")
		return
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.rpm"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the RPMs are %v, %v", files, err)
	}
	db := t.TempDir()
	say(t, db, "rpmkeys", "--dbpath", db, "--import", key)
	if out := say(t, db, "rpmkeys", "--dbpath", db, "--checksig", files[0]); !strings.Contains(out, "digests signatures OK") {
		t.Errorf("the signature of the RPM: %s", out)
	}
}
