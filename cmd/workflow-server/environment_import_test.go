package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/environments"
	definitions "workflowagent/internal/server/environments/source"
)

// TestReadDefinitions reads the files of projects, and neither links nor what is too large.
func TestReadDefinitions(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	}
	if _, err := readDefinitions(dir); err == nil || !strings.Contains(err.Error(), "PROJECT/ENVIRONMENT.yaml") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := readDefinitions(filepath.Join(dir, "missing")); err == nil {
		t.Error("a missing folder was read")
	}
	write("app/prod.yaml", "a: 1\n")
	write("app/README.md", "no")
	write("app/deeper/x.yaml", "no")
	write(".git/x.yaml", "no")
	write("top.yaml", "top")
	must.OK(t, os.Symlink("/etc/passwd", filepath.Join(dir, "app/link.yaml")))
	files := must.Get(readDefinitions(dir))(t)
	if !slices.Equal(files, []definitions.File{{Path: "app/prod.yaml", Definition: "a: 1\n"}, {Path: "top.yaml", Definition: "top"}}) {
		t.Errorf("the files are %+v", files)
	}
	write("app/large.yaml", strings.Repeat("x", environments.MaxDefinition+1))
	if _, err := readDefinitions(dir); err == nil || !strings.Contains(err.Error(), "app/large.yaml") {
		t.Errorf("a large file: %v", err)
	}
}

// TestPrintImport prints differences with their indentation, and no character that controls a terminal.
func TestPrintImport(t *testing.T) {
	var out bytes.Buffer
	must.OK(t, printImport(&out, admin.ImportedEnvironments{Plan: definitions.Plan{
		Steps: []definitions.Step{
			{Environment: "app/a", Action: definitions.Change, Difference: []string{"-  a: 1", "+  a: \x1b[31m2"}},
			{Environment: "app/b", Action: definitions.Keep},
			{Environment: "app/c", Action: definitions.Create, Problems: []string{"line 1: wrong\x1b]0;title\a"}},
		},
		Others: []string{"app/d"}, Ignored: []string{"top.yaml"},
	}}))
	want := "change app/a\n    -  a: 1\n    +  a: 2\ncreate app/c\n    problem: line 1: wrong\nignored top.yaml: it is not in the folder of a project\n" +
		"remains app/d: the folder does not contain it\nWould change: 1 created, 1 changed, 0 deleted, 1 equal.\n"
	if got := out.String(); got != want {
		t.Errorf("%q\nwant\n%q", got, want)
	}
}
