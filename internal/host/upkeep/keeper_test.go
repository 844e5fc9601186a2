package upkeep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"workflowagent/internal/agent/status"
	"workflowagent/internal/host/update"
)

type fakeSource struct {
	mu      sync.Mutex
	version string
	err     error
	looked  []time.Time
	staged  []string
}

func (s *fakeSource) Latest(context.Context) (update.Candidate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked = append(s.looked, time.Now())
	return update.Candidate{Version: s.version}, s.err
}

func (s *fakeSource) Stage(_ context.Context, c update.Candidate, at update.Staging) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.staged = append(s.staged, c.Version)
	return os.WriteFile(filepath.Join(at.Dir, update.RequestFile), nil, 0o600)
}

func (s *fakeSource) set(version string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.err = version, err
}

func (s *fakeSource) times() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.looked)
}

func (s *fakeSource) handed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.staged)
}

// well returns the report of an agent that can be restarted at any time.
func well() status.Report {
	return status.Report{State: status.Ready, Server: status.Server{Connected: true}, Engine: status.Engine{Up: true}, Slots: status.Slots{Total: 1, Free: 1}}
}

// installation returns an installation of v1.0.0 and its stage.
func installation(t *testing.T) (*update.Installation, string) {
	t.Helper()
	root, stage := t.TempDir(), t.TempDir()
	must(t, os.Symlink("versions/v1.0.0", filepath.Join(root, "current")))
	return &update.Installation{Root: root, Version: "v1.0.0"}, stage
}

func keep(t *testing.T, k *Keeper) (*Keeper, *test.Hook) {
	t.Helper()
	log, hook := test.NewNullLogger()
	log.SetOutput(io.Discard)
	k.Log, k.Version = logrus.NewEntry(log), "v1.0.0"
	if k.Report == nil {
		k.Report = well
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.keep(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return k, hook
}

func said(hook *test.Hook, text string) int {
	n := 0
	for _, e := range hook.AllEntries() {
		if strings.Contains(e.Message, text) {
			n++
		}
	}
	return n
}

func TestLooksNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSource{version: "v1.0.0"}
		k, hook := keep(t, &Keeper{source: s})
		begin := time.Now()
		time.Sleep(36 * time.Hour)
		looked := s.times()
		if first := looked[0].Sub(begin); first < firstCheck*3/4 || first > firstCheck*5/4 {
			t.Errorf("the first check came after %s", first)
		}
		same := true
		for i := 2; i < len(looked); i++ {
			pause := looked[i].Sub(looked[i-1])
			if pause < checkInterval || pause > checkInterval*11/10 {
				t.Errorf("check %d came after %s", i, pause)
			}
			same = same && pause == looked[1].Sub(looked[0])
		}
		if same {
			t.Error("the pauses are all the same: every agent of a pool would check at the same time")
		}
		if st := k.Status(); st.Available != "" || st.CheckedAt == nil || st.Error != "" || len(hook.AllEntries()) > 0 {
			t.Errorf("%+v, and the log has %d lines", st, len(hook.AllEntries()))
		}
	})
}

func TestErrorsAreTriedAgainMoreAndMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSource{err: errors.New("no route to host")}
		k, hook := keep(t, &Keeper{source: s})
		time.Sleep(72 * time.Hour)
		looked := s.times()
		for i := 1; i < len(looked); i++ {
			want := min(retryCheck<<min(i-1, 10), checkInterval)
			if pause := looked[i].Sub(looked[i-1]); pause < want/2 || pause > want*11/10 {
				t.Errorf("check %d came after %s, want about %s", i, pause, want)
			}
		}
		if st := k.Status(); st.Error != "no route to host" || len(looked) < 12 {
			t.Errorf("%+v after %d checks", st, len(looked))
		}
		if n := said(hook, "updating the agent failed"); n != 1 {
			t.Errorf("it was logged %d times", n)
		}
		s.set("v1.0.0", nil)
		time.Sleep(8 * time.Hour)
		if st := k.Status(); st.Error != "" {
			t.Errorf("afterwards it is %+v", st)
		}
	})
}

func TestAnnouncesEachReleaseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSource{version: "v1.1.0"}
		k, hook := keep(t, &Keeper{source: s, advice: "run apt-get"})
		time.Sleep(48 * time.Hour)
		if n := said(hook, "run apt-get"); n != 1 {
			t.Errorf("it was logged %d times", n)
		}
		s.set("v1.2.0", nil)
		time.Sleep(24 * time.Hour)
		if n := said(hook, "run apt-get"); n != 2 {
			t.Errorf("two releases were logged %d times", n)
		}
		if st := k.Status(); st.Available != "v1.2.0" || st.State != "run apt-get" || len(s.handed()) > 0 {
			t.Errorf("%+v, staged %q", st, s.handed())
		}
	})
}

func TestBuildWithoutAVersionLooksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeSource{version: "v1.1.0"}
		log, _ := test.NewNullLogger()
		k := &Keeper{source: s, Version: "v0.0.0-dev", Log: logrus.NewEntry(log)}
		k.keep(t.Context())
		if st := k.Status(); st.Mode != status.UpdateOff || !strings.Contains(st.State, "development build") {
			t.Errorf("%+v", st)
		}
	})
}

// TestInstalls checks that a release is handed over when nothing blocks it, and that it is handed
// over again only after a pause.
func TestInstalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		install, stage := installation(t)
		s := &fakeSource{version: "v1.1.0"}
		var mu sync.Mutex
		r := well()
		r.Jobs = []status.Job{{JobID: "1", Epoch: 1, Phase: status.Preparing}}
		k, hook := keep(t, &Keeper{source: s, installation: install, Stage: stage, Report: func() status.Report {
			mu.Lock()
			defer mu.Unlock()
			return r
		}})
		time.Sleep(30 * time.Minute)
		if st := k.Status(); st.State != "waits until no job is being started" || len(s.handed()) > 0 {
			t.Fatalf("%+v, staged %q", st, s.handed())
		}
		mu.Lock()
		r.Jobs = []status.Job{{JobID: "1", Epoch: 1, Phase: status.Running}} // a running job continues without the agent
		mu.Unlock()
		time.Sleep(time.Minute)
		if len(s.handed()) != 1 || said(hook, "handed over") != 1 {
			t.Fatalf("staged %q", s.handed())
		}

		// If the helper removes the request without an update, it has rejected the request.
		must(t, os.Remove(filepath.Join(stage, update.RequestFile)))
		time.Sleep(time.Minute)
		if st := k.Status(); !strings.Contains(st.Error, "v1.1.0 was not installed") || len(s.handed()) != 1 {
			t.Errorf("%+v, staged %q", st, s.handed())
		}
	})
}

func TestRequestIsNotAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		install, stage := installation(t)
		k, _ := keep(t, &Keeper{source: &fakeSource{version: "v1.1.0"}, installation: install, Stage: stage})
		time.Sleep(15 * time.Minute)
		if st := k.Status(); !strings.Contains(st.Error, "run service install") {
			t.Errorf("%+v", st)
		}
	})
}

func TestVersionThatFailedIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		install, stage := installation(t)
		note := fmt.Sprintf(`{"version": "v1.1.0", "at": %q, "reason": "it was deaf"}`, time.Now().Format(time.RFC3339))
		must(t, os.WriteFile(filepath.Join(install.Root, "update-failed.json"), []byte(note), 0o644))
		s := &fakeSource{version: "v1.1.0"}
		k, hook := keep(t, &Keeper{source: s, installation: install, Stage: stage})
		time.Sleep(14 * time.Hour)
		if st := k.Status(); len(s.handed()) > 0 || !strings.Contains(st.State, "it was deaf") || said(hook, "is not installed") != 1 {
			t.Errorf("%+v, staged %q, logged %d times", st, s.handed(), said(hook, "is not installed"))
		}
		s.set("v1.2.0", nil) // a different version
		time.Sleep(9 * time.Hour)
		if len(s.handed()) == 0 || s.handed()[0] != "v1.2.0" {
			t.Errorf("staged %q", s.handed())
		}
	})
}

