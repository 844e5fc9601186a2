package executor_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/executortest"
)

func TestObjectNames(t *testing.T) {
	for _, test := range []struct {
		owner, job, back string
		epoch            int64
	}{
		{"agent", "9f6c6d6e-1c1a-4d0c-8b59-0a2c7a3f0001", "9f6c6d6e-1c1a-4d0c-8b59-0a2c7a3f0001", 1},
		{"agent", "../../etc", executor.Digest("../../etc"), 12},
		{"agent", "-dash", executor.Digest("-dash"), 0},
		{"", strings.Repeat("x", 300), executor.Digest(strings.Repeat("x", 300)), 3},
		{"an owner / with anything", "a", "a", 1},
	} {
		name := executor.ObjectName(test.owner, test.job, test.epoch)
		if !executor.IsObjectName(name) || len(name) > 110 || strings.ContainsAny(name, "/ ") {
			t.Errorf("job %q has the name %q", test.job, name)
		}
		job, epoch, ok := executor.ParseObjectName(test.owner, name)
		if !ok || job != test.back || epoch != test.epoch {
			t.Errorf("%q was parsed as job %q, epoch %d, %v", name, job, epoch, ok)
		}
		if _, _, ok := executor.ParseObjectName(test.owner+"x", name); ok {
			t.Errorf("%q also belongs to another owner", name)
		}
	}
	if executor.ObjectName("a", "j", 1) == executor.ObjectName("b", "j", 1) {
		t.Error("two owners share a name")
	}
	for _, name := range []string{"", "other", "workflow-../x-1-aaaaaaaa", `workflow-a\b`} {
		if executor.IsObjectName(name) {
			t.Errorf("%q is accepted as the name of an object", name)
		}
	}
}

func TestFindEmbeddable(t *testing.T) {
	static := t.TempDir()
	if _, err := executortest.BuildRunner(static, "runner"); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "linux" {
		t.Skip("the test runner is for this host")
	}
	native, err := os.ReadFile(filepath.Join(static, "runner"))
	if err != nil {
		t.Fatal(err)
	}
	host, other, machine := "amd64", "arm64", uint16(183)
	if runtime.GOARCH == "arm64" {
		host, other, machine = "arm64", "amd64", 62
	}
	foreign := append([]byte(nil), native...)
	binary.LittleEndian.PutUint16(foreign[18:], machine) // the e_machine field of the ELF header

	dynamic, err := exec.LookPath("ls")
	if err != nil {
		t.Fatal(err)
	}
	dynamicFile, err := os.ReadFile(dynamic)
	if err != nil {
		t.Fatal(err)
	}
	suffixed := executor.EmbeddableName + "-"
	for _, test := range []struct {
		name  string
		files map[string][]byte
		arch  string
		want  string // the expected file name, or a part of the error
		fails bool
	}{
		{"by the plain name", map[string][]byte{executor.EmbeddableName: native}, host, executor.EmbeddableName, false},
		{"by the longer name", map[string][]byte{suffixed + host: native}, host, suffixed + host, false},
		{"both", map[string][]byte{executor.EmbeddableName: native, suffixed + other: foreign}, other, suffixed + other, false},
		{"mixed up", map[string][]byte{executor.EmbeddableName: foreign, suffixed + host: native}, host, suffixed + host, false},
		{"for another machine", map[string][]byte{executor.EmbeddableName: foreign}, host, "made for", true},
		{"no program", map[string][]byte{executor.EmbeddableName: []byte("text")}, host, "not a Linux executable", true},
		{"dynamic", map[string][]byte{executor.EmbeddableName: dynamicFile}, host, "not a static executable", true},
		{"none", nil, host, "working_directory", true},
		{"unknown architecture", map[string][]byte{executor.EmbeddableName: native}, "s390x", "s390x", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, data := range test.files {
				if err := os.WriteFile(filepath.Join(dir, name), data, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			got, err := executor.FindEmbeddable(dir, test.arch)
			switch {
			case test.fails && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("found %q, %v; want an error with %q", got, err, test.want)
			case !test.fails && (err != nil || got != filepath.Join(dir, test.want)):
				t.Errorf("found %q, %v; want %s", got, err, test.want)
			}
			// A runner for another machine can still fit the engine.
			usable := !test.fails || test.name == "for another machine" || test.name == "unknown architecture"
			if err := executor.FindAnyEmbeddable(dir); (err == nil) != usable {
				t.Errorf("any runner at all: %v", err)
			}
		})
	}
}

func TestFindRunner(t *testing.T) {
	dir := t.TempDir()
	if _, err := executor.FindRunner(dir); err == nil || !strings.Contains(err.Error(), "working_directory") {
		t.Errorf("FindRunner in an empty directory: %v", err)
	}
	path := filepath.Join(dir, executor.RunnerName)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := executor.FindRunner(dir); err == nil {
		t.Error("FindRunner accepted a file that is not executable")
	}
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := executor.FindRunner(dir); err != nil || got != path {
		t.Errorf("FindRunner: %q, %v", got, err)
	}
}
