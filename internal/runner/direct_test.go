package runner

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestLookPath(t *testing.T) {
	root := t.TempDir()
	for name, mode := range map[string]os.FileMode{"a/tool": 0o644, "b/tool": 0o755, "c/tool": 0o755, "b/dir/x": 0o755} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	path := "PATH=" + root + "/a:" + root + "/b:" + root + "/c"
	for _, tt := range []struct {
		name, program string
		env           []string
		want          string
	}{
		{"first that can be run", "tool", []string{path}, root + "/b/tool"},
		{"the last PATH counts", "tool", []string{path, "PATH=" + root + "/c"}, root + "/c/tool"},
		{"absolute", root + "/c/tool", nil, root + "/c/tool"},
		{"absolute, not executable", root + "/a/tool", nil, ""},
		{"a directory", "dir", []string{path}, ""},
		{"missing", "nothing", []string{path}, ""},
		{"no PATH", "tool", nil, ""},
		{"relative directories are not for us", "tool", []string{"PATH=.:" + root + "/b"}, ""},
		{"relative program", "b/tool", []string{path}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := lookPath(tt.program, tt.env)
			if !ok {
				got = ""
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDirectly(t *testing.T) {
	root := t.TempDir()
	bin, program, empty := filepath.Join(root, "bin"), filepath.Join(root, "program"), filepath.Join(root, "empty")
	for _, dir := range []string{bin, program, empty} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]os.FileMode{
		filepath.Join(bin, "pulumi"): 0o755, filepath.Join(bin, "fish"): 0o755, filepath.Join(program, "Pulumi.yaml"): 0o644,
	} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=" + bin, "PWD=/elsewhere"}
	for _, tt := range []struct {
		name, run string
		params    Params
		want      []string // nil: the command runs itself
		says      string
	}{
		{"pre-run", "workflow-runner pre-run", Params{ProgramDir: program, Shell: "fish --private", Command: "a\nb "}, []string{"fish", "--private", "-c", "a\nb "}, "+ a\n+ b\n"},
		{"shell missing", "workflow-runner pre-run", Params{ProgramDir: program, Shell: "zsh", Command: "a"}, nil, ""},
		{"pulumi", "workflow-runner pulumi preview", Params{ProgramDir: program, Stack: "o/p/s"}, []string{"pulumi", "preview", "--stack=o/p/s", "--non-interactive", "--color", "never"}, ""},
		{"remediation is more than one program", "workflow-runner pulumi detect-drift", Params{ProgramDir: program, Remediate: true}, nil, ""},
		{"no project", "workflow-runner pulumi preview", Params{ProgramDir: empty}, nil, ""},
		{"no directory", "workflow-runner pre-run", Params{ProgramDir: filepath.Join(root, "none"), Shell: "fish"}, nil, ""},
		{"another command", "workflow-runner dependencies", Params{ProgramDir: program}, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd, says := tt.params.directly(tt.run, env)
			if tt.want == nil {
				if cmd != nil {
					t.Errorf("got %v", cmd.Args)
				}
				return
			}
			if cmd == nil {
				t.Fatal("nothing to start")
			}
			if !slices.Equal(cmd.Args, tt.want) || says != tt.says || cmd.Path != filepath.Join(bin, tt.want[0]) {
				t.Errorf("got %s %q and %q", cmd.Path, cmd.Args, says)
			}
			if cmd.Dir != tt.params.ProgramDir || cmd.Env[len(cmd.Env)-1] != "PWD="+program {
				t.Errorf("it runs in %s with %q", cmd.Dir, cmd.Env)
			}
		})
	}
}
