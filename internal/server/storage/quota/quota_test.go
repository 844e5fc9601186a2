package quota_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/storage/retention"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// world is a database with two organizations that store nothing.
type world struct {
	t   *testing.T
	db  *store.DB
	old time.Time
}

func newWorld(t *testing.T, db *store.DB) *world {
	t.Helper()
	w := &world{t: t, db: db, old: time.Now().Add(-48 * time.Hour)}
	w.write(func(tx *store.Tx) error {
		for _, name := range []string{"acme", "rival"} {
			if err := tx.InsertOrganization(store.Organization{ID: "id of " + name, Name: name}); err != nil {
				return err
			}
			if err := tx.InsertStack(store.Stack{ID: "stack-of-" + name, OrgID: "id of " + name, Project: "p", Name: "dev", StateBlob: name + "-state"}); err != nil {
				return err
			}
		}
		return nil
	})
	return w
}

func (w *world) write(change func(tx *store.Tx) error) {
	w.t.Helper()
	if err := w.db.Write(w.t.Context(), scope.Server(), change); err != nil {
		w.t.Fatal(err)
	}
}

// state adds a state of 1000 bytes, and a journal of 100.
func (w *world) state(org string) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error {
		stack := "stack-of-" + org
		if err := tx.InsertState(store.State{Key: org + "-state", StackID: stack, Form: store.Full, Blob: org + "-state", Size: 1000}); err != nil {
			return err
		}
		if err := tx.InsertState(store.State{Key: org + "-journal", StackID: stack, Form: store.Journal, Parent: org + "-state"}); err != nil {
			return err
		}
		return tx.InsertBatch(store.JournalBatch{StateKey: org + "-journal", Number: 1, Body: make([]byte, 100), Size: 5000})
	})
}

// update adds an update with two batches of events, which store 30 bytes. The zero time means that the update runs.
func (w *world) update(org, id string, finished time.Time) {
	w.t.Helper()
	u := store.Update{ID: id, StackID: "stack-of-" + org, Status: "succeeded", CreatedAt: w.old, StartedAt: w.old, FinishedAt: finished}
	if finished.IsZero() {
		u.Status = "running"
	}
	w.write(func(tx *store.Tx) error {
		if err := tx.InsertUpdate(u); err != nil {
			return err
		}
		_, _, err := tx.InsertEvents(id, []store.EventBatch{
			{Last: 0, Events: 1, Body: "0123456789"}, {Last: 50, Events: 50, Size: 5000, Packed: make([]byte, 20)},
		})
		return err
	})
}

// job adds a job with two streams of log, 7 bytes together.
func (w *world) job(org, id string, status workflow.Status, ended time.Time) {
	w.t.Helper()
	w.write(func(tx *store.Tx) error {
		d := store.Deployment{ID: "of " + id, OrgID: "id of " + org, StackID: "gone", Version: int64(len(id))}
		if err := tx.InsertDeployment(d); err != nil {
			return err
		}
		return tx.InsertJob(store.Job{ID: id, DeploymentID: d.ID, OrgID: d.OrgID, StackID: "gone", Status: status, Epoch: 1, EndedAt: ended})
	})
	for step, text := range []string{"1234", "567"} {
		if err := w.db.Blobs().Put(w.t.Context(), joblog.Key(id, 1, step), strings.NewReader(text)); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) stores(when, org string, want int64) {
	w.t.Helper()
	if err := quota.New(w.db, storetest.Log(), 0).Measure(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.counted(when, org, want)
}

func (w *world) counted(when, org string, want int64) {
	w.t.Helper()
	got, err := store.Read(w.t.Context(), w.db, func(tx *store.Tx) (store.Storage, error) { return tx.Storage("id of " + org) })
	if err != nil || got.Bytes() != want {
		w.t.Errorf("%s, %s stores %d bytes, %v, want %d", when, org, got.Bytes(), err, want)
	}
}

func TestMeasure(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		w := newWorld(t, db)
		w.stores("at first", "acme", 0)
		w.state("acme")
		w.stores("with a state", "acme", 1100)
		w.update("acme", "u1", w.old)
		w.update("acme", "running", time.Time{})
		w.update("acme", "u3", w.old)
		w.stores("with the events of finished updates", "acme", 1160)
		w.job("acme", "j1", workflow.StatusSucceeded, w.old)
		w.job("acme", "running", workflow.StatusRunning, time.Time{})
		w.stores("with the log of a finished job", "acme", 1167)
		w.write(func(tx *store.Tx) error {
			if err := tx.SaveAnnotation(store.Annotation{StackID: "stack-of-acme", Kind: "note", Version: 1, Document: `{"a":1}`}); err != nil {
				return err
			}
			if err := tx.InsertWebhook(store.Webhook{ID: "hook", OrgID: "id of acme", Name: "hook"}); err != nil {
				return err
			}
			if err := tx.InsertWebhookEvent(store.WebhookEvent{ID: "event", OrgID: "id of acme", Payload: "{}"}); err != nil {
				return err
			}
			return tx.InsertDelivery(store.WebhookDelivery{ID: "d", HookID: "hook", EventID: "event", RequestHeaders: "1", ResponseHeaders: "22", ResponseBody: "333"})
		})
		w.stores("with an annotation, an event of a webhook and its delivery", "acme", 1167+7+2+6)
		w.write(func(tx *store.Tx) error { // what follows does not count them
			if _, err := tx.DeleteDeliveries("hook", 10); err != nil {
				return err
			}
			if err := tx.DeleteWebhook("hook"); err != nil {
				return err
			}
			if _, err := tx.DeleteOldWebhookEvents(tx.Now().Add(time.Hour), 10); err != nil {
				return err
			}
			return tx.SaveAnnotation(store.Annotation{StackID: "stack-of-acme", Kind: "note", Version: 2})
		})
		w.stores("without data", "rival", 0)

		policy := retention.Policy{States: 1, StatesFor: 24 * time.Hour, LogsFor: 24 * time.Hour}
		if err := retention.New(db, storetest.Log(), stacks.New(db, stacks.Options{Log: storetest.Log()}), policy).Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		// All updates have the same age, so none is older than another.
		w.stores("after the log was removed", "acme", 1160)
		w.write(func(tx *store.Tx) error {
			_, err := tx.ExpireEvents("u1", 100)
			return err
		})
		w.stores("after events were removed", "acme", 1130)
		w.write(func(tx *store.Tx) error {
			_, err := tx.DeleteUpdates("stack-of-acme", 100)
			return err
		})
		w.stores("after all updates were removed", "acme", 1100)
	})
}

