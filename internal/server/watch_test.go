package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestServerStopsForANewerOne runs a server whose database only later programs may use.
func TestServerStopsForANewerOne(t *testing.T) {
	s := must.Get(New(t.Context(), testConfig(t, t.TempDir()), "v1", storetest.Log(), io.Discard))(t)
	must.OK(t, s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("INSERT INTO oldest_programs (migration, release) VALUES (9999, 'v9.1.0')")
		return err
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := s.Run(ctx)
	if old, ok := errors.AsType[*store.OldProgramError](err); !ok || old.Oldest != "v9.1.0" || ctx.Err() != nil {
		t.Errorf("the server ends with %v", err)
	}
}

// TestServerStopsWithoutItsSecrets runs a server whose secrets were discarded while it stood still.
func TestServerStopsWithoutItsSecrets(t *testing.T) {
	s := must.Get(New(t.Context(), testConfig(t, t.TempDir()), "v1", storetest.Log(), io.Discard))(t)
	must.OK(t, keyring.Discard(t.Context(), s.db))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Run(ctx); !errors.Is(err, keyring.ErrNotStored) || ctx.Err() != nil {
		t.Errorf("the server ends with %v", err)
	}
}

// TestPulse checks that a server whose requests hang does not count as alive.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var requests atomic.Int64
		var p pulse
		if !p.alive() {
			t.Error("the server is not alive before its first request")
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go p.run(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := w.Write([]byte("ok")); err != nil || r.URL.Path != "/healthz" {
				t.Errorf("the request for %s: %v", r.URL.Path, err)
			}
			if requests.Add(1) == 3 {
				<-hang
			}
		}))
		time.Sleep(time.Minute)
		if requests.Load() != 3 || !p.alive() {
			t.Errorf("after a minute: %d requests, alive: %v", requests.Load(), p.alive())
		}
		time.Sleep(time.Minute)
		if p.alive() {
			t.Error("a server that hangs counts as alive")
		}
		close(hang)
		time.Sleep(pulseEvery)
		if !p.alive() {
			t.Error("the server has recovered, but does not count as alive")
		}
	})
}

// TestNewDataDirIsNamed checks that a server that creates an empty installation next to another one says so.
func TestNewDataDirIsNamed(t *testing.T) {
	cwd := t.TempDir()
	t.Chdir(cwd)
	other := filepath.Join(cwd, config.DefaultDataDir)
	must.OK(t, os.Mkdir(other, 0o700))
	dir := filepath.Join(t.TempDir(), "data")
	open := func(dir string) []string {
		t.Helper()
		logger, lines := logtest.NewNullLogger()
		s := &Server{cfg: config.Config{DataDir: dir}, log: logrus.NewEntry(logger)}
		must.OK(t, s.openDataDir())
		var said []string
		for _, line := range lines.AllEntries() {
			said = append(said, must.Get(line.String())(t))
		}
		return said
	}
	mentions := func(said []string, dir string) bool {
		return slices.ContainsFunc(said, func(line string) bool { return strings.Contains(line, dir) })
	}
	if said := open(dir); !mentions(said, dir) || mentions(said, other) {
		t.Errorf("next to an empty directory: %q", said)
	}
	must.OK(t, os.WriteFile(filepath.Join(other, "server.db"), nil, 0o600))
	if said := open(dir); !mentions(said, dir) || !mentions(said, "--data-dir "+other) {
		t.Errorf("next to another installation: %q", said)
	}
	if said := open(other); len(said) != 0 {
		t.Errorf("in an existing installation: %q", said)
	}
}
