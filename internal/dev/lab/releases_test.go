package lab

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
)

func TestIsReleased(t *testing.T) {
	for name, want := range map[string]bool{
		"internal/agent/agent.go": true, "packaging/deb/postinst": true, ".goreleaser.yaml": true, "install.sh": true,
		"internal/agent/agent_test.go": false, "docs/server.md": false, "internal/dev/e2e/world.go": false, "README.md": false,
	} {
		if got := isReleased(name); got != want {
			t.Errorf("isReleased(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestForgetReleases(t *testing.T) {
	cache := t.TempDir()
	old := time.Now().Add(-2 * releasesKept)
	for name, used := range map[string]time.Time{"releases-1": old, "releases-2": old, "releases-3": time.Now(), "machine-1": old} {
		dir := filepath.Join(cache, name)
		must.OK(t, os.Mkdir(dir, 0o755))
		must.OK(t, os.Chtimes(dir, used, used))
	}
	forgetReleases(filepath.Join(cache, "releases-2"))
	for name, want := range map[string]bool{"releases-1": false, "releases-2": true, "releases-3": true, "machine-1": true} {
		if _, err := os.Stat(filepath.Join(cache, name)); (err == nil) != want {
			t.Errorf("%s exists: %v, want %v", name, err == nil, want)
		}
	}
}
