package service

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// TestInitByHand verifies, installs, upgrades and removes the archive with the commands of
// docs/installation.md.
func TestInitByHand(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	if reason, ok := lab.ReleasesAvailable(); !ok {
		t.Skip(reason)
	}
	releases := must.Get(lab.MakeReleases(ctx, os.Stderr))(t)
	mirror := httptest.NewServer(http.FileServer(http.Dir(releases.Mirror)))
	defer mirror.Close()
	m := newService(t)
	key := harness.Read(t, releases.PublicKey)
	harness.Write(t, filepath.Join(m.Root, "root", "release-key.pem"), key, 0o600)
	values := func(version string) map[string]string {
		archive := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
		return map[string]string{"MIRROR": mirror.URL, "VERSION": version, "NAME": packageName + "-" + version + "-linux-" + archive}
	}
	for _, version := range []string{lab.FirstRelease, lab.NextRelease} {
		out := m.run(ctx, t, "cd /root\n"+harness.FromPage(t, "archive check", values(version))+harness.FromPage(t, "archive install", nil))
		if !strings.Contains(out, "Verified OK") || !strings.Contains(out, ".tar.gz: OK") {
			t.Errorf("the check says\n%s", out)
		}
		for _, name := range []string{packageName, "customer-managed-deployment-agent"} {
			if out := m.run(ctx, t, name+" version"); !strings.Contains(out, version) {
				t.Errorf("%s says %q, want %s", name, out, version)
			}
		}
		if exe := m.run(ctx, t, "sha256sum </proc/$(systemctl show -p MainPID --value "+packageName+")/exe; sha256sum </opt/workflow-agent/"+packageName); strings.Count(exe, strings.Fields(exe)[0]) != 2 {
			t.Errorf("the running program is not %s", version)
		}
		if out := m.run(ctx, t, packageName+" service status"); !strings.Contains(out, "waiting for a configuration") {
			t.Errorf("the service says\n%s", out)
		}
	}
	m.run(ctx, t, harness.FromPage(t, "archive remove", nil))
	if left := m.run(ctx, t, "ls -d /opt/workflow-agent /usr/local/bin/customer* /etc/systemd/system/customer* 2>/dev/null || :"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// TestInitChecks verifies a release with the commands of docs/installation.md, and checks that
// these commands detect forged files.
func TestInitChecks(t *testing.T) {
	t.Parallel()
	if reason, ok := lab.ReleasesAvailable(); !ok {
		t.Skip(reason)
	}
	releases := must.Get(lab.MakeReleases(t.Context(), os.Stderr))(t)
	forged := "" // end of the path of a file that the mirror forges
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := os.ReadFile(filepath.Join(releases.Mirror, filepath.Clean("/"+r.URL.Path)))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		if forged != "" && strings.HasSuffix(r.URL.Path, forged) {
			data[len(data)/2] ^= 1
		}
		_, _ = w.Write(data) // a disconnected client reports its own error
	}))
	defer mirror.Close()
	values := map[string]string{
		"MIRROR": mirror.URL, "VERSION": lab.NextRelease,
		"NAME": packageName + "-" + lab.NextRelease + "-linux-" + map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH],
	}
	check := func(mark string) (string, error) {
		dir, keyring := t.TempDir(), t.TempDir()
		must.OK(t, os.Chmod(keyring, 0o700))
		for from, name := range map[string]string{releases.PublicKey: "release-key.pem", releases.ArchiveKey: packageName + ".asc"} {
			key := harness.Read(t, from)
			harness.Write(t, filepath.Join(dir, name), key, 0o600)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", harness.FromPage(t, mark, values))
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GNUPGHOME="+keyring, "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for mark, words := range map[string][]string{
		"check keys":    {"  -\n", "\nuid "},
		"check lists":   {"Verified OK", "Good signature"},
		"archive check": {"Verified OK", ".tar.gz: OK"},
	} {
		out, err := check(mark)
		if err != nil {
			t.Errorf("%s: %v\n%s", mark, err, out)
		}
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("%s does not print %q:\n%s", mark, word, out)
			}
		}
	}
	for _, tt := range []struct{ mark, file string }{
		{"archive check", "checksums.txt"},
		{"archive check", "checksums.txt.sig"},
		{"archive check", ".tar.gz"},
		{"check lists", "stable.txt"},
		{"check lists", "InRelease"},
		{"check lists", "repomd.xml"},
	} {
		forged = tt.file
		if out, err := check(tt.mark); err == nil {
			t.Errorf("%s: a changed %s passes:\n%s", tt.mark, tt.file, out)
		}
	}
}
