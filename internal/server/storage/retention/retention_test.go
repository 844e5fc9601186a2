package retention_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/storage/retention"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const day = 24 * time.Hour

// eventsEach is the number of events of each update. It exceeds the size of the first slice.
const eventsEach = 40

// world is a database with the data of old stacks.
type world struct {
	t   *testing.T
	db  *store.DB
	now time.Time
	// updates and jobs are ids.
	updates, jobs []string
	deleted       deletedBefore
}

// deletedBefore records up to which time deleted stacks were purged.
type deletedBefore struct{ times []time.Time }

func (d *deletedBefore) PurgeDeleted(_ context.Context, before time.Time) (int, error) {
	d.times = append(d.times, before)
	return 0, nil
}

// TestDeletedStacks checks that deleted stacks are purged after their time, and at once without one.
func TestDeletedStacks(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	w.sweep(retention.Policy{DeletedFor: 30 * day})
	w.sweep(retention.Policy{})
	if len(w.deleted.times) != 2 {
		t.Fatalf("purged %d times", len(w.deleted.times))
	}
	for i, age := range []time.Duration{30 * day, 0} {
		if off := w.deleted.times[i].Sub(w.now.Add(-age)); off < 0 || off > time.Hour {
			t.Errorf("purged what was deleted before %s, want %s before now", w.deleted.times[i], age)
		}
	}
}

func newWorld(t *testing.T, db *store.DB) *world {
	t.Helper()
	w := &world{t: t, db: db, now: time.Now().UTC().Truncate(time.Microsecond)}
	w.write(func(tx *store.Tx) error { return tx.InsertOrganization(store.Organization{ID: "org", Name: "acme"}) })
	return w
}

func (w *world) write(change func(tx *store.Tx) error) {
	w.t.Helper()
	if err := w.db.Write(w.t.Context(), scope.Server(), change); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) stack(id, state string) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error {
		return tx.InsertStack(store.Stack{ID: id, OrgID: "org", Project: "p", Name: id, StateBlob: state})
	})
}

// update adds an update that finished days ago, or still runs if days is 0.
func (w *world) update(u store.Update, days int) {
	w.t.Helper()
	ago := time.Duration(days) * day
	u.CreatedAt = w.now.Add(-ago + time.Duration(len(w.updates))*time.Second)
	u.StartedAt, u.Status = u.CreatedAt, "running"
	if days > 0 {
		u.FinishedAt, u.Status = u.CreatedAt.Add(time.Second), "succeeded"
	}
	w.updates = append(w.updates, u.ID)
	var events []store.EventBatch
	for i := range int64(eventsEach) {
		events = append(events, store.EventBatch{Last: i, Events: 1, Body: "{}"})
	}
	w.write(func(tx *store.Tx) error {
		if err := tx.InsertUpdate(u); err != nil {
			return err
		}
		_, _, err := tx.InsertEvents(u.ID, events)
		return err
	})
}

// job adds a deployment and its job, whose log has one stream.
func (w *world) job(id, stackID string, version int64, status workflow.Status, days int) {
	w.t.Helper()
	w.jobs = append(w.jobs, id)
	j := store.Job{ID: id, DeploymentID: "of " + id, OrgID: "org", StackID: stackID, Version: version, Status: status, Epoch: 1}
	if status.Final() {
		j.EndedAt = w.now.Add(-time.Duration(days) * day)
	}
	w.write(func(tx *store.Tx) error {
		if err := tx.InsertDeployment(store.Deployment{ID: j.DeploymentID, OrgID: "org", StackID: stackID, Version: version}); err != nil {
			return err
		}
		return tx.InsertJob(j)
	})
	if err := w.db.Blobs().Put(w.t.Context(), joblog.Key(id, 1, 0), strings.NewReader("x")); err != nil {
		w.t.Fatal(err)
	}
}

