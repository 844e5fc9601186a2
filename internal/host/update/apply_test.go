package update

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/host/release"
)

func TestGoodUpdate(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	s := newSite(t)
	s.publish(t, h.key, release.Stable, "v1.1.0", published, newRelease(t, h.key, "v1.1.0", polls))
	f := s.finder(t, h.keys(), filepath.Join(h.root, "..", "memory"))
	c, err := f.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if newer, err := c.Newer("v1.0.0"); !newer || err != nil || !c.Published.Equal(published) {
		t.Fatalf("%+v is newer: %v, %v", c, newer, err)
	}
	var done, total int64
	if err := f.Stage(t.Context(), c, Staging{Dir: h.stage, Progress: func(d, all int64) { done, total = d, all }}); err != nil {
		t.Fatal(err)
	}
	if size := int64(len(s.files["v1.1.0/"+archiveName("v1.1.0")])); done != size || total != size {
		t.Errorf("progress ended at %d of %d, want %d", done, total, size)
	}
	result, err := h.applier().Apply(t.Context(), h.stage)
	if err != nil || result != (Result{Outcome: Updated, From: "v1.0.0", To: "v1.1.0"}) {
		t.Fatalf("Apply: %+v, %v", result, err)
	}
	h.works(t, "v1.1.0")

	dir := filepath.Join(h.root, "current")
	for name, mode := range map[string]os.FileMode{release.Program: 0o755, "workflow-runner": 0o755, "LICENSE": 0o644, "man/customer-managed-workflow-agent.1": 0o644} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want mode %v", name, info, err, mode)
		}
	}
	if target, err := os.Readlink(filepath.Join(dir, release.OldName)); err != nil || target != release.Program {
		t.Errorf("the old name is a link to %q (%v)", target, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "of-a-later-release")); !errors.Is(err, os.ErrNotExist) {
		t.Error("an unknown file was unpacked")
	}
	if _, err := os.Lstat(filepath.Join(h.stage, RequestFile)); !errors.Is(err, os.ErrNotExist) {
		t.Error("the request was not removed")
	}
}

func (h *house) pid(t testing.TB) int {
	t.Helper()
	r, err := (&unit{root: h.root}).read()
	if err != nil {
		t.Fatal(err)
	}
	return r.PID
}

func (h *house) updates(t testing.TB, version string) {
	t.Helper()
	if err := os.RemoveAll(h.stage); err != nil {
		t.Fatal(err)
	}
	h.put(t, version, newRelease(t, h.key, version, polls))
	if result, err := h.applier().Apply(t.Context(), h.stage); err != nil || result.Outcome != Updated {
		t.Errorf("the good update: %+v, %v", result, err)
	}
	h.works(t, version)
}

// TestRolledBack checks versions that start but do not become ready.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	for name, behaviour := range map[string]string{"crashes": crashes, "cannot poll": deaf, "wants a configuration": waits} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, "v1.0.0")
			bad := newRelease(t, h.key, "v1.1.0", behaviour)
			h.put(t, "v1.1.0", bad)
			a := h.applier()
			result, err := a.Apply(t.Context(), h.stage)
			if err != nil || result.Outcome != Back || !strings.Contains(result.Reason, "did not become ready") {
				t.Fatalf("Apply: %+v, %v", result, err)
			}
			h.works(t, "v1.0.0")
			if _, err := os.Stat(filepath.Join(h.root, versionsDir, "v1.1.0")); !errors.Is(err, os.ErrNotExist) {
				t.Error("the bad version was not removed")
			}
			failed, ok, err := a.Failed()
			if err != nil || !ok || !failed.Holds("v1.1.0", time.Now()) || failed.Holds("v1.2.0", time.Now()) || failed.Holds("v1.1.0", time.Now().Add(25*time.Hour)) {
				t.Errorf("Failed: %+v, %v, %v", failed, ok, err)
			}

			// The version must not be tried again immediately, unless the operator requests it.
			h.put(t, "v1.1.0", bad)
			pid := h.pid(t)
			if _, err := a.Apply(t.Context(), h.stage); !errors.Is(err, ErrFailedBefore) {
				t.Errorf("the second try: %v", err)
			}
			if h.pid(t) != pid {
				t.Error("the service was restarted")
			}
			h.put(t, "v1.1.0", bad)
			if err := os.WriteFile(filepath.Join(h.stage, RequestFile), []byte(`{"version":"v1.1.0","explicit":true}`), 0o644); err != nil {
				t.Fatal(err)
			}
			if result, err := a.Apply(t.Context(), h.stage); err != nil || result.Outcome != Back {
				t.Errorf("the explicit try: %+v, %v", result, err)
			}
			h.put(t, "v1.1.0", bad)
			a.now = func() time.Time { return time.Now().Add(25 * time.Hour) }
			if result, err := a.Apply(t.Context(), h.stage); err != nil || result.Outcome != Back {
				t.Errorf("the try a day later: %+v, %v", result, err)
			}
			h.works(t, "v1.0.0")
			h.updates(t, "v1.1.1")
		})
	}
}

