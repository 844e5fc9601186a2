package packages

import (
	"bytes"
	"io/fs"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/host/release"
)

// checkServer checks the server's archive and packages.
func checkServer(t *testing.T, dir string) {
	t.Helper()
	archive := must.Get(release.ServerArchive(lab.NextRelease, runtime.GOOS, runtime.GOARCH))(t)
	wrap := strings.TrimSuffix(archive, ".tar.gz")
	archived := archiveMembers(t, filepath.Join(dir, archive))
	checkMembers(t, archived, map[string]fs.FileMode{
		wrap + "/" + release.Server: 0o755, wrap + "/" + release.Evaluator: 0o755, wrap + "/LICENSE": 0o644, wrap + "/THIRD_PARTY_NOTICES": 0o644, wrap + "/man/*": 0o644,
		wrap + "/workflow-server.yaml.sample": 0o644, wrap + "/workflow-server.schema.json": 0o644,
	})
	checkServerDeb(t, dir, archived[wrap+"/"+release.Server].data)
	checkServerRPM(t, dir)
}

func checkServerDeb(t *testing.T, dir string, program []byte) {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Log("dpkg-deb is not installed: the server's .deb was not checked")
		return
	}
	deb := filepath.Join(dir, release.Server+"_"+lab.NextRelease[1:]+"-1_"+runtime.GOARCH+".deb")
	out := must.Get(exec.CommandContext(t.Context(), "dpkg-deb", "--fsys-tarfile", deb).Output())(t)
	members := tarMembers(t, bytes.NewReader(out))
	const doc = "usr/share/doc/" + release.Server
	checkMembers(t, members, map[string]fs.FileMode{
		"usr/bin/" + release.Server: 0o755, "usr/bin/" + release.Evaluator: 0o755, "usr/share/workflow-server/workflow-server.yaml": 0o644,
		"usr/lib/systemd/system/workflow-server.service": 0o644, "usr/lib/sysusers.d/workflow-server.conf": 0o644, "usr/lib/tmpfiles.d/workflow-server.conf": 0o644,
		doc + "/copyright": 0o644, doc + "/THIRD_PARTY_NOTICES": 0o644, doc + "/changelog.Debian.gz": 0o644, doc + "/workflow-server.yaml.sample": 0o644, doc + "/workflow-server.schema.json": 0o644,
		"usr/share/bash-completion/completions/" + release.Server: 0o644, "usr/share/zsh/vendor-completions/_" + release.Server: 0o644,
		"usr/share/fish/vendor_completions.d/" + release.Server + ".fish": 0o644,
		"usr/share/man/man1/*": 0o644, "usr/share/lintian/overrides/" + release.Server: 0o644,
	})
	if !bytes.Equal(members["usr/bin/"+release.Server].data, program) {
		t.Error("the server differs between the .deb and the archive")
	}
	checkCompletions(t, members, release.Server, "usr/bin")
	if control := harness.Say(t, dir, "dpkg-deb", "--info", deb); strings.Contains(control, "conffiles") {
		t.Errorf("dpkg can ask about conffiles:\n%s", control)
	}
	server := filepath.Join(t.TempDir(), release.Server)
	harness.Write(t, server, program, 0o755)
	config := filepath.Join(filepath.Dir(server), "workflow-server.yaml")
	harness.Write(t, config, members["usr/share/workflow-server/workflow-server.yaml"].data, 0o600)
	harness.Say(t, "/", server, "config", "check", "--config", config)
	checkLintian(t, deb)
}

func checkServerRPM(t *testing.T, dir string) {
	t.Helper()
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Log("rpm is not installed: the server's .rpm was not checked")
		return
	}
	file := rpmOf(t, dir, release.Server)
	list := harness.Say(t, dir, "rpm", "--query", "--package", "--nosignature", "--queryformat", "[%{FILENAMES} %{FILEMODES:octal} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILEFLAGS:fflags}\n]", file)
	for _, line := range []string{
		"/etc/workflow-server/workflow-server.yaml 100640 root:workflow-server cn", "/usr/bin/workflow-server 100755 root:root ", "/usr/bin/workflow-esc 100755 root:root ",
		"/usr/share/licenses/workflow-server/THIRD_PARTY_NOTICES 100644 root:root l",
		"/usr/lib/systemd/system/workflow-server.service 100644 root:root ", "/usr/lib/sysusers.d/workflow-server.conf 100644 root:root ",
	} {
		if !strings.Contains("\n"+list, "\n"+line+"\n") {
			t.Errorf("the RPM lacks the file %q:\n%s", line, list)
		}
	}
	if _, err := exec.LookPath("rpmlint"); err != nil {
		t.Log("rpmlint is not installed: its checks were skipped")
		return
	}
	root := must.Get(lab.Root())(t)
	const config = "rpmlint.toml"
	for _, name := range []string{release.Program, release.Server} {
		file := rpmOf(t, dir, name)
		asNobody(t, []string{filepath.Join(root, "packaging", "rpm", config), file}, "rpmlint", "--strict", "--config", config, filepath.Base(file))
	}
}
