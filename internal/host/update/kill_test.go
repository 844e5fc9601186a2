package update

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/dev/release/signing"
	"workflowagent/internal/host/release"
)

// child describes a task for a child process and the step at which the process is killed.
type child struct {
	Task        string // stage, apply, recover or place
	Root, Stage string
	Home        string // URL of the mirror
	PublicKey   string // public key in PEM
	Kill        int    // number of the step at which the process is killed; 0 means never
}

const childVariable = "SELFUPDATE_TEST_CHILD"

// TestMain runs the tests or, in a child process, the child's task.
func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		if err := runChild(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	stallTime = 5 * time.Second
	os.Exit(m.Run())
}

func runChild(text string) error {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	keys, err := release.ParseKeys([]byte(c.PublicKey))
	if err != nil {
		return err
	}
	steps := 0
	step = func(name string) {
		if steps++; steps == c.Kill {
			fmt.Println(name)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	log := logrus.New()
	log.SetLevel(logrus.PanicLevel)
	a := newApplier(c.Root, keys, log)
	switch ctx := context.Background(); c.Task {
	case "apply":
		_, err = a.Apply(ctx, c.Stage)
	case "recover":
		_, err = a.Apply(ctx, "")
	case "place":
		var i Installation
		if i, err = OpenInstallation(c.Root, nil); err == nil {
			err = i.Place(ctx, keys, c.Stage, "v1.1.0")
		}
	case "stage":
		var f *Finder
		if f, err = Open(Options{Home: c.Home, Keys: keys, Client: http.DefaultClient}); err == nil {
			var found Candidate
			if found, err = f.Latest(ctx); err == nil {
				err = f.Stage(ctx, found, Staging{Dir: c.Stage})
			}
		}
	}
	return err
}

// run runs a child process. It returns the step at which the process was killed, or "" if the
// process finished.
func (c child) run(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	public, err := signing.PublicPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	c.PublicKey = string(public)
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return strings.TrimSpace(string(out))
		}
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", c.Task, err, &stderr)
	}
	return ""
}

// complete checks that the link current names a complete version, so that the agent would work if
// the machine restarted now.
func (h *house) complete(t *testing.T, step string) {
	t.Helper()
	for _, name := range release.Programs() {
		if info, err := os.Stat(filepath.Join(h.root, currentLink, name)); err != nil || info.Size() == 0 || info.Mode() != 0o755 {
			t.Errorf("killed at %s: %s of the current version: %v, %v", step, name, info, err)
		}
	}
	if out, err := said(filepath.Join(h.root, release.Program), "version"); err != nil {
		t.Errorf("killed at %s: the current version does not start: %v %s", step, err, out)
	}
}

// killSteps lists the steps that each test must observe, so that no step remains untested after a
// change.
var killSteps = map[string][]string{
	polls:   {"copied", "unpacked", "tried", "placed", "linked", "begun", "taken", "swapped", "restarted", "healthy", "proven", "confirmed"},
	crashes: {"copied", "unpacked", "tried", "placed", "linked", "begun", "taken", "swapped", "restarted", "turned", "back", "noted", "forgotten"},
}

// TestKilled kills an update at each of its steps. The current version must always be complete. The
// next process, which completes the update or starts another, must leave the version that works.
func TestKilled(t *testing.T) {
	t.Parallel()
	for behaviour, end := range map[string]string{polls: "v1.1.0", crashes: "v1.0.0"} {
		for _, next := range []string{"recover", "apply"} {
			t.Run(behaviour+"/"+next, func(t *testing.T) {
				t.Parallel()
				seen := map[string]bool{}
				for n := 1; ; n++ {
					h := newHouse(t, "v1.0.0")
					files := newRelease(t, h.key, "v1.1.0", behaviour)
					h.put(t, "v1.1.0", files)
					c := child{Task: "apply", Root: h.root, Stage: h.stage, Kill: n}
					step := c.run(t, h.key)
					if step == "" {
						h.works(t, end)
						break
					}
					seen[step] = true
					h.complete(t, step)
					begun := h.applier().Pending()
					want := end
					if next == "recover" {
						child{Task: "recover", Root: h.root}.run(t, h.key)
						if !begun && !seen["begun"] { // nothing was swapped
							want = "v1.0.0"
						}
					} else {
						h.put(t, "v1.1.0", files)
						if err := os.WriteFile(filepath.Join(h.stage, RequestFile), []byte(`{"version":"v1.1.0","explicit":true}`), 0o644); err != nil {
							t.Fatal(err)
						}
						child{Task: "apply", Root: h.root, Stage: h.stage}.run(t, h.key)
					}
					if h.works(t, want); t.Failed() {
						t.Fatalf("killed at step %d, %s", n, step)
					}
					if failed, ok, err := h.applier().Failed(); err != nil || ok != (behaviour == crashes && (begun || seen["begun"] || next == "apply")) {
						t.Errorf("killed at %s: which version failed is %+v, %v, %v", step, failed, ok, err)
					}
				}
				for _, step := range killSteps[behaviour] {
					if !seen[step] {
						t.Errorf("no update was killed at %q", step)
					}
				}
			})
		}
	}
}