// removed returns the ids of the updates and jobs whose data has been removed, by kind of data.
func (w *world) removed() map[string][]string {
	w.t.Helper()
	out := map[string][]string{}
	add := func(what, id string, gone, marked bool) {
		if gone != marked {
			w.t.Errorf("%s of %s: removed %v, marked %v", what, id, gone, marked)
		}
		if gone {
			out[what] = append(out[what], id)
		}
	}
	err := w.db.Read(w.t.Context(), func(tx *store.Tx) error {
		for _, id := range w.updates {
			u, err := tx.Update(id)
			if err != nil {
				return err
			}
			last, err := tx.LastSequence(id)
			if err != nil {
				return err
			}
			add("states", id, u.StateBlob == "" && !u.Preview, u.StateExpired)
			add("events", id, last < 0, u.EventsExpired)
		}
		for _, id := range w.jobs {
			j, err := tx.Job(id)
			if err != nil {
				return err
			}
			size, err := w.db.Blobs().Size(w.t.Context(), joblog.Key(id, 1, 0))
			if err != nil {
				return err
			}
			add("logs", id, size == 0, j.LogExpired)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) sweep(policy retention.Policy) {
	w.t.Helper()
	if err := retention.New(w.db, storetest.Log(), &w.deleted, policy).Sweep(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) fill() {
	w.stack("a", "a9")
	w.job("old", "a", 1, workflow.StatusSucceeded, 300)
	w.job("running", "a", 2, workflow.StatusRunning, 0)
	w.job("waiting", "a", 3, workflow.StatusNotStarted, 0)
	w.job("young", "a", 4, workflow.StatusFailed, 170)
	w.job("latest", "a", 5, workflow.StatusSucceeded, 300)
	w.job("orphaned", "gone", 1, workflow.StatusSucceeded, 300)
	for version, u := range []struct {
		id, deployment, state string
		days                  int
	}{
		{"old", "of old", "a1", 300},
		{"of the running deployment", "of running", "a2", 300},
		{"of the waiting deployment", "of waiting", "a3", 300},
		{"of the latest deployment", "of latest", "a4", 300},
		{"with the current state", "", "a9", 300},
		{"middle-aged", "", "a5", 120},
		{"young", "", "a6", 50},
		{"third", "", "a7", 40},
		{"second", "", "a8", 30},
		{"newest", "", "a9", 20},
	} {
		w.update(store.Update{ID: u.id, StackID: "a", DeploymentID: u.deployment, StateBlob: u.state, Version: int64(version + 1)}, u.days)
	}
	// Stack b is no longer used. The first update of stack c still runs.
	w.stack("b", "b3")
	for version, id := range []string{"idle 1", "idle 2", "idle 3"} {
		w.update(store.Update{ID: id, StackID: "b", StateBlob: id, Version: int64(version + 1)}, 300)
	}
	w.update(store.Update{ID: "old preview", StackID: "b", Preview: true}, 300)
	w.update(store.Update{ID: "newest preview", StackID: "b", Preview: true}, 300)
	w.stack("c", "c 5")
	w.update(store.Update{ID: "unfinished", StackID: "c", StateBlob: "c0", Version: 1}, 0)
	for version, id := range []string{"fourth newest", "c 3", "c 4", "c 5"} {
		w.update(store.Update{ID: id, StackID: "c", StateBlob: id, Version: int64(version + 2)}, 300)
	}
}

func TestSweep(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		w := newWorld(t, db)
		w.fill()
		w.sweep(retention.Policy{States: 1})
		if diff := cmp.Diff(map[string][]string{}, w.removed()); diff != "" {
			t.Errorf("removed without an age (-want +got):\n%s", diff)
		}
		policy := retention.Policy{States: 3, StatesFor: 90 * day, LogsFor: 180 * day}
		want := map[string][]string{
			"states": {"old", "middle-aged", "fourth newest"},
			"events": {"old", "with the current state", "idle 1", "idle 2", "old preview", "fourth newest", "c 3", "c 4", "c 5"},
			"logs":   {"old", "orphaned"},
		}
		for range 2 { // a repeated sweep removes nothing else
			w.sweep(policy)
			if diff := cmp.Diff(want, w.removed()); diff != "" {
				t.Errorf("removed (-want +got):\n%s", diff)
			}
		}
	})
}

// TestUnstartedUpdatesAreRemoved checks that an update disappears that no client has started within a
// day, without any policy, and that other updates of that age remain.
func TestUnstartedUpdatesAreRemoved(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		w := newWorld(t, db)
		w.stack("a", "")
		w.update(store.Update{ID: "running", StackID: "a"}, 0)
		w.update(store.Update{ID: "finished", StackID: "a"}, 3)
		want := []string{"finished", "running"}
		w.write(func(tx *store.Tx) error {
			for i := range 50 { // more than the first slice
				u := store.Update{ID: fmt.Sprint("old", i), StackID: "a", Status: string(stacks.NotStarted), CreatedAt: w.now.Add(-25 * time.Hour)}
				if i >= 48 {
					u.ID, u.CreatedAt = fmt.Sprint("young", i), w.now.Add(-23*time.Hour)
					want = append(want, u.ID)
				}
				if err := tx.InsertUpdate(u); err != nil {
					return err
				}
			}
			_, err := tx.Exec("UPDATE updates SET created_at = $1 WHERE id = 'running'", w.now.Add(-25*time.Hour))
			return err
		})
		for range 2 {
			w.sweep(retention.Policy{})
			got, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]string, error) {
				return database.Scalars[string](tx.Tx, "SELECT id FROM updates ORDER BY id")
			})
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("the remaining updates differ (-want +got), %v:\n%s", err, diff)
			}
		}
	})
}