// TestLogsHowAnUpdateEnded checks that a process that is started during an update logs the update's
// outcome.
func TestLogsHowAnUpdateEnded(t *testing.T) {
	for name, tt := range map[string]struct {
		current, failed, want string
	}{
		"good":        {"v1.1.0", "", "the agent was updated"},
		"rolled back": {"v1.0.0", "v1.1.0", "the update was rolled back: the new version did not work"},
		"given up":    {"v1.0.0", "", "the update was rolled back"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				install, stage := installation(t)
				write := func(name, text string) {
					must(t, os.WriteFile(filepath.Join(install.Root, name), []byte(text), 0o644))
				}
				write(update.JournalFile, `{"phase": "forward", "from": "v1.0.0", "to": "v1.1.0", "wait": "polled"}`)
				s := &fakeSource{version: "v1.0.0"}
				k, hook := keep(t, &Keeper{source: s, installation: install, Stage: stage})
				time.Sleep(time.Hour)
				if st := k.Status(); !strings.Contains(st.State, "not confirmed yet") || len(s.times()) > 0 {
					t.Errorf("during the update it is %+v, after %d checks", st, len(s.times()))
				}
				must(t, os.Remove(filepath.Join(install.Root, "current")))
				must(t, os.Symlink("versions/"+tt.current, filepath.Join(install.Root, "current")))
				if tt.failed != "" {
					write("update-failed.json", fmt.Sprintf(`{"version": %q, "at": %q, "reason": "deaf"}`, tt.failed, time.Now().Format(time.RFC3339)))
				}
				must(t, os.Remove(filepath.Join(install.Root, update.JournalFile)))
				time.Sleep(12 * time.Hour)
				entries := hook.AllEntries()
				if len(entries) != 1 || entries[0].Message != tt.want {
					t.Errorf("the log has %v, want %q", entries, tt.want)
				}
			})
		})
	}
}

func TestBlocked(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(r *status.Report)
		want   string
	}{
		{"well", func(*status.Report) {}, ""},
		{"a job that runs", func(r *status.Report) {
			r.Slots.Free, r.Jobs = 0, []status.Job{{Phase: status.Running, Epoch: 3}, {Phase: status.Reporting, Epoch: 1}}
		}, ""},
		{"a job that was found again", func(r *status.Report) {
			r.Jobs = []status.Job{{Phase: status.Running, Epoch: 3, Reattached: true}}
		}, ""},
		{"no server", func(r *status.Report) { r.Server.Connected = false }, "server answers"},
		{"no engine", func(r *status.Report) { r.Engine.Up = false }, "jobs can run"},
		{"a drain", func(r *status.Report) { r.Draining = true }, "is stopping"},
		{"a stop", func(r *status.Report) { r.Stopping = true }, "is stopping"},
		{"a claim", func(r *status.Report) { r.Jobs = []status.Job{{Phase: status.Preparing, Epoch: 1}} }, "being started"},
		{"a launch", func(r *status.Report) { r.Jobs = []status.Job{{Phase: status.StartingJob, Epoch: 1}} }, "being started"},
		{"a search", func(r *status.Report) { r.Jobs = []status.Job{{Phase: status.Reattaching, Epoch: 1}} }, "are resumed"},
		{"a stock server, with room", func(r *status.Report) { r.Jobs = []status.Job{{Phase: status.Running}} }, ""},
		{"a stock server, without", func(r *status.Report) { r.Slots.Free, r.Jobs = 0, []status.Job{{Phase: status.Running}} }, "end of a job"},
	} {
		r := well()
		tt.change(&r)
		if got := blocked(r); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
