package pulumi_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/runner/pulumi"
)

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadProject(t *testing.T) {
	for _, tt := range []struct {
		name, content string
		runtime       string
		install       bool
		err           string
	}{
		{"short runtime", "name: a\nruntime: nodejs\n", "nodejs", true, ""},
		{"long runtime", "name: a\nruntime:\n  name: python\n  options: {virtualenv: venv}\n", "python", true, ""},
		{"yaml", "name: a\nruntime: yaml\n", "yaml", false, ""},
		{"yaml with packages", "name: a\nruntime: yaml\npackages: {x: y}\n", "yaml", true, ""},
		{"JSON", `{"name": "a", "runtime": "go"}`, "go", true, ""},
		{"no runtime", "name: a\n", "", false, "names no runtime"},
		{"not YAML", "{{", "", false, "parsing the project file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := pulumi.ReadProject(write(t, filepath.Join(t.TempDir(), "Pulumi.yaml"), tt.content))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || p.Runtime != tt.runtime || p.NeedsInstall() != tt.install {
				t.Errorf("got %+v, %v", p, err)
			}
		})
	}
}

func TestFindProject(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "Pulumi.yaml"), "name: other\n")
	root := filepath.Join(outside, "checkout")
	write(t, filepath.Join(root, "empty", "deep", "file"), "")
	want := write(t, filepath.Join(root, "infra", "Pulumi.yml"), "name: a\n")
	write(t, filepath.Join(root, "infra", "src", "file"), "")

	for _, dir := range []string{"infra", "infra/src"} {
		if got, err := pulumi.FindProject(root, filepath.Join(root, dir)); err != nil || got != want {
			t.Errorf("%s: got %s, %v", dir, got, err)
		}
	}
	for dir, text := range map[string]string{".": "the root directory of the repository", "empty/deep": `the directory "empty/deep" of the repository`} {
		_, err := pulumi.FindProject(root, filepath.Join(root, dir))
		if !errors.Is(err, pulumi.ErrNoProject) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: got %v", dir, err)
		}
	}
}