// TestWaiting updates an agent that waits for its configuration. The new version also waits.
func TestWaiting(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	h.behave(t, "v1.0.0", waits)
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", waits))
	a := h.applier()
	a.Service, a.Timeout = &unit{root: h.root}, time.Minute
	if result, err := a.Apply(t.Context(), h.stage); err != nil || result.Outcome != Updated {
		t.Errorf("Apply: %+v, %v", result, err)
	}
	h.behave(t, "v1.1.0", polls)
	h.works(t, "v1.1.0")
}

func (h *house) behave(t testing.TB, version, behaviour string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.root, versionsDir, version, release.Program), []byte(program(version, behaviour)), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestNotNow checks that an update is postponed while jobs are being started, or if the running
// agent has not reached its server.
func TestNotNow(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	h.behave(t, "v1.0.0", deaf)
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
	if _, err := h.applier().Apply(t.Context(), h.stage); !errors.Is(err, ErrNotConfirmable) {
		t.Errorf("with an agent that has not polled: %v", err)
	}
	h.behave(t, "v1.0.0", polls)
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
	a, busy := h.applier(), errors.New("a job cannot be found again")
	a.Ready = func(context.Context) error { return busy }
	if _, err := a.Apply(t.Context(), h.stage); !errors.Is(err, busy) {
		t.Errorf("with a job: %v", err)
	}
	h.works(t, "v1.0.0")
	if _, ok, err := a.Failed(); ok || err != nil {
		t.Errorf("the version has failed (%v), though it was never tried", err)
	}
	h.updates(t, "v1.1.0")
}

func TestStopped(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	if err := os.Remove((&unit{root: h.root}).file()); err != nil {
		t.Fatal(err)
	}
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
	if result, err := h.applier().Apply(t.Context(), h.stage); err != nil || result.Outcome != Updated {
		t.Fatalf("Apply: %+v, %v", result, err)
	}
	if health, err := (&unit{root: h.root}).Health(t.Context()); err != nil || health.Progress != NotRunning {
		t.Errorf("the service is %+v, %v", health, err)
	}
	if err := (&unit{root: h.root}).start(); err != nil {
		t.Fatal(err)
	}
	h.works(t, "v1.1.0")
}

// TestNetworkDown checks that a version is not recorded as failed if the old version does not
// become ready either.
func TestNetworkDown(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", deaf))
	a := h.applier()
	a.Service = down{a.Service.(*unit), h, t}
	result, err := a.Apply(t.Context(), h.stage)
	if err == nil || result.Outcome != Back {
		t.Errorf("Apply: %+v, %v", result, err)
	}
	h.behave(t, "v1.0.0", polls) // the network is available again
	h.works(t, "v1.0.0")
	if _, ok, _ := a.Failed(); ok {
		t.Error("the version is blamed")
	}
	h.updates(t, "v1.1.0")
}

// down is a service that loses its network connection at its first restart.
type down struct {
	*unit
	h *house
	t *testing.T
}

func (d down) Restart(ctx context.Context) error {
	d.h.behave(d.t, "v1.0.0", deaf)
	return d.unit.Restart(ctx)
}

