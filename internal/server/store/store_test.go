package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

func write(t *testing.T, db *store.DB, fn func(*store.Tx) error) {
	t.Helper()
	if err := db.Write(t.Context(), scope.Server(), fn); err != nil {
		t.Fatalf("Write: %v", err)
	}
}

func org(name string) store.Organization {
	return store.Organization{ID: "id-" + name, Name: name, DisplayName: strings.ToUpper(name), CreatedAt: time.UnixMicro(1700000000123456).UTC()}
}

func TestWriteIsAllOrNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		boom := errors.New("boom")
		err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			if err := tx.InsertOrganization(org("a")); err != nil {
				return err
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Fatalf("Write = %v, want the closure's error", err)
		}
		write(t, db, func(tx *store.Tx) error { return tx.InsertOrganization(org("b")) })
		err = db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertOrganization(org("b")) })
		if !errors.Is(err, store.ErrConflict) {
			t.Errorf("inserting twice = %v, want ErrConflict", err)
		}
		err = db.Read(t.Context(), func(tx *store.Tx) error {
			if _, err := tx.OrganizationByName("a"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the failed write left its row: %v", err)
			}
			got, err := tx.OrganizationByName("b")
			if diff := cmp.Diff(org("b"), got); diff != "" {
				t.Errorf("organization (-want +got):\n%s", diff)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestWriteSurvivesAPanic(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		err := db.Write(t.Context(), scope.Server(), func(*store.Tx) error { panic("boom") })
		if err == nil || !strings.Contains(err.Error(), "boom") {
			t.Fatalf("Write = %v, want the panic as an error", err)
		}
		write(t, db, func(tx *store.Tx) error { return tx.InsertOrganization(org("a")) })
	})
}

func TestReadsCannotWrite(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		err := db.Read(t.Context(), func(tx *store.Tx) error { return tx.InsertOrganization(org("a")) })
		if err == nil {
			t.Fatal("a read transaction wrote")
		}
	})
}

func TestWritesDoNotLoseEachOther(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		const workers, each = 8, 20
		write(t, db, func(tx *store.Tx) error { return tx.SetInstallation("n", []byte{0}) })
		var group sync.WaitGroup
		for range workers {
			group.Go(func() {
				for done := 0; done < each; {
					err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
						v, err := tx.Installation("n")
						if err != nil {
							return err
						}
						return tx.SetInstallation("n", []byte{v[0] + 1})
					})
					// PostgreSQL can abort a write under contention. Such a write must have no
					// effect.
					if err == nil {
						done++
					}
				}
			})
		}
		group.Wait()
		err := db.Read(t.Context(), func(tx *store.Tx) error {
			v, err := tx.Installation("n")
			if err == nil && int(v[0]) != workers*each {
				t.Errorf("counter = %d, want %d", v[0], workers*each)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestCancelledContextDoesNotWrite(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ran := false
		err := db.Write(ctx, scope.Server(), func(*store.Tx) error { ran = true; return nil })
		if err == nil && !ran {
			t.Error("Write said yes without running its closure")
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Write = %v, want context.Canceled", err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		err = db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
			cancel()
			return tx.InsertOrganization(org("a"))
		})
		if err != nil {
			t.Errorf("a started write failed with its caller's context: %v", err)
		}
	})
}

func TestNotesFollowTheCommit(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		got := make(chan string, 10)
		defer db.Subscribe("topic", func(p string) {
			if p != "" { // "" reports only that the connection is new
				got <- p
			}
		})()
		defer db.Subscribe("other", func(p string) {
			if p != "" {
				t.Errorf("a subscriber of another channel got %q", p)
			}
		})()
		// PostgreSQL's listener takes a moment to connect. The empty payload reports that
		// notifications might have been missed.
		deadline := time.Now().Add(time.Minute)
		for n := 0; ; n++ {
			want := fmt.Sprint("yes ", n)
			_ = db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				tx.Notify("topic", "undone")
				return errors.New("undo")
			})
			write(t, db, func(tx *store.Tx) error { tx.Notify("topic", want); return nil })
			timer := time.NewTimer(200 * time.Millisecond)
			select {
			case p := <-got:
				timer.Stop()
				if p == "undone" {
					t.Fatal("a note of a failed write was delivered")
				}
				return
			case <-timer.C:
			}
			if time.Now().After(deadline) {
				t.Fatal("no note arrived")
			}
		}
	})
}

func TestClosedDatabaseRefusesWrites(t *testing.T) {
	db, err := store.Open(t.Context(), "sqlite:"+t.TempDir()+"/a.db", store.Options{Log: storetest.Log(), BlobDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Write(t.Context(), scope.Server(), func(*store.Tx) error { return nil }); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Write = %v, want ErrClosed", err)
	}
}

func TestOpenDoesNotRepeatTheAddress(t *testing.T) {
	for _, dsn := range []string{"mysql://u:hunter2@h/db", "postgres://u:hunter2@127.0.0.1:1/db?connect_timeout=1"} {
		_, err := store.Open(t.Context(), dsn, store.Options{Log: storetest.Log()})
		if err == nil {
			t.Fatalf("Open(%s) worked", dsn)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error holds the password: %v", err)
		}
	}
}

func TestMigratingTwiceChangesNothing(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		db, err := store.Open(t.Context(), "sqlite:"+dir+"/a.db", store.Options{Log: storetest.Log(), BlobDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	st, err := os.Stat(dir + "/a.db")
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode of the database = %v (%v), want 0600", st.Mode(), err)
	}
}
