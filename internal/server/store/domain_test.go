package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/storetest"
)

func instant(s int64) time.Time { return time.Unix(1700000000+s, 123000).UTC() }

func TestTokens(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		want := store.Token{
			ID: "t1", Hash: []byte{0, 1, 255}, Kind: store.JobToken, Name: "n", Description: "d", OrgID: "o", UserID: "u",
			PoolID: "p", JobID: "j", Epoch: 3, DeploymentID: "dep", StackID: "s", Admin: true, CreatedBy: "c",
			CreatedAt: instant(0), ExpiresAt: instant(50),
		}
		write(t, db, func(tx *store.Tx) error { return tx.InsertToken(want) })
		write(t, db, func(tx *store.Tx) error { return tx.TouchToken("t1", instant(9)) })
		want.LastUsedAt = instant(9)
		err := db.Read(t.Context(), func(tx *store.Tx) error {
			got, err := tx.TokenByHash([]byte{0, 1, 255})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("token (-want +got):\n%s", diff)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		write(t, db, func(tx *store.Tx) error {
			n, err := tx.DeleteExpiredTokens(instant(51))
			if err == nil && n != 1 {
				err = fmt.Errorf("deleted %d tokens, want 1", n)
			}
			return err
		})
	})
}

func stackFixture(t *testing.T, db *store.DB, names ...string) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error {
		if err := tx.InsertOrganization(org("acme")); err != nil {
			return err
		}
		for _, n := range names {
			s := store.Stack{ID: "id-" + n, OrgID: "id-acme", Project: "p", Name: n, CreatedAt: instant(0)}
			if err := tx.InsertStack(s); err != nil {
				return err
			}
			if err := tx.SetStackTags(s.ID, map[string]string{"name": n, "all": "yes"}); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestStacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		stackFixture(t, db, "a", "b", "c")
		err := db.Write(t.Context(), func(tx *store.Tx) error {
			return tx.InsertStack(store.Stack{ID: "other", OrgID: "id-acme", Project: "p", Name: "a"})
		})
		if !errors.Is(err, store.ErrConflict) {
			t.Errorf("a second stack of one name = %v, want ErrConflict", err)
		}
		want := store.Stack{
			ID: "id-a", OrgID: "id-acme", OrgName: "acme", Project: "p", Name: "a", CreatedAt: instant(0), Version: 4,
			StateBlob: "k", StateSchema: 3, ResourceCount: 7, ActiveUpdate: "u", LastUpdateAt: instant(3), Config: "{}",
		}
		write(t, db, func(tx *store.Tx) error { return tx.UpdateStack(want) })
		err = db.Read(t.Context(), func(tx *store.Tx) error {
			got, err := tx.StackByName("acme", "p", "a")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("stack (-want +got):\n%s", diff)
			}
			if err != nil {
				return err
			}
			for _, q := range []struct {
				filter store.StackFilter
				want   []string
			}{
				{store.StackFilter{}, nil},
				{store.StackFilter{OrgIDs: []string{"id-acme"}}, []string{"a", "b", "c"}},
				{store.StackFilter{OrgIDs: []string{"id-acme"}, Limit: 2}, []string{"a", "b"}},
				{store.StackFilter{OrgIDs: []string{"id-acme"}, After: got.SortKey()}, []string{"b", "c"}},
				{store.StackFilter{OrgIDs: []string{"id-acme"}, Project: "q"}, nil},
				{store.StackFilter{OrgIDs: []string{"id-acme", "x"}, TagName: "all"}, []string{"a", "b", "c"}},
				{store.StackFilter{OrgIDs: []string{"id-acme"}, TagName: "name", TagValue: "b"}, []string{"b"}},
			} {
				list, err := tx.Stacks(q.filter)
				if err != nil {
					return err
				}
				var names []string
				for _, s := range list {
					names = append(names, s.Name)
				}
				if !slices.Equal(names, q.want) {
					t.Errorf("Stacks(%+v) = %v, want %v", q.filter, names, q.want)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestDeletingAStackTakesItsUpdates(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		stackFixture(t, db, "a")
		write(t, db, func(tx *store.Tx) error {
			if err := tx.InsertUpdate(store.Update{ID: "u", StackID: "id-a"}); err != nil {
				return err
			}
			_, err := tx.InsertEvents("u", []store.EngineEvent{{Sequence: 0, Body: "{}"}})
			return err
		})
		write(t, db, func(tx *store.Tx) error { return tx.DeleteStack("id-a") })
		err := db.Read(t.Context(), func(tx *store.Tx) error {
			if _, err := tx.Update("u"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the update survived: %v", err)
			}
			if n, err := tx.LastSequence("u"); err != nil || n != -1 {
				t.Errorf("events survived: %d, %v", n, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestUpdates(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		stackFixture(t, db, "a")
		u := store.Update{
			ID: "u1", StackID: "id-a", Kind: "update", Status: "not started", RequestedBy: "me", DeploymentID: "d",
			Program: `{"a":1}`, CreatedAt: instant(0), LeaseHash: []byte{},
		}
		write(t, db, func(tx *store.Tx) error { return tx.InsertUpdate(u) })
		u.Status, u.Version, u.StartedAt, u.LeaseHash, u.LeaseExpiresAt = "running", 1, instant(1), []byte{1, 0, 2}, instant(10)
		u.ResourceChanges, u.ResourceCount = `{"same":1}`, 3
		write(t, db, func(tx *store.Tx) error { return tx.SaveUpdate(u) })
		preview := store.Update{ID: "u2", StackID: "id-a", Preview: true, Status: "running", Version: 1, StartedAt: instant(2), LeaseExpiresAt: instant(99)}
		unstarted := store.Update{ID: "u3", StackID: "id-a", Status: "not started"}
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.InsertUpdate(preview), tx.InsertUpdate(unstarted))
		})
		err := db.Read(t.Context(), func(tx *store.Tx) error {
			got, err := tx.UpdatesOfStack("id-a", false, 10, 0)
			if diff := cmp.Diff([]store.Update{u}, got); diff != "" {
				t.Errorf("updates (-want +got):\n%s", diff)
			}
			if err != nil {
				return err
			}
			if n, err := tx.CountUpdates("id-a", true); err != nil || n != 1 {
				t.Errorf("CountUpdates of previews = %d, %v, want 1", n, err)
			}
			if v, err := tx.UpdateByVersion("id-a", 1); err != nil || v.ID != "u1" {
				t.Errorf("UpdateByVersion = %s, %v, want u1", v.ID, err)
			}
			expired, err := tx.ExpiredUpdates(instant(11))
			if err != nil || len(expired) != 1 || expired[0].ID != "u1" {
				t.Errorf("ExpiredUpdates = %v, %v, want u1", expired, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestEventsKnowTheirGaps(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		stackFixture(t, db, "a")
		write(t, db, func(tx *store.Tx) error { return tx.InsertUpdate(store.Update{ID: "u", StackID: "id-a"}) })
		for _, step := range []struct {
			seqs []int64
			next int64
		}{
			{[]int64{3, 4}, 0},
			{[]int64{0}, 1},
			{[]int64{0, 1}, 2}, // repeated
			{[]int64{2}, 5},
			{[]int64{7}, 5},
			{[]int64{6, 5}, 8},
		} {
			var next int64
			write(t, db, func(tx *store.Tx) (err error) {
				var events []store.EngineEvent
				for _, s := range step.seqs {
					events = append(events, store.EngineEvent{Sequence: s, Body: fmt.Sprint(s)})
				}
				next, err = tx.InsertEvents("u", events)
				return err
			})
			if next != step.next {
				t.Errorf("after %v the first missing is %d, want %d", step.seqs, next, step.next)
			}
		}
		err := db.Read(t.Context(), func(tx *store.Tx) error {
			got, err := tx.Events("u", 2, 8, 3)
			want := []store.EngineEvent{{Sequence: 2, Body: "2"}, {Sequence: 3, Body: "3"}, {Sequence: 4, Body: "4"}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