// TestUnsteady checks that a version that polls and then exits is rolled back.
func TestUnsteady(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
	a := h.applier()
	a.Service, a.steady = &unsteady{unit: a.Service.(*unit)}, time.Nanosecond
	if result, err := a.Apply(t.Context(), h.stage); err != nil || result.Outcome != Back {
		t.Errorf("Apply: %+v, %v", result, err)
	}
	h.works(t, "v1.0.0")
}

// unsteady is a service whose new version has a different process ID at each check.
type unsteady struct {
	*unit
	looks int
}

func (u *unsteady) Health(ctx context.Context) (Health, error) {
	health, err := u.unit.Health(ctx)
	if health.Version == "v1.1.0" {
		u.looks++
		health.PID += u.looks
		u.applier.Timeout = little
	}
	return health, err
}

func (u *unsteady) Restart(ctx context.Context) error {
	err := u.unit.Restart(ctx)
	_, _ = u.Health(ctx)
	return err
}

// TestRestartFails checks that an update is rolled back if the service manager refuses the restart.
func TestRestartFails(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
	a := h.applier()
	a.Service = refuses{a.Service.(*unit)}
	if result, err := a.Apply(t.Context(), h.stage); err != nil || result.Outcome != Back || !strings.Contains(result.Reason, "no such unit") {
		t.Errorf("Apply: %+v, %v", result, err)
	}
	h.works(t, "v1.0.0")
}

type refuses struct{ *unit }

func (refuses) Restart(context.Context) error { return errors.New("no such unit") }

// TestShutdown checks that a version is not recorded as failed if its restart fails because of a
// shutdown.
func TestShutdown(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
	ctx, cancel := context.WithCancel(t.Context())
	a := h.applier()
	a.Service, a.steady = shutsDown{a.Service.(*unit), cancel}, time.Minute
	if _, err := a.Apply(ctx, h.stage); !errors.Is(err, context.Canceled) {
		t.Errorf("Apply: %v", err)
	}
	if from, to, ok := a.Underway(); from != "v1.0.0" || to != "v1.1.0" || !ok {
		t.Errorf("the update from %q to %q is under way: %v", from, to, ok)
	}
	if result, err := h.applier().Apply(t.Context(), ""); err != nil || result.Outcome != Updated {
		t.Errorf("Recover: %+v, %v", result, err)
	}
	h.works(t, "v1.1.0")
}

// shutsDown is a service manager that shuts down: it refuses a restart and then stops the updater.
type shutsDown struct {
	*unit
	end func()
}

func (s shutsDown) Restart(context.Context) error {
	time.AfterFunc(time.Millisecond, s.end)
	return errors.New("the job was canceled")
}

// TestLiar checks that a malicious agent's report cannot control the terminal on which the rollback
// is displayed.
func TestLiar(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", deaf))
	a := h.applier()
	a.Service = liar{a.Service.(*unit)}
	if result, err := a.Apply(t.Context(), h.stage); err != nil || result.Outcome != Back || !strings.Contains(result.Reason, `"\x1b[2Jv1.1.0"`) {
		t.Errorf("Apply: %+v, %v", result, err)
	}
	h.works(t, "v1.0.0")
}

// liar is a service whose new version reports a version that contains an escape sequence.
type liar struct{ *unit }

func (l liar) Health(ctx context.Context) (Health, error) {
	health, err := l.unit.Health(ctx)
	if health.Version == "v1.1.0" {
		health.Version = "\x1b[2Jv1.1.0"
	}
	return health, err
}

// TestKeys checks a key change: a signature by either of two keys is valid, but only for an
// installation that trusts that key.
func TestKeys(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	next := newKey(t)
	h.put(t, "v1.1.0", newRelease(t, next, "v1.1.0", polls))
	if _, err := h.applier().Apply(t.Context(), h.stage); !errors.Is(err, release.ErrSignature) {
		t.Errorf("with the old key: %v", err)
	}
	for version, key := range map[string]*ecdsa.PrivateKey{"v1.1.0": next, "v1.2.0": h.key} {
		h := &house{key: h.key, root: newHouse(t, "v1.0.0").root, stage: h.stage}
		h.put(t, version, newRelease(t, key, version, polls))
		a := h.applier()
		a.Keys = append(a.Keys, &next.PublicKey)
		if result, err := a.Apply(t.Context(), h.stage); err != nil || result.Outcome != Updated {
			t.Errorf("with both keys: %+v, %v", result, err)
		}
		h.works(t, version)
	}
	a := h.applier()
	a.Keys = nil
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
	if _, err := a.Apply(t.Context(), h.stage); !errors.Is(err, release.ErrSignature) {
		t.Errorf("without a key: %v", err)
	}
	h.works(t, "v1.0.0")
}