// TestLongTextsCount checks that the texts with which clients can fill a database count as storage: also
// those of updates that were never started and of queued deployments. Retention frees those of old
// deployments, whose stack can be gone.
func TestLongTextsCount(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		w := newWorld(t, db)
		text := func(n int) string { return strings.Repeat("x", n-2) + "é" } // n bytes
		want := int64(0)
		counted := func(what string, n int, add func(tx *store.Tx) error) {
			t.Helper()
			w.write(add)
			want += int64(n)
			w.stores("with "+what, "acme", want)
		}
		update := func(id, program string) func(tx *store.Tx) error {
			return func(tx *store.Tx) error {
				return tx.InsertUpdate(store.Update{ID: id, StackID: "stack-of-acme", Status: "not started", Program: program, CreatedAt: w.old})
			}
		}
		counted("the short program of an update", 0, update("short", text(4096)))
		counted("the long program of an update", 4097, update("long", text(4097)))
		counted("a program of the maximum size", 2<<20, update("huge", text(2<<20)))
		counted("the settings of a stack", 5001, func(tx *store.Tx) error {
			return tx.SaveDeploymentSettings(store.DeploymentSettings{StackID: "stack-of-acme", Document: text(5001)})
		})
		counted("a schedule", 5002, func(tx *store.Tx) error {
			return tx.InsertSchedule(store.Schedule{ID: "schedule", StackID: "stack-of-acme", Request: text(5002)})
		})
		counted("the configuration of a stack", 5003, func(tx *store.Tx) error {
			return tx.SetStackConfig("stack-of-acme", text(5003))
		})
		w.job("acme", "j", workflow.StatusSucceeded, w.old)
		counted("a deployment", 1<<20+7, func(tx *store.Tx) error { // with its log
			_, err := tx.Exec("UPDATE deployments SET configuration = $1 WHERE id = 'of j'", text(1<<20))
			return err
		})
		policy := retention.Policy{States: 1, LogsFor: 24 * time.Hour}
		if err := retention.New(db, storetest.Log(), stacks.New(db, stacks.Options{Log: storetest.Log()}), policy).Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		// The updates are older than a day.
		w.stores("after retention", "acme", 5001+5002+5003)
	})
}

// TestLargeTextsCountAtOnce checks that many requests between two measurements cannot exceed a quota, and
// that work that frees space remains possible.
func TestLargeTextsCountAtOnce(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	q := quota.New(w.db, storetest.Log(), 1<<20)
	admitted := 0
	for range 60 {
		err := w.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return q.AdmitWork(tx, "id of acme", 100<<10) })
		if err == nil {
			admitted++
		} else if fault.KindOf(err) != fault.KindForbidden {
			t.Fatal(err)
		}
	}
	if admitted != 10 {
		t.Errorf("a quota of 1 MiB admits %d texts of 100 KiB, want 10", admitted)
	}
	type admit = func(tx *store.Tx, orgID string, bytes int64) error
	for _, tt := range []struct {
		what  string
		admit admit
		bytes int64
		fits  bool
	}{
		{"a long text", q.AdmitText, 60 << 10, false},
		{"a text that counts as history", q.AdmitText, 4096, true},
		{"relief", q.AdmitRelief, 60 << 10, true},
		{"relief with a large text", q.AdmitRelief, 1 << 20, true},
		{"relief beyond twice the quota", q.AdmitRelief, 100 << 10, false},
		{"relief with a small text", q.AdmitRelief, 60 << 10, true},
	} {
		err := w.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tt.admit(tx, "id of acme", tt.bytes) })
		if (err == nil) != tt.fits {
			t.Errorf("%s: %v, want that it is admitted: %v", tt.what, err, tt.fits)
		}
	}
}

