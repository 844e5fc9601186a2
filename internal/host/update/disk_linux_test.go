package update

import (
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/host/release"
)

// smallDisk mounts a disk of 1 MiB and returns its path.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small disk needs root")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "small", dir).CombinedOutput(); err != nil {
		t.Skipf("mounting a small disk: %v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	return dir
}

func noise(size int) string {
	data := make([]byte, size)
	_, _ = rand.Read(data)
	return string(data)
}

// large returns a release with a program that is larger than a small disk.
func large(t *testing.T, h *house, version string, compressible bool) files {
	t.Helper()
	entries := contents(version, polls)
	if entries[2].content = strings.Repeat("x", 4<<20); !compressible {
		entries[2].content = noise(4 << 20)
	}
	return signed(t, h.key, files{archiveName(version): pack(t, entries)})
}

func full(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "make room") {
		t.Errorf("on a full disk: %v", err)
	}
}

// TestDiskFullAtStaging checks that a full disk leaves no staged release, and that a later attempt
// succeeds.
func TestDiskFullAtStaging(t *testing.T) {
	h, s, disk := newHouse(t, "v1.0.0"), newSite(t), smallDisk(t)
	h.stage = filepath.Join(disk, "updates")
	s.publish(t, h.key, release.Stable, "v1.1.0", published, large(t, h, "v1.1.0", false))
	f := s.finder(t, h.keys(), "")
	c, err := f.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	full(t, f.Stage(t.Context(), c, Staging{Dir: h.stage}))
	if entries, err := os.ReadDir(h.stage); err != nil || len(entries) != 1 {
		t.Errorf("the stage holds %v, %v", entries, err)
	}
	if result, err := h.applier().Apply(t.Context(), h.stage); err != nil || result.Outcome != Nothing {
		t.Errorf("without a request: %+v, %v", result, err)
	}
	h.works(t, "v1.0.0")

	s.publish(t, h.key, release.Stable, "v1.1.0", published, newRelease(t, h.key, "v1.1.0", polls))
	if err := f.Stage(t.Context(), c, Staging{Dir: h.stage}); err != nil {
		t.Fatal(err)
	}
	if result, err := h.applier().Apply(t.Context(), h.stage); err != nil || result.Outcome != Updated {
		t.Errorf("Apply: %+v, %v", result, err)
	}
	h.works(t, "v1.1.0")
}

// TestDiskFullAtUnpacking checks that the old version is unchanged if the disk becomes full.
func TestDiskFullAtUnpacking(t *testing.T) {
	for name, compressible := range map[string]bool{"copying": false, "unpacking": true} {
		t.Run(name, func(t *testing.T) {
			outside := newHouse(t, "v1.0.0")
			h := &house{key: outside.key, root: filepath.Join(smallDisk(t), "root"), stage: outside.stage}
			outside.copyTree(t, filepath.Dir(outside.root), filepath.Dir(h.root))
			h.put(t, "v1.1.0", large(t, h, "v1.1.0", compressible))
			_, err := h.applier().Apply(t.Context(), h.stage)
			full(t, err)
			h.works(t, "v1.0.0")
			h.versions(t, "v1.0.0")
			h.updates(t, "v1.1.1")
		})
	}
}

// TestDiskFullAtSwap checks updates on a disk that is full when the journal is written or during
// the rollback.
func TestDiskFullAtSwap(t *testing.T) {
	for at, end := range map[string]string{"placed": "v1.0.0", "restarted": "v1.0.0"} {
		t.Run(at, func(t *testing.T) {
			outside := newHouse(t, "v1.0.0")
			h := &house{key: outside.key, root: filepath.Join(smallDisk(t), "root"), stage: outside.stage}
			outside.copyTree(t, filepath.Dir(outside.root), filepath.Dir(h.root))
			h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", crashes))
			runs, elsewhere := (&unit{root: h.root}).file(), (&unit{root: outside.root}).file()
			if err := os.Remove(runs); err != nil {
				t.Fatal(err)
			}
			link(t, elsewhere, runs)
			ballast := filepath.Join(filepath.Dir(h.root), "ballast")
			defer func(before func(string)) { step = before }(step)
			step = func(name string) {
				if name == at {
					_ = os.WriteFile(ballast, make([]byte, 2<<20), 0o644) // fills the disk
				}
			}
			result, err := h.applier().Apply(t.Context(), h.stage)
			if at == "placed" && err == nil || at == "restarted" && result.Outcome != Back {
				t.Errorf("Apply: %+v, %v", result, err)
			}
			h.complete(t, at)
			step = func(string) {}
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			if _, err := h.applier().Apply(t.Context(), ""); err != nil {
				t.Errorf("completing: %v", err)
			}
			h.works(t, end)
			h.updates(t, "v1.1.1")
		})
	}
}
