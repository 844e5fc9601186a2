package homebrew

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/host/release"
)

const (
	version = "v1.2.3-rc.1"
	home    = "https://releases.example.com"
	root    = "../../../.."
)

// program is the script that replaces each program in the archives. It prints its version and
// completions.
const program = "#!/bin/sh\ncase $1 in version) echo customer-managed-workflow-agent " + version + " ;; completion) echo \"complete for $2\" ;; esac\n"

func testArchive(t *testing.T, platform string) []byte {
	t.Helper()
	var buf bytes.Buffer
	zipped := gzip.NewWriter(&buf)
	w := tar.NewWriter(zipped)
	dir := strings.TrimSuffix(platform, ".tar.gz") + "/"
	add := func(h tar.Header, text string) {
		h.Name, h.Size = dir+h.Name, int64(len(text))
		must.OK(t, w.WriteHeader(&h))
		must.Get(io.WriteString(w, text))(t)
	}
	for _, name := range release.Programs() {
		add(tar.Header{Name: name, Mode: 0o755}, program)
	}
	add(tar.Header{Name: release.OldName, Linkname: release.Program, Typeflag: tar.TypeSymlink}, "")
	add(tar.Header{Name: "LICENSE", Mode: 0o644}, "text of "+platform)
	add(tar.Header{Name: "man/customer-managed-workflow-agent.1", Mode: 0o644}, ".TH")
	add(tar.Header{Name: "pulumi-workflow-agent.yaml.sample", Mode: 0o644}, "# token: pul-…\n")
	must.OK(t, w.Close())
	must.OK(t, zipped.Close())
	return buf.Bytes()
}

func testRelease(t *testing.T) (archives map[string][]byte, formula []byte) {
	t.Helper()
	archives = map[string][]byte{}
	sums := release.Checksums{}
	for _, goos := range []string{"linux", "darwin"} {
		for _, goarch := range []string{"amd64", "arm64"} {
			name := must.Get(release.Archive(version, goos, goarch))(t)
			archives[name] = testArchive(t, name)
			sums[name] = sha256.Sum256(archives[name])
		}
	}
	text, err := os.ReadFile(filepath.Join(root, Template))
	must.OK(t, err)
	if formula, err = Formula(string(text), version, home+"/", sums); err != nil {
		t.Fatal(err)
	}
	return archives, formula
}

// evaluated is the fake Homebrew's result for a formula.
type evaluated struct {
	Said    map[string]string
	Service map[string]any
	Caveats string
}

// TestFormula evaluates the formula for every platform. The formula must download that platform's
// archive, by name and checksum, and install all of the archive's files.
func TestFormula(t *testing.T) {
	ruby := needRuby(t)
	archives, formula := testRelease(t)
	file := filepath.Join(t.TempDir(), File)
	must.OK(t, os.WriteFile(file, formula, 0o600))
	if out, err := exec.CommandContext(t.Context(), ruby, "-wc", file).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "Syntax OK" {
		t.Fatalf("ruby -wc: %v\n%s\n%s", err, out, formula)
	}
	stub := must.Get(filepath.Abs("testdata/brew.rb"))(t)
	for _, tt := range []struct {
		system, processor, archive string
		service                    map[string]any
	}{
		{"macos", "arm", "darwin-arm64", map[string]any{"keep_alive": map[string]any{"successful_exit": false}}},
		{"macos", "intel", "darwin-x64", map[string]any{"keep_alive": map[string]any{"successful_exit": false}}},
		{"linux", "arm", "linux-arm64", map[string]any{"keep_alive": map[string]any{"crashed": true}, "restart_delay": float64(10)}},
		{"linux", "intel", "linux-x64", map[string]any{"keep_alive": map[string]any{"crashed": true}, "restart_delay": float64(10)}},
	} {
		t.Run(tt.system+" "+tt.processor, func(t *testing.T) {
			name := release.Program + "-" + version + "-" + tt.archive + ".tar.gz"
			prefix, unpacked := t.TempDir(), t.TempDir()
			install := func() evaluated {
				return evaluate(t, ruby, stub, file, tt.system, tt.processor, unpacked, archives[name], prefix)
			}
			got := install()
			sum := sha256.Sum256(archives[name])
			want := map[string]string{
				"desc": "Runs Pulumi deployments inside your own network", "homepage": home, "license": "Apache-2.0",
				"version": strings.TrimPrefix(version, "v"), "url": home + "/" + version + "/" + name, "sha256": hexadecimal(sum),
			}
			if diff := cmp.Diff(want, got.Said); diff != "" {
				t.Errorf("the formula (-want +got):\n%s", diff)
			}
			config, environment := prefix+"/etc/pulumi-workflow-agent.yaml", prefix+"/etc/customer-managed-workflow-agent.env"
			service := map[string]any{
				"run":         []any{prefix + "/opt/customer-managed-workflow-agent/bin/customer-managed-workflow-agent", "run", "--config", config, "--env-file", environment},
				"working_dir": prefix + "/var/workflow-agent", "log_path": prefix + "/var/log/customer-managed-workflow-agent.log", "error_log_path": prefix + "/var/log/customer-managed-workflow-agent.log",
				"environment_variables": map[string]any{"PATH": prefix + "/bin:/usr/bin:/bin"},
			}
			maps.Copy(service, tt.service)
			if diff := cmp.Diff(service, got.Service); diff != "" {
				t.Errorf("the service (-want +got):\n%s", diff)
			}
			if !strings.Contains(got.Caveats, config) || !strings.Contains(got.Caveats, "0600") {
				t.Errorf("the caveats: %s", got.Caveats)
			}
			checkInstalled(t, prefix, config, environment)

			// The next version keeps the user's configuration.
			must.OK(t, os.WriteFile(config, []byte("token: pul-mine\n"), 0o600))
			for _, gone := range []string{"Cellar", "opt"} {
				must.OK(t, os.RemoveAll(filepath.Join(prefix, gone)))
			}
			install()
			if text, err := os.ReadFile(config); err != nil || string(text) != "token: pul-mine\n" {
				t.Errorf("after an upgrade the configuration is %q, %v", text, err)
			}
		})
	}
}