func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
	a := h.applier()
	a.Ready = func(ctx context.Context) error {
		for _, err := range []error{second(h.applier().Apply(ctx, h.stage)), second(h.applier().Apply(ctx, ""))} {
			if !errors.Is(err, ErrBusy) {
				t.Errorf("the second update: %v", err)
			}
		}
		return a.Prove() // returns no error
	}
	if result, err := a.Apply(t.Context(), h.stage); err != nil || result.Outcome != Updated {
		t.Errorf("Apply: %+v, %v", result, err)
	}
	h.works(t, "v1.1.0")
}

func second(_ Result, err error) error { return err }

// TestSameAgain checks that a request for the current version does nothing.
func TestSameAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	h.put(t, "v1.0.0", newRelease(t, h.key, "v1.0.0", crashes))
	pid := h.pid(t)
	if result, err := h.applier().Apply(t.Context(), h.stage); err != nil || result.Outcome != Nothing {
		t.Errorf("Apply: %+v, %v", result, err)
	}
	if h.pid(t) != pid {
		t.Error("the service was restarted")
	}
	h.works(t, "v1.0.0")
}

// TestUmask checks that, despite a strict umask, the service's account can read the files of both
// versions.
func TestUmask(t *testing.T) { // not parallel: the umask is global
	h := newHouse(t, "v1.0.0")
	defer syscall.Umask(syscall.Umask(0o077))
	defer func(before func(string)) { step = before }(step)
	readable := func(name string) {
		t.Helper()
		if info, err := os.Stat(filepath.Join(h.root, name)); err != nil || info.Mode().Perm()&0o044 != 0o044 || info.IsDir() && info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	step = func(name string) {
		if name == "begun" {
			readable(JournalFile)
		}
	}
	for _, r := range []struct{ version, behaviour string }{{"v1.1.0", crashes}, {"v1.2.0", polls}} {
		h.put(t, r.version, newRelease(t, h.key, r.version, r.behaviour))
		if _, err := h.applier().Apply(t.Context(), h.stage); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"current/.", "current/man", "current/LICENSE", "current/" + release.Program, failureFile} {
		readable(name)
	}
}

// TestRequestAccepted checks that the journal exists before the request is removed. Without a
// journal, the agent assumes that the request was rejected.
func TestRequestAccepted(t *testing.T) { // not parallel: the variable step is global
	h := newHouse(t, "v1.0.0")
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
	defer func(before func(string)) { step = before }(step)
	begun := false
	step = func(string) {
		_, err := os.Lstat(filepath.Join(h.stage, RequestFile))
		begun = begun || h.applier().Pending()
		if err != nil && !begun {
			t.Error("the request was removed before the update began")
		}
	}
	if result, err := h.applier().Apply(t.Context(), h.stage); err != nil || result.Outcome != Updated || !begun {
		t.Errorf("Apply: %+v, %v", result, err)
	}
}

// TestOvertaken checks that an interrupted update does not roll back a later installation.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	h.add(t, "v1.1.0", polls)
	h.add(t, "v1.2.0", polls)
	for _, from := range []phase{forward, backward} {
		text := `{"phase":"` + string(from) + `","from":"v1.0.0","to":"v1.1.0","wait":"polled"}`
		if err := os.WriteFile(filepath.Join(h.root, JournalFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		current := filepath.Join(h.root, currentLink)
		if err := errors.Join(os.Remove(current), os.Symlink(versionsDir+"/v1.2.0", current), (&unit{root: h.root}).start()); err != nil {
			t.Fatal(err)
		}
		if result, err := h.applier().Apply(t.Context(), ""); err != nil || result.Outcome != Nothing {
			t.Errorf("%s: Recover: %+v, %v", from, result, err)
		}
		h.works(t, "v1.2.0")
	}
}