// TestUnreadableLogsAreSkipped measures the log of one job, and a page of logs that cannot be read
// because their ids are not valid in keys of blobs.
func TestUnreadableLogsAreSkipped(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		w := newWorld(t, db)
		w.state("rival")
		w.write(func(tx *store.Tx) error {
			for i := range 100 {
				id := fmt.Sprint("../", i)
				d := store.Deployment{ID: "of " + id, OrgID: "id of acme", StackID: "gone", Version: int64(1000 + i)}
				if err := tx.InsertDeployment(d); err != nil {
					return err
				}
				j := store.Job{ID: id, DeploymentID: d.ID, OrgID: d.OrgID, StackID: "gone", Status: workflow.StatusSucceeded, Epoch: 1, EndedAt: w.old}
				if err := tx.InsertJob(j); err != nil {
					return err
				}
			}
			return nil
		})
		w.job("acme", "j1", workflow.StatusSucceeded, w.old.Add(time.Hour))
		w.stores("with one log that can be read", "acme", 7)
		w.counted("with a state", "rival", 1100)
	})
}

// TestImportsCountAtOnce checks that a measurement neither loses imports nor counts them twice.
func TestImportsCountAtOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		w := newWorld(t, db)
		q := quota.New(db, storetest.Log(), 1500)
		w.write(func(tx *store.Tx) error { return q.AdmitImport(tx, "id of acme", 10) })
		w.counted("before the first measurement", "acme", 10)
		old, err := store.Read(t.Context(), db, (*store.Tx).MeasureStorage)
		if err != nil {
			t.Fatal(err)
		}
		w.state("acme")
		w.write(func(tx *store.Tx) error { return q.AdmitImport(tx, "id of acme", 1100) })
		for _, s := range old {
			w.write(func(tx *store.Tx) error { return tx.SaveStorage(s) })
		}
		w.counted("after an import during the measurement", "acme", 1100)
		w.stores("after the next measurement", "acme", 1100)

		for _, tt := range []struct {
			bytes int64
			fits  bool
		}{{401, false}, {400, true}, {1, false}} {
			err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return q.AdmitImport(tx, "id of acme", tt.bytes) })
			if (err == nil) != tt.fits {
				t.Errorf("importing %d bytes: %v, want that it fits: %v", tt.bytes, err, tt.fits)
			}
		}
		w.write(func(tx *store.Tx) error { return q.AdmitImport(tx, "id of rival", 1500) })
	})
}

func TestRefusalNamesTheQuota(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	q := quota.New(w.db, storetest.Log(), 1<<20)
	w.write(func(tx *store.Tx) error { return q.AdmitRepair(tx, "id of acme", 3<<19) })
	err := w.db.Read(t.Context(), func(tx *store.Tx) error { return q.Admit(tx, "id of acme") })
	if fault.KindOf(err) != fault.KindForbidden {
		t.Fatalf("the error is %v (%q)", err, fault.KindOf(err))
	}
	for _, part := range []string{"'acme'", "1.5 MiB", "1.0 MiB", "organization_quota", "keep_states", "keep_logs_for"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %q, want it to contain %q", err, part)
		}
	}
	for name, off := range map[string]*quota.Quota{"nil": nil, "zero": quota.New(w.db, storetest.Log(), 0)} {
		if err := w.db.Read(t.Context(), func(tx *store.Tx) error { return off.Admit(tx, "id of acme") }); err != nil {
			t.Errorf("a quota that is %s: %v", name, err)
		}
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t, storetest.SQLite(t))
	w.state("rival")
	w.stores("with a state", "rival", 1100)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(quota.New(w.db, storetest.Log(), 5000))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := ""
			for _, label := range m.GetLabel() {
				labels += label.GetName() + "=" + label.GetValue()
			}
			got = append(got, fmt.Sprintf("%s{%s} %v", family.GetName(), labels, m.GetGauge().GetValue()))
		}
	}
	want := []string{
		"workflow_server_organization_quota_bytes{} 5000",
		"workflow_server_organization_stored_bytes{organization=acme} 0",
		"workflow_server_organization_stored_bytes{organization=rival} 1100",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the metrics differ (-want +got):\n%s", diff)
	}
}
