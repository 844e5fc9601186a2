package update

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestPrune checks that updates keep the current version, the previous version and any running
// version.
func TestPrune(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	h := newHouse(t, "v1.0.0")
	h.add(t, "v0.1.0", polls)
	h.add(t, "v0.2.0", polls)
	program, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	runner := filepath.Join(h.root, versionsDir, "v0.2.0", "workflow-runner")
	if err := os.WriteFile(runner, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	var job *exec.Cmd
	if err := whileBusy(func() error {
		job = exec.Command(runner, "600")
		job.Args[0] = "sleep" // on some systems, one program has many names
		return job.Start()
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = job.Process.Kill(), job.Wait() }()

	h.updates(t, "v1.1.0")
	h.versions(t, "v0.2.0", "v1.0.0", "v1.1.0")
	h.updates(t, "v1.2.0")
	h.versions(t, "v0.2.0", "v1.1.0", "v1.2.0")
	if _, _ = job.Process.Kill(), job.Wait(); t.Failed() {
		return
	}
	h.updates(t, "v1.3.0")
	h.versions(t, "v1.2.0", "v1.3.0")
}

func (h *house) versions(t testing.TB, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(h.root, versionsDir))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the versions are %v, want %v", got, want)
	}
}

func TestProven(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	updater := func(want string) {
		t.Helper()
		if got, err := said(h.applier().Updater(), "version"); err != nil || got != want {
			t.Errorf("the updater is %q (%v), want %s", got, err, want)
		}
	}
	for range 2 {
		if err := h.applier().Prove(); err != nil {
			t.Fatal(err)
		}
		updater("v1.0.0")
	}
	a := h.applier()
	a.Service = watched{a.Service.(*unit), func() { updater("v1.0.0") }}
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
	if result, err := a.Apply(t.Context(), h.stage); err != nil || result.Outcome != Updated {
		t.Errorf("Apply: %+v, %v", result, err)
	}
	updater("v1.1.0")
	h.put(t, "v1.2.0", newRelease(t, h.key, "v1.2.0", crashes))
	if result, err := h.applier().Apply(t.Context(), h.stage); err != nil || result.Outcome != Back {
		t.Errorf("Apply: %+v, %v", result, err)
	}
	updater("v1.1.0")
}

type watched struct {
	*unit
	restarts func()
}

func (w watched) Restart(ctx context.Context) error {
	w.restarts()
	return w.unit.Restart(ctx)
}

// TestOwner checks that an update is rejected if other users can change the installation.
func TestOwner(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
	open := filepath.Join(h.root, versionsDir)
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := h.applier().Apply(t.Context(), h.stage); err == nil || !strings.Contains(err.Error(), "can be changed by other users") {
		t.Errorf("with an open directory: %v", err)
	}
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(h.root, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := h.applier().Apply(t.Context(), h.stage); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "belongs to the user 12345") {
			t.Errorf("with another user's directory: %v", err)
		}
		if err := os.Chown(h.root, 0, -1); err != nil {
			t.Fatal(err)
		}
		above := filepath.Dir(h.root)
		if err := os.Chown(above, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := h.applier().Apply(t.Context(), h.stage); !errors.Is(err, os.ErrPermission) {
			t.Errorf("in another user's directory: %v", err)
		}
		if err := os.Chown(above, 0, -1); err != nil {
			t.Fatal(err)
		}
	}
	h.works(t, "v1.0.0")
	h.updates(t, "v1.1.0")
}
