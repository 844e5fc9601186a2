package packages

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/host/release"
)

func checkDeb(t *testing.T, dir string, archive map[string]member, wrap string) {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Log("dpkg-deb is not installed: the .deb was not checked")
		return
	}
	deb := filepath.Join(dir, release.Program+"_"+lab.NextRelease[1:]+"-1_"+runtime.GOARCH+".deb")
	cmd := exec.CommandContext(t.Context(), "dpkg-deb", "--fsys-tarfile", deb)
	out := must.Get(cmd.Output())(t)
	members := tarMembers(t, bytes.NewReader(out))
	const lib, doc = "usr/lib/" + release.Program, "usr/share/doc/" + release.Program
	want := map[string]fs.FileMode{
		"usr/bin/" + release.Program: 0o777, "usr/bin/" + release.OldName: 0o777,
		doc + "/pulumi-workflow-agent.schema.json": 0o644, doc + "/copyright": 0o644, doc + "/THIRD_PARTY_NOTICES": 0o644,
		doc + "/changelog.Debian.gz": 0o644, doc + "/pulumi-workflow-agent.yaml.sample": 0o644,
		"usr/share/bash-completion/completions/" + release.Program: 0o644, "usr/share/zsh/vendor-completions/_" + release.Program: 0o644,
		"usr/share/fish/vendor_completions.d/" + release.Program + ".fish": 0o644,
		"usr/share/man/man1/*": 0o644, "usr/share/lintian/overrides/" + release.Program: 0o644,
	}
	for _, program := range release.Programs() {
		want[lib+"/"+program] = 0o755
		if !bytes.Equal(members[lib+"/"+program].data, archive[wrap+"/"+program].data) {
			t.Errorf("%s differs between the .deb and the archive", program)
		}
	}
	checkMembers(t, members, want)
	checkCompletions(t, members, release.Program, lib)
	checkImage(t, members[lib+"/"+release.Program].data)
	if version := harness.Say(t, dir, "dpkg-deb", "--field", deb, "Version"); version != lab.NextRelease[1:]+"-1\n" {
		t.Errorf("the .deb has the version %q", version)
	}
	checkLintian(t, deb)
}

// checkCompletions checks that the completion files match the output of the packaged program, which is in
// the directory bin, and that bash accepts its file.
func checkCompletions(t *testing.T, members map[string]member, name, bin string) {
	t.Helper()
	dir := t.TempDir()
	program, script := filepath.Join(dir, name), filepath.Join(dir, "script")
	harness.Write(t, program, members[bin+"/"+name].data, 0o755)
	for shell, file := range map[string]string{
		"bash": "bash-completion/completions/" + name, "zsh": "zsh/vendor-completions/_" + name, "fish": "fish/vendor_completions.d/" + name + ".fish",
	} {
		text := members["usr/share/"+file].data
		if string(text) != harness.Say(t, dir, program, "completion", shell) {
			t.Errorf("the completions of %s differ from those of %s", shell, name)
		}
		if shell == "zsh" && !bytes.HasPrefix(text, []byte("#compdef "+name+"\n")) {
			t.Error("the zsh completions do not name the program")
		}
		if shell == "bash" {
			harness.Write(t, script, text, 0o644)
			harness.Say(t, dir, "bash", "-c", ". ./script && complete -p "+name)
		}
	}
}

// checkImage checks the command with which the package's script registers the service, as in an
// image build. The root directory contains only the agent and the account files, and no /proc.
func checkImage(t *testing.T, agent []byte) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Log("the registration in an image needs root and was not checked")
		return
	}
	root := t.TempDir()
	const program = "/usr/lib/" + release.Program + "/" + release.Program
	for name, text := range map[string][]byte{
		program: agent, "/etc/passwd": []byte("root:x:0:0::/:/bin/sh\nworkflow-agent:x:990:990::/:/bin/false\n"), "/etc/group": []byte("workflow-agent:x:990:\n"),
	} {
		file := filepath.Join(root, name)
		must.OK(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o755)))
	}
	cmd := exec.CommandContext(t.Context(), program, "service", "install", "--packaged")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("in an image: %v\n%s", err, out)
	}
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system", release.Program+".service"))
	if err != nil || !bytes.Contains(unit, []byte("ExecStart="+program+" run ")) {
		t.Errorf("in an image: %v\n%s", err, unit)
	}
}

// checkLintian runs Debian's own checker on the package. All of its findings must be explained in
// packaging/deb/lintian-overrides.
func checkLintian(t *testing.T, deb string) {
	t.Helper()
	if _, err := exec.LookPath("lintian"); err != nil {
		t.Log("lintian is not installed: its checks were skipped")
		return
	}
	asNobody(t, []string{deb}, "lintian", "--fail-on", "error,warning", filepath.Base(deb))
}

// asNobody runs a checker in a directory with copies of files. No checker needs root: lintian refuses it,
// and rpmlint would unpack an RPM onto this machine's own files.
func asNobody(t *testing.T, files []string, command ...string) {
	t.Helper()
	home := must.Get(os.MkdirTemp("", "checked-"))(t) // another user can enter it
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	must.OK(t, os.Chmod(home, 0o777))
	for _, file := range files {
		must.OK(t, os.WriteFile(filepath.Join(home, filepath.Base(file)), harness.Read(t, file), 0o644))
	}
	args := append([]string{"env", "HOME=" + home, "TMPDIR=" + home}, command...)
	if os.Getuid() == 0 {
		args = append([]string{"setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"}, args...)
	}
	harness.Say(t, home, args...)
}

// checkRPM checks the .rpm's signature as on a machine that trusts only the repository's key. It
// does not unpack the .rpm.
func checkRPM(t *testing.T, dir, key string) {
	t.Helper()
	if _, err := exec.LookPath("rpmkeys"); err != nil {
		t.Log("rpmkeys is not installed: the .rpm was not checked")
		return
	}
	file := rpmOf(t, dir, release.Program)
	list := harness.Say(t, dir, "rpm", "--query", "--package", "--nosignature", "--list", file)
	for _, name := range []string{
		"bash-completion/completions/" + release.Program, "zsh/site-functions/_" + release.Program, "fish/vendor_completions.d/" + release.Program + ".fish",
	} {
		if !strings.Contains(list, "\n/usr/share/"+name+"\n") {
			t.Errorf("the RPM lacks %s", name)
		}
	}
	checkSignature(t, file, key)
}

func rpmOf(t *testing.T, dir, name string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, name+"-[0-9]*.rpm"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the RPMs of %s are %v, %v", name, files, err)
	}
	return files[0]
}

func checkSignature(t *testing.T, file, key string) {
	t.Helper()
	db := t.TempDir()
	harness.Say(t, db, "rpmkeys", "--dbpath", db, "--import", key)
	if out := harness.Say(t, db, "rpmkeys", "--dbpath", db, "--checksig", file); !strings.Contains(out, "digests signatures OK") {
		t.Errorf("the signature of the RPM: %s", out)
	}
}