// TestLongProgramsAreShortened checks that updates whose events are removed lose their configurations, too,
// if they are long, and keep the rest of the history.
func TestLongProgramsAreShortened(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		w := newWorld(t, db)
		w.stack("a", "")
		short := `{"config":{"a":{"string":"x"}},"metadata":{"message":"why","environment":null}}`
		long := strings.Replace(short, "x", strings.Repeat("x", store.LongText), 1)
		const shortened = `{"name":"","runtime":"","main":"","description":"","options":null,"config":null,"metadata":{"message":"why","environment":null}}`
		for _, u := range []struct {
			program, want string
			days          int
		}{{short, short, 200}, {long, shortened, 200}, {long, long, 170}, {long, long, 190}} {
			id := fmt.Sprint(len(w.updates))
			w.update(store.Update{ID: id, StackID: "a", Program: u.program, Preview: u.days == 190}, u.days)
			defer func() {
				got, err := store.Read(t.Context(), db, func(tx *store.Tx) (string, error) { return tx.Program(id) })
				if err != nil || got != u.want {
					t.Errorf("the program of update %s is %.200s, %v, want %.200s", id, got, err, u.want)
				}
			}()
		}
		w.sweep(retention.Policy{LogsFor: 180 * day})
	})
}

// TestSweepIsSlow checks that the sweeper pauses so that requests can use the processor and the
// database.
func TestSweepIsSlow(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	w.fill()
	busy := busyTime(t)
	began := time.Now()
	w.sweep(retention.Policy{States: 1, StatesFor: day, LogsFor: day})
	busy, took := busyTime(t)-busy, time.Since(began)
	// The other tests in this binary use some processor time too.
	if busy > took/8 {
		t.Errorf("the sweep used %v of processor time in %v", busy, took)
	}
}

// TestSweepShrinksTheFile checks that the file system gets the space of removed rows back, except for a quarter of the
// file for later rows. The duration of the sweep's transactions, which determines their size, makes no difference.
func TestSweepShrinksTheFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "server.db")
	db, err := store.Open(t.Context(), "sqlite:"+file, store.Options{Log: storetest.Log(), BlobDir: filepath.Join(dir, "blobs")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(t, db)
	w.stack("a", "")
	// pages returns the numbers of all pages and of the unused ones.
	pages := func() (all, unused int64) {
		t.Helper()
		got, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]int64, error) {
			return database.Scalars[int64](tx.Tx, "SELECT page_count FROM pragma_page_count UNION ALL SELECT freelist_count FROM pragma_freelist_count")
		})
		if err != nil || len(got) != 2 {
			t.Fatalf("the numbers of pages are %v, %v", got, err)
		}
		return got[0], got[1]
	}
	body := strings.Repeat("x", 20_000)
	for i := range 3 {
		u := store.Update{ID: fmt.Sprint(i), StackID: "a", Version: int64(i), Preview: true}
		w.update(u, 300)
		var events []store.EventBatch
		for i := range int64(50) {
			events = append(events, store.EventBatch{Last: eventsEach + i, Events: 1, Body: body})
		}
		w.write(func(tx *store.Tx) error {
			_, _, err := tx.InsertEvents(u.ID, events)
			return err
		})
	}
	before, spare := pages()
	used := before - spare
	w.sweep(retention.Policy{States: 1, LogsFor: day})
	after, spare := pages()
	removed := used - (after - spare)
	if want := int64(2 * 50 * len(body) / 4096); removed < want {
		t.Fatalf("the sweep removed rows of %d pages, want at least %d: the events of two of three updates", removed, want)
	}
	if spare > after/4 || after >= before {
		t.Errorf("the database has %d pages after the sweep, and %d before; %d are unused, want at most a quarter", after, before, spare)
	}
	info, err := os.Stat(file) // the sweep itself has shrunk the file
	if err != nil {
		t.Fatal(err)
	}
	if want := after * 4096; info.Size() != want {
		t.Errorf("the file has %d bytes, want the %d of %d pages", info.Size(), want, after)
	}
}
