package update

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// beginnings lists states before an installation. good lists the versions that may be current after
// the installation is killed.
var beginnings = map[string]struct {
	prepare func(t *testing.T, h *house)
	good    []string
	kept    []string // versions that remain at the end
}{
	"fresh":   {func(*testing.T, *house) {}, []string{"", "v1.1.0"}, []string{"v1.1.0"}},
	"upgrade": {func(t *testing.T, h *house) { t.Helper(); h.place(t, "v1.0.0") }, []string{"v1.0.0", "v1.1.0"}, []string{"v1.0.0", "v1.1.0"}},
	"again":   {func(t *testing.T, h *house) { t.Helper(); h.place(t, "v1.1.0") }, []string{"v1.1.0"}, []string{"v1.1.0"}},
	"older":   {func(t *testing.T, h *house) { t.Helper(); h.place(t, "v1.2.0") }, []string{"v1.2.0", "v1.1.0"}, []string{"v1.1.0", "v1.2.0"}},
	"flat":    {func(t *testing.T, h *house) { t.Helper(); h.flat(t) }, []string{"v0.9.0", "v1.1.0"}, []string{FlatVersion, "v1.1.0"}},
}

// flat installs programs in the same way as older installers.
func (h *house) flat(t *testing.T) {
	t.Helper()
	for _, name := range links()[:len(links())-1] {
		writeAll(t, filepath.Join(h.root, name), program("v0.9.0", polls), 0o755)
	}
	if err := os.Symlink(links()[0], filepath.Join(h.root, links()[len(links())-1])); err != nil {
		t.Fatal(err)
	}
}

func writeAll(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func emptyHouse(t *testing.T) *house {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &house{key: newKey(t), root: filepath.Join(dir, "some", "root"), stage: filepath.Join(dir, "stage")}
}

func (h *house) tryPlace(ctx context.Context, t *testing.T, version string) error {
	t.Helper()
	if err := os.RemoveAll(h.stage); err != nil {
		t.Fatal(err)
	}
	h.put(t, version, newRelease(t, h.key, version, polls))
	i, err := OpenInstallation(h.root, nil)
	if err != nil {
		t.Fatal(err)
	}
	return i.Place(ctx, h.keys(), h.stage, version)
}

func (h *house) place(t *testing.T, version string) {
	t.Helper()
	if err := h.tryPlace(t.Context(), t, version); err != nil {
		t.Fatal(err)
	}
}

// placed checks that each name of the program runs the version, and that only the versions in kept
// exist.
func (h *house) placed(t *testing.T, version string, kept ...string) {
	t.Helper()
	if i, err := OpenInstallation(h.root, nil); err != nil || i.Version != version {
		t.Errorf("the installation is %+v (%v), want %s", i, err, version)
	}
	if got, err := said(filepath.Join(h.root, "customer-managed-deployment-agent"), "version"); err != nil || got != version {
		t.Errorf("the program says %q (%v), want %s", got, err, version)
	}
	if got := entryNames(t, filepath.Join(h.root, versionsDir)); !slices.Equal(got, kept) {
		t.Errorf("the versions are %q, want %q", got, kept)
	}
	for _, name := range entryNames(t, h.root) {
		if strings.HasPrefix(name, ".") && name != rootLock {
			t.Errorf("%s is left", name)
		}
	}
}

func entryNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestPlaceKilled checks that a killed installation leaves a working version, or none if it was the
// first installation. The next installation must complete it.
func TestPlaceKilled(t *testing.T) {
	t.Parallel()
	for name, c := range beginnings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := map[string]bool{}
			for n := 1; ; n++ {
				h := emptyHouse(t)
				c.prepare(t, h)
				h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
				step := child{Task: "place", Root: h.root, Stage: h.stage, Kill: n}.run(t, h.key)
				if step == "" {
					h.placed(t, "v1.1.0", c.kept...)
					break
				}
				got, _ := said(filepath.Join(h.root, links()[0]), "version")
				if seen[got] = true; !slices.Contains(c.good, got) {
					t.Fatalf("killed at %s: the program says %q", step, got)
				}
				h.place(t, "v1.1.0")
				kept := c.kept
				if got == "v1.1.0" { // the previous version may already have been removed
					kept = entryNames(t, filepath.Join(h.root, versionsDir))
				}
				if h.placed(t, "v1.1.0", kept...); t.Failed() {
					t.Fatalf("killed at %s", step)
				}
			}
			for _, version := range c.good {
				if !seen[version] {
					t.Errorf("no step left %q: %v", version, seen)
				}
			}
		})
	}
}