// evaluate unpacks an archive and enters its only directory, as Homebrew does, and runs the
// formula's installation.
func evaluate(t *testing.T, ruby, stub, file, system, processor, dir string, archive []byte, prefix string) (got evaluated) {
	t.Helper()
	tarball := exec.CommandContext(t.Context(), "tar", "xz", "-C", dir)
	tarball.Stdin = bytes.NewReader(archive)
	if out, err := tarball.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dirs, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("the archive has %v, %v", dirs, err)
	}
	cmd := exec.CommandContext(t.Context(), ruby, "-w", stub, file, system, processor, prefix)
	cmd.Dir = dirs[0]
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return got
}

func checkInstalled(t *testing.T, prefix, config, environment string) {
	t.Helper()
	keg := prefix + "/Cellar/customer-managed-workflow-agent/" + strings.TrimPrefix(version, "v")
	for _, path := range []string{config, environment} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	for _, name := range []string{release.Program, release.OldName} {
		resolved, err := filepath.EvalSymlinks(keg + "/bin/" + name)
		want, err2 := filepath.EvalSymlinks(keg + "/libexec/" + release.Program)
		if err != nil || err2 != nil || resolved != want {
			t.Errorf("%s links to %s, %v, %v", name, resolved, err, err2)
		}
	}
	programs := release.Programs()
	entries, err := os.ReadDir(keg + "/libexec")
	if err != nil || len(entries) != len(programs) {
		t.Errorf("libexec has %v, %v", entries, err)
	}
	for _, entry := range entries {
		if !slices.Contains(programs, entry.Name()) {
			t.Errorf("libexec has %s", entry.Name())
		}
	}
	for _, path := range []string{"share/man/man1/customer-managed-workflow-agent.1", "completions/bash", "completions/zsh", "completions/fish"} {
		if _, err := os.Stat(filepath.Join(keg, path)); err != nil {
			t.Error(err)
		}
	}
}

// TestStandInIsStrict checks that the fake Homebrew rejects mistakes.
func TestStandInIsStrict(t *testing.T) {
	ruby := needRuby(t)
	archives, formula := testRelease(t)
	for name, change := range map[string][2]string{
		"a file that is not in the archive": {`"workflow-runner",`, `"workflow-runner", "no-such-file",`},
		"an unknown directive of a service": {"working_dir var", "working_directory var"},
		"a test that fails":                 {`assert_match "v#{version}"`, `assert_match "w#{version}"`},
	} {
		text := bytes.Replace(formula, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(text, formula) {
			t.Fatalf("%s: the formula does not contain %s", name, change[0])
		}
		file := filepath.Join(t.TempDir(), File)
		must.OK(t, os.WriteFile(file, text, 0o600))
		dir := t.TempDir()
		tarball := exec.CommandContext(t.Context(), "tar", "xz", "--strip-components=1", "-C", dir)
		tarball.Stdin = bytes.NewReader(archives[release.Program+"-"+version+"-linux-x64.tar.gz"])
		if out, err := tarball.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		stub := must.Get(filepath.Abs("testdata/brew.rb"))(t)
		cmd := exec.CommandContext(t.Context(), ruby, stub, file, "linux", "intel", t.TempDir())
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("%s is accepted:\n%s", name, out)
		}
	}
}

func TestFormulaRefuses(t *testing.T) {
	name := must.Get(release.Archive("v1.2.3", "linux", "amd64"))(t)
	sums := release.Checksums{name: {1}}
	must.Get(Formula("{{.Version}}", "v1.2.3", home, sums))(t)
	for _, tt := range []struct {
		text, version, home string
		sums                release.Checksums
	}{
		{"x", "1.2.3", home, sums},
		{"x", "v1.2.3", "", sums},
		{"x", "v1.2.3", `https://a"+system("x")+"`, sums},
		{"x", "v1.2.3", "https://a/#{system}", sums},
		{"x", "v1.2.3", "file:///etc", sums},
		{"x", "v1.2.3", home, release.Checksums{"other.tar.gz": {1}}},
		{"{{.Nothing}}", "v1.2.3", home, sums},
	} {
		if text, err := Formula(tt.text, tt.version, tt.home, tt.sums); err == nil {
			t.Errorf("%+v results in %s", tt, text)
		}
	}
}

// needRuby returns the path of ruby. CI must have ruby installed.
func needRuby(t *testing.T) string {
	t.Helper()
	ruby, err := exec.LookPath("ruby")
	if err != nil {
		if os.Getenv("WORKFLOW_REQUIRE_TIERS") == "all" {
			t.Fatal("all tests are required, but ruby is not installed (Debian's ruby)")
		}
		t.Skip("ruby is not installed (Debian's ruby)")
	}
	return ruby
}

func hexadecimal(sum [32]byte) string {
	var line bytes.Buffer
	_, _ = release.Checksums{"x": sum}.WriteTo(&line) // a buffer never fails
	return strings.Fields(line.String())[0]
}
