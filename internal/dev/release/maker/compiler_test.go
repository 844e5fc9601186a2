package main

import (
	"debug/buildinfo"
	"go/version"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

func TestCheckGo(t *testing.T) {
	for _, tt := range []struct {
		built string
		good  bool
	}{
		{minimumGo, true},
		{minimumGo + " X:nogreenteagc", true},
		{"go1.999", true},
		{"go1.26.0", false},
		{"go1.26", false},
		{"go1.26.7", false},
		{"go1.26rc1", false},
		{"go1.9.99", false},
		{"devel go1.27-abcdef", false}, // its fixes are unknown
		{"unknown", false},
		{"", false},
	} {
		if err := checkGo("agent", tt.built); (err == nil) != tt.good {
			t.Errorf("%q: %v", tt.built, err)
		}
	}
	if version.Lang(minimumGo) == minimumGo {
		t.Errorf("%s has no patch level", minimumGo)
	}
}

// TestOldGoMakesNoRelease checks that a program whose build information names an older Go version
// is rejected.
func TestOldGoMakesNoRelease(t *testing.T) {
	self := must.Get(os.Executable())(t)
	info := must.Get(buildinfo.ReadFile(self))(t)
	data := read(t, self)
	old := "go1.20.1" + strings.Repeat(" ", len(info.GoVersion)-len("go1.20.1"))
	m := newTestMaker(t)
	m.version = "v1.2.3"
	packTar(t, filepath.Join(m.files, "agent-v1.2.3.tar.gz"), map[string][]byte{"agent": []byte(strings.ReplaceAll(string(data), info.GoVersion, old))})
	if err := m.bills(t.Context()); err == nil || !strings.Contains(err.Error(), "the security fixes in "+minimumGo) {
		t.Errorf("a program built by an old Go was accepted: %v", err)
	}
}