// TestKilledAgain kills an update, and then each recovery one step later, until one of them
// finishes.
func TestKilledAgain(t *testing.T) {
	t.Parallel()
	for behaviour, end := range map[string]string{polls: "v1.1.0", crashes: "v1.0.0"} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			for first := 6; first <= 12; first++ { // around the swap
				h := newHouse(t, "v1.0.0")
				h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", behaviour))
				trace := []string{child{Task: "apply", Root: h.root, Stage: h.stage, Kill: first}.run(t, h.key)}
				want, ends := end, map[string]bool{end: true}
				if !h.applier().Pending() && trace[0] != "confirmed" && trace[0] != "forgotten" && trace[0] != "" {
					want = "v1.0.0" // the update had not begun
					ends = map[string]bool{want: true}
				}
				for n := 1; ; n++ {
					step := child{Task: "recover", Root: h.root, Kill: n}.run(t, h.key)
					trace = append(trace, step)
					h.complete(t, step)
					if step == "" {
						break
					}
				}
				if len(trace)-2 > maxTries { // after too many attempts, even a working version is rolled back
					ends["v1.0.0"] = true
				}
				now, err := h.applier().Current()
				if err != nil || !ends[now] {
					t.Errorf("killed at %v: current is %s (%v), want %s", trace, now, err, want)
				}
				if h.works(t, now); t.Failed() {
					t.Fatalf("killed at %v", trace)
				}
			}
		})
	}
}

// TestGivenUp checks that an update that is interrupted repeatedly is rolled back, even without
// evidence that the new version is broken. The new version might be crashing the machine.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
	kill := func(task, at string) {
		t.Helper()
		for n := 1; ; n++ {
			c := child{Task: task, Root: h.root, Stage: h.stage, Kill: n}
			saved := h.save(t)
			if step := c.run(t, h.key); step == at {
				return
			} else if step == "" {
				t.Fatalf("%s never came to %s", task, at)
			}
			h.restore(t, saved)
		}
	}
	kill("apply", "restarted")
	for range maxTries {
		kill("recover", "restarted")
	}
	result, err := h.applier().Apply(t.Context(), "")
	if err != nil || result.Outcome != Back || !strings.Contains(result.Reason, "interrupted too often") {
		t.Errorf("Recover: %+v, %v", result, err)
	}
	h.works(t, "v1.0.0")
}

// save copies the house, so that a test can try a step more than once. It returns the path of the
// copy.
func (h *house) save(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	h.copyTree(t, filepath.Dir(h.root), to)
	return to
}

func (h *house) restore(t *testing.T, from string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(h.root), os.RemoveAll(h.stage)); err != nil {
		t.Fatal(err)
	}
	h.copyTree(t, from, filepath.Dir(h.root))
}

func (h *house) copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-RPp", from+"/.", to).CombinedOutput(); err != nil {
		t.Fatalf("copying: %v\n%s", err, out)
	}
}

// TestStagingKilled checks that a request exists only if all staged files exist, and that the next
// staging succeeds.
func TestStagingKilled(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	s := newSite(t)
	s.publish(t, h.key, release.Stable, "v1.1.0", published, newRelease(t, h.key, "v1.1.0", polls))
	for n := 1; ; n++ {
		if err := os.RemoveAll(h.stage); err != nil {
			t.Fatal(err)
		}
		c := child{Task: "stage", Stage: h.stage, Home: s.url, Kill: n}
		step := c.run(t, h.key)
		if step == "" && n < 4 {
			t.Fatalf("only %d steps", n)
		}
		if _, err := os.Lstat(filepath.Join(h.stage, RequestFile)); step != "" && !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("killed at %s: a request exists (%v)", step, err)
		}
		if step == "" {
			break
		}
		before := s.hits("v1.1.0/" + archiveName("v1.1.0"))
		c.Kill = 0
		c.run(t, h.key)
		if again := s.hits("v1.1.0/"+archiveName("v1.1.0")) - before; step == "signed" && again != 0 {
			t.Errorf("killed at %s: the whole archive was downloaded %d times more", step, again)
		}
		if entries, err := os.ReadDir(h.stage); err != nil || len(entries) != 5 { // archive, checksums, signature, request and lock
			t.Errorf("killed at %s: the stage holds %v, %v", step, entries, err)
		}
	}
	if result, err := h.applier().Apply(t.Context(), h.stage); err != nil || result.Outcome != Updated {
		t.Errorf("Apply: %+v, %v", result, err)
	}
	h.works(t, "v1.1.0")
}

// TestInterrupted checks that a process that is asked to stop leaves the update to the next
// process.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	h := newHouse(t, "v1.0.0")
	h.put(t, "v1.1.0", newRelease(t, h.key, "v1.1.0", polls))
	a := h.applier()
	ctx, cancel := context.WithCancel(t.Context())
	a.Service = watched{a.Service.(*unit), cancel}
	if _, err := a.Apply(ctx, h.stage); !errors.Is(err, context.Canceled) || !a.Pending() {
		t.Errorf("interrupted: %v, pending %v", err, a.Pending())
	}
	h.complete(t, "restart")
	result, err := h.applier().Apply(t.Context(), h.stage) // the request no longer exists
	if err != nil || result != (Result{Outcome: Updated, From: "v1.0.0", To: "v1.1.0"}) {
		t.Errorf("Apply: %+v, %v", result, err)
	}
	h.works(t, "v1.1.0")
}

// TestBrokenJournal checks that an unreadable journal does not prevent all later updates.
func TestBrokenJournal(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", `{"phase":"forward","from":"v1.0.0","to":"../../etc","wait":"polled"}`, `{"phase":"forward","from":"v2.0.0","to":"v1.0.0","wait":"polled"}`, strings.Repeat(" ", 1<<20)} {
		h := newHouse(t, "v1.0.0")
		if err := os.WriteFile(filepath.Join(h.root, JournalFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := h.applier().Apply(t.Context(), ""); err == nil || !strings.Contains(err.Error(), JournalFile) {
			t.Errorf("completing: %v", err)
		}
		h.works(t, "v1.0.0")
		h.updates(t, "v1.1.0")
	}
}
