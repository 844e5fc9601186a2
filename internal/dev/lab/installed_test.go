package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

func TestInstalledPulumi(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		yaml         bool
		want         string // "" = no error
	}{
		{"new enough", "echo " + OldestPulumi, true, ""},
		{"too old", "echo v3.100.0", true, "older than " + OldestPulumi},
		{"no version", "echo hello", true, "not a version"},
		{"broken", "exit 3", true, "exit status 3"},
		{"no YAML host", "echo " + PulumiVersion, false, "no pulumi-language-yaml"},
		{"none", "", false, ErrNoPulumi.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			real, links := t.TempDir(), t.TempDir()
			write := func(name, script string) {
				must.OK(t, os.WriteFile(filepath.Join(real, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
			}
			if tt.script != "" {
				write(pulumiBinary, tt.script)
				must.OK(t, os.Symlink(filepath.Join(real, pulumiBinary), filepath.Join(links, pulumiBinary)))
			}
			if tt.yaml {
				write(yamlBinary, "")
			}
			t.Setenv("PATH", links)
			tools, version, err := InstalledPulumi(t.Context())
			switch {
			case tt.want != "":
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want an error with %q", err, tt.want)
				}
			case err != nil:
				t.Error(err)
			case tools.Pulumi() != filepath.Join(real, pulumiBinary) || version != OldestPulumi:
				t.Errorf("got %s %s", tools.Pulumi(), version)
			}
		})
	}
}
