package backup_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/store"
)

const day = 24 * time.Hour

// daily is a schedule that is due at midnight.
func daily(after time.Time) (time.Time, error) { return after.UTC().Truncate(day).Add(day), nil }

// planned runs a service with a daily schedule until the test ends, or stop is called.
func (s site) planned() (service *backup.Service, stop func()) {
	return s.plannedWith(backup.Request{Dir: s.backups, Keep: 3})
}

func (s site) plannedWith(q backup.Request) (service *backup.Service, stop func()) {
	service = backup.New(s.source(), backup.Plan{Request: q, Next: daily})
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx) }()
	return service, func() {
		cancel()
		<-ended
	}
}

// names returns the names of the backups.
func (s site) names() (names []string) {
	s.t.Helper()
	synctest.Wait()
	for _, e := range must.Get(os.ReadDir(s.backups))(s.t) {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestSchedule runs a schedule over days and restarts: no time is missed or served twice.
func TestSchedule(t *testing.T) {
	storetest.SQLite(t) // prepares, outside of the bubble, what tests share
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, storetest.SQLite(t))
		service, stop := s.planned()
		time.Sleep(3 * time.Minute)
		if names := s.names(); len(names) != 1 {
			t.Errorf("after the start, the backups are %v", names)
		}
		time.Sleep(2 * day)
		if names := s.names(); len(names) != 3 || !strings.Contains(names[2], "T00-0") {
			t.Errorf("after two days, the backups are %v", names)
		}
		time.Sleep(day)
		names := s.names()
		if len(names) != 3 {
			t.Errorf("after three days, the backups are %v", names)
		}
		status := must.Get(service.Status(t.Context()))(t)
		if last := status.Last; last == nil || !strings.HasSuffix(last.Path, names[2]) || last.Bytes == 0 || last.Host == "" || status.Failing() != nil {
			t.Errorf("the status is %+v", status)
		}
		stop()

		time.Sleep(time.Hour)
		_, stop = s.planned()
		time.Sleep(3 * time.Minute)
		if after := s.names(); after[2] != names[2] {
			t.Errorf("a restart wrote the backup %s, which was not due", after[2])
		}
		stop()

		time.Sleep(3 * day)
		_, stop = s.planned()
		time.Sleep(3 * time.Minute)
		missed := s.names()
		if missed[2] == names[2] || missed[1] != names[2] {
			t.Errorf("after days without a server, the backups are %v", missed)
		}
		time.Sleep(time.Hour)
		if after := s.names(); after[2] != missed[2] {
			t.Errorf("another backup was written: %s", after[2])
		}
		stop()
	})
}

// TestUnsealed checks that the status names the last backup of the schedule that does not contain the master key, whatever
// other backups contain.
func TestUnsealed(t *testing.T) {
	storetest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, storetest.SQLite(t))
		service, stop := s.planned()
		time.Sleep(2 * time.Minute)
		sealing := backup.Request{Dir: s.backups, Passphrase: passphrase}
		names := s.names()
		must.Get(service.Write(t.Context(), sealing))(t)
		status := must.Get(service.Status(t.Context()))(t)
		if len(names) != 1 || filepath.Base(status.Unsealed) != names[0] || !status.Last.Key {
			t.Errorf("with the backups %v and a later one by a command, the status is %+v", names, status)
		}
		stop()
		time.Sleep(day)
		service, stop = s.plannedWith(sealing)
		defer stop()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if status := must.Get(service.Status(t.Context()))(t); status.Unsealed != "" || !status.Last.Key {
			t.Errorf("after a sealed backup, the status is %+v", status)
		}
	})
}

// TestFailedSchedule checks that a failed backup is recorded, and repeated until it succeeds.
func TestFailedSchedule(t *testing.T) {
	storetest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, storetest.SQLite(t))
		must.OK(t, os.Mkdir(s.backups, 0o700))
		must.OK(t, os.Chmod(s.backups, 0o750))
		service, stop := s.planned()
		defer stop()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		first := must.Get(service.Status(t.Context()))(t)
		if f := first.Failing(); f == nil || !strings.Contains(f.Error, "other users may read or write") || first.Last != nil {
			t.Fatalf("the status is %+v", first)
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if later := must.Get(service.Status(t.Context()))(t); later.Failing() == nil || !later.Failure.Time.After(first.Failure.Time) {
			t.Errorf("after three hours, the status is %+v", later)
		}
		must.OK(t, os.Chmod(s.backups, 0o700))
		time.Sleep(time.Hour)
		if names := s.names(); len(names) != 1 {
			t.Errorf("the backups are %v", names)
		}
		if status := must.Get(service.Status(t.Context()))(t); status.Failing() != nil || status.Failure == nil {
			t.Errorf("after the success, the status is %+v", status)
		}
	})
}

// TestReplicas runs the schedule on two servers that share a database. One of them writes each backup, and the other one
// continues when it has ended.
func TestReplicas(t *testing.T) {
	defer backup.LowerStartDelay()()
	first, second := storetest.PostgresPair(t)
	s := newSite(t, first)
	dbs := []*store.DB{first, second}
	dirs := []string{s.backups, s.backups + "-of-second"} // so that neither waits for the other's lock
	written := func() (counts [2]int) {
		t.Helper()
		for i, dir := range dirs {
			list, err := backup.List(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			counts[i] = len(list)
		}
		return counts
	}
	// serve runs the schedule on servers until a number of backups that were due are written.
	serve := func(due int64, servers ...int) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var left atomic.Int64
		left.Store(due)
		next := func(after time.Time) (time.Time, error) {
			if left.Add(-1) < 0 {
				stop()
				return after.Add(day), nil
			}
			return after, nil
		}
		var running sync.WaitGroup
		for _, i := range servers {
			src := s.source()
			src.DB = dbs[i]
			service := backup.New(src, backup.Plan{Request: backup.Request{Dir: dirs[i]}, Next: next})
			running.Go(func() { _ = dbs[i].Exclusive(ctx, "backups", service.Run) })
		}
		running.Wait()
	}
	serve(2, 0, 1)
	counts := written()
	if counts != [2]int{3, 0} && counts != [2]int{0, 3} { // the first one, and those that were due
		t.Fatalf("the servers have written %d backups, want 3 of one", counts)
	}
	other := 0
	if counts[0] > 0 {
		other = 1
	}
	serve(1, other)
	counts[other] = 1
	if got := written(); got != counts {
		t.Errorf("after the end of one server, they have written %d backups, want %d", got, counts)
	}
	status := must.Get(backup.ReadStatus(t.Context(), first))(t)
	if status.Last == nil || filepath.Dir(status.Last.Path) != dirs[other] || status.Failing() != nil {
		t.Errorf("the status is %+v", status)
	}
}

// TestSharedDirectory checks that a backup of an installation removes none of another one.
func TestSharedDirectory(t *testing.T) {
	first, second := newSite(t, storetest.SQLite(t)), newSite(t, storetest.SQLite(t))
	second.backups = first.backups
	foreign := []string{first.backup(backup.Request{}).Path, first.backup(backup.Request{}).Path}
	old := second.backup(backup.Request{})
	result := second.backup(backup.Request{Keep: 1})
	if len(result.Removed) != 1 || !strings.HasSuffix(old.Path, result.Removed[0]) || result.Unremoved != nil {
		t.Errorf("removed %v, %v", result.Removed, result.Unremoved)
	}
	for _, path := range foreign {
		must.Get(backup.Verify(t.Context(), path, ""))(t)
	}
}