// TestPlaceFails checks that an installation that fails, or whose context is canceled, changes
// nothing.
func TestPlaceFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(t *testing.T, h *house) error{
		"interrupted": func(t *testing.T, h *house) error {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return h.tryPlace(ctx, t, "v1.1.0")
		},
		"wrong key": func(t *testing.T, h *house) error {
			t.Helper()
			h.put(t, "v1.1.0", newRelease(t, newKey(t), "v1.1.0", polls))
			i, err := OpenInstallation(h.root, nil)
			if err != nil {
				t.Fatal(err)
			}
			return i.Place(t.Context(), h.keys(), h.stage, "v1.1.0")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := emptyHouse(t)
			if err := fail(t, h); err == nil {
				t.Error("no error")
			}
			if _, err := os.Lstat(filepath.Dir(h.root)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", filepath.Dir(h.root), err)
			}
			h.place(t, "v1.0.0")
			if err := fail(t, h); err == nil {
				t.Error("no error")
			}
			h.placed(t, "v1.0.0", "v1.0.0")
		})
	}
}

// TestPlaceDuringUpdates checks that an installation never waits for an update. It must end an
// interrupted update, and keep versions that are in use.
func TestPlaceDuringUpdates(t *testing.T) {
	t.Parallel()
	h := emptyHouse(t)
	h.place(t, "v1.0.0")
	lock, err := os.OpenFile(filepath.Join(h.root, rootLock), os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := h.tryPlace(t.Context(), t, "v1.1.0"); !errors.Is(err, ErrBusy) {
		t.Errorf("during an update: %v", err)
	}
	if err := (Installation{Root: h.root}).Remove(); !errors.Is(err, ErrBusy) {
		t.Errorf("removing during an update: %v", err)
	}
	h.placed(t, "v1.0.0", "v1.0.0")
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	writeAll(t, filepath.Join(h.root, JournalFile), "{}", 0o644)
	if err := os.Symlink(versionsDir+"/v1.0.0", filepath.Join(h.root, provenLink)); err != nil {
		t.Fatal(err)
	}
	h.place(t, "v1.1.0")
	if (Installation{Root: h.root}).Pending() {
		t.Error("the journal of the update is left")
	}
	// A copy of sleep represents a job.
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	job := filepath.Join(h.root, versionsDir, "v1.1.0", "workflow-runner")
	writeAll(t, job, string(text), 0o755)
	var running *exec.Cmd
	if err := whileBusy(func() error {
		running = exec.CommandContext(t.Context(), job, "600")
		running.Args[0] = "sleep" // on some systems, one program has many names
		return running.Start()
	}); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1.2.0", "v1.3.0", "v1.4.0"} {
		h.place(t, version)
	}
	h.placed(t, "v1.4.0", "v1.0.0", "v1.1.0", "v1.3.0", "v1.4.0")
	if busy, err := (Installation{Root: h.root}).InUse(); err != nil || !busy {
		t.Errorf("in use: %v, %v", busy, err)
	}
	_ = running.Process.Kill()
	_ = running.Wait() // the process was killed
	if busy, err := (Installation{Root: h.root}).InUse(); err != nil || busy {
		t.Errorf("in use after the end: %v, %v", busy, err)
	}
}

// TestPlaceRepairRevertRemove checks that a damaged version is repaired, that a version can be
// reverted, and that removal leaves other files.
func TestPlaceRepairRevertRemove(t *testing.T) {
	t.Parallel()
	h := emptyHouse(t)
	h.place(t, "v1.0.0")
	h.place(t, "v1.1.0")
	dir := filepath.Join(h.root, versionsDir, "v1.1.0")
	writeAll(t, filepath.Join(dir, "workflow-runner"), "broken", 0o700)
	if err := os.RemoveAll(filepath.Join(dir, "man")); err != nil {
		t.Fatal(err)
	}
	h.place(t, "v1.1.0")
	h.placed(t, "v1.1.0", "v1.0.0", "v1.1.0")
	if text, err := os.ReadFile(filepath.Join(dir, "workflow-runner")); err != nil || string(text) == "broken" {
		t.Errorf("the runner is %q (%v)", text, err)
	}
	if len(entryNames(t, filepath.Join(dir, "man"))) != 1 {
		t.Error("the manual is missing")
	}
	i, err := OpenInstallation(h.root, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Revert("v1.0.0"); err != nil {
		t.Fatal(err)
	}
	h.placed(t, "v1.0.0", "v1.0.0", "v1.1.0")
	writeAll(t, filepath.Join(h.root, "notes of mine"), "mine", 0o600)
	for _, name := range []string{SeenFile, JournalFile + ".broken", failureFile, next(currentLink)} {
		writeAll(t, filepath.Join(h.root, name), "{}", 0o644)
	}
	if err := i.Remove(); err != nil {
		t.Fatal(err)
	}
	if left := entryNames(t, h.root); !slices.Equal(left, []string{"notes of mine"}) {
		t.Errorf("%q are left", left)
	}
	if _, err := OpenInstallation(h.root, nil); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("a directory with other files: %v", err)
	}
	if _, err := OpenInstallation(h.root, []string{"notes of mine"}); err != nil {
		t.Errorf("a directory with a configuration: %v", err)
	}
}
