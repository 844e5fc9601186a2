package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func instant(s int64) time.Time { return time.Unix(1700000000+s, 123000).UTC() }

func TestTokens(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		want := store.Token{
			ID: "t1", Hash: []byte{0, 1, 255}, Kind: store.JobToken, Name: "n", Description: "d", OrgID: "o", UserID: "u",
			PoolID: "p", JobID: "j", Epoch: 3, DeploymentID: "dep", StackID: "s", Scope: "s:write", Admin: true, CreatedBy: "c",
			CreatedAt: instant(0), ExpiresAt: instant(50),
		}
		write(t, db, func(tx *store.Tx) error { return tx.InsertToken(want) })
		write(t, db, func(tx *store.Tx) error { return tx.TouchToken("t1", instant(9)) })
		want.LastUsedAt = instant(9)
		err := db.Read(t.Context(), func(tx *store.Tx) error {
			got, err := tx.CredentialByHash([]byte{0, 1, 255})
			if diff := cmp.Diff(want, got.Token); diff != "" {
				t.Errorf("token (-want +got):\n%s", diff)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		write(t, db, func(tx *store.Tx) error {
			n, err := tx.DeleteExpiredTokens(instant(51), 10)
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
		err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			return tx.InsertStack(store.Stack{ID: "other", OrgID: "id-acme", Project: "p", Name: "a"})
		})
		if !errors.Is(err, store.ErrConflict) {
			t.Errorf("a second stack of one name = %v, want ErrConflict", err)
		}
		want := store.Stack{
			ID: "id-a", OrgID: "id-acme", OrgName: "acme", Project: "p", Name: "a", CreatedAt: instant(0), Version: 4,
			StateBlob: "k", StateSchema: 3, ResourceCount: 7, ActiveUpdate: "u", LastUpdateAt: instant(3), Config: "{}",
		}
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.UpdateStack(want), tx.SetStackConfig(want.ID, want.Config))
		})
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
				{store.StackFilter{Reach: store.Reach{All: []string{"id-acme"}}}, []string{"a", "b", "c"}},
				{store.StackFilter{Reach: store.Reach{All: []string{"id-acme"}}, Limit: 2}, []string{"a", "b"}},
				{store.StackFilter{Reach: store.Reach{All: []string{"id-acme"}}, After: got.SortKey()}, []string{"b", "c"}},
				{store.StackFilter{Reach: store.Reach{All: []string{"id-acme"}}, Project: "q"}, nil},
				{store.StackFilter{Reach: store.Reach{All: []string{"id-acme"}}, Project: "p", After: got.SortKey(), Limit: 1}, []string{"b"}},
				{store.StackFilter{Reach: store.Reach{All: []string{"id-acme"}}, Project: "p", After: "id-acme/o/z"}, []string{"a", "b", "c"}},
				{store.StackFilter{Reach: store.Reach{All: []string{"id-acme"}}, After: "id-acme0/a/a"}, nil},
				{store.StackFilter{Reach: store.Reach{All: []string{"x", "id-acme"}}, After: "id-aaa/z/z", Limit: 2}, []string{"a", "b"}},
				{store.StackFilter{Reach: store.Reach{All: []string{"id-acme", "x"}}, TagName: "all"}, []string{"a", "b", "c"}},
				{store.StackFilter{Reach: store.Reach{All: []string{"id-acme"}}, TagName: "name", TagValue: "b"}, []string{"b"}},
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

func TestPurgingAStackTakesItsUpdates(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		stackFixture(t, db, "a")
		write(t, db, func(tx *store.Tx) error {
			if err := tx.InsertUpdate(store.Update{ID: "u", StackID: "id-a"}); err != nil {
				return err
			}
			_, _, err := tx.InsertEvents("u", []store.EventBatch{{Last: 0, Events: 1, Body: "{}"}})
			return err
		})
		write(t, db, func(tx *store.Tx) error { return errors.Join(tx.DeleteStack("id-a", "ada"), tx.PurgeStack("id-a")) })
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
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.StartUpdate(u), tx.SetResourceChanges(u.ID, u.ResourceChanges))
		})
		u.OrgID = "id-acme"
		preview := store.Update{ID: "u2", StackID: "id-a", Preview: true, Status: "running", Version: 1, StartedAt: instant(2), LeaseExpiresAt: instant(99)}
		unstarted := store.Update{ID: "u3", StackID: "id-a", Status: "not started"}
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.InsertUpdate(preview), tx.InsertUpdate(unstarted))
		})
		err := db.Read(t.Context(), func(tx *store.Tx) error {
			got, err := tx.UpdatesOfStack(store.UpdateFilter{StackID: "id-a", Limit: 10})
			if diff := cmp.Diff([]store.Update{u}, got); diff != "" {
				t.Errorf("updates (-want +got):\n%s", diff)
			}
			if err != nil {
				return err
			}
			if n, err := tx.CountUpdates(store.UpdateFilter{StackID: "id-a", Previews: true}); err != nil || n != 1 {
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
			batches []store.EventBatch
			next    int64
		}{
			{[]store.EventBatch{{Last: 4, Events: 2}}, 0}, // 3 and 4
			{[]store.EventBatch{{Last: 0, Events: 1}}, 1},
			{nil, 1},
			{[]store.EventBatch{{Last: 2, Events: 2, Size: 9, Packed: []byte{1, 0, 2}}}, 5},
			{[]store.EventBatch{{Last: 7, Events: 1}}, 5},
			{[]store.EventBatch{{Last: 6, Events: 1, Body: "{}"}, {Last: 5, Events: 1}}, 8},
		} {
			write(t, db, func(tx *store.Tx) error {
				next, more, err := tx.InsertEvents("u", step.batches)
				if next != step.next || more {
					t.Errorf("after %v the first missing is %d (more %v), want %d", step.batches, next, more, step.next)
				}
				return err
			})
		}
		err := db.Read(t.Context(), func(tx *store.Tx) error {
			ranges, err := tx.EventRanges("u", 2, 4)
			want := []store.EventRange{{First: 1, Last: 2, Bytes: 12}, {First: 3, Last: 4}, {First: 5, Last: 5}, {First: 6, Last: 6, Bytes: 4}}
			if diff := cmp.Diff(want, ranges); diff != "" || err != nil {
				t.Errorf("ranges of batches (-want +got), %v:\n%s", err, diff)
			}
			got, err := tx.EventBatches("u", 2, 4)
			batches := []store.EventBatch{
				{UpdateID: "u", Last: 2, Events: 2, Size: 9, Packed: []byte{1, 0, 2}}, {UpdateID: "u", Last: 4, Events: 2},
			}
			if diff := cmp.Diff(batches, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("batches (-want +got):\n%s", diff)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestManyBatchesAfterAGap checks that filling a gap advances the first missing number past any
// number of batches, in bounded steps.
func TestManyBatchesAfterAGap(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		stackFixture(t, db, "a")
		const n = 2500
		write(t, db, func(tx *store.Tx) error {
			var batches []store.EventBatch
			for i := int64(1); i < n; i++ {
				batches = append(batches, store.EventBatch{Last: i, Events: 1})
			}
			if err := tx.InsertUpdate(store.Update{ID: "u", StackID: "id-a"}); err != nil {
				return err
			}
			_, _, err := tx.InsertEvents("u", batches)
			return err
		})
		steps, next, more := 0, int64(0), true
		for ; more; steps++ {
			write(t, db, func(tx *store.Tx) (err error) {
				if steps == 0 {
					next, more, err = tx.InsertEvents("u", []store.EventBatch{{Last: 0, Events: 1}})
				} else {
					next, more, err = tx.AdvanceEvents("u")
				}
				return err
			})
		}
		if next != n || steps < 2 || steps > 4 {
			t.Errorf("after %d steps the first missing event is %d, want %d", steps, next, n)
		}
	})
}

func TestOIDC(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		want := store.OIDCIssuer{
			ID: "i1", OrgID: "id-acme", Name: "n", URL: "https://i/", Issuer: "https://i", Thumbprints: []string{"aa", "bb"},
			MaxExpiration: 90 * time.Second, JWKS: `{"keys":[]}`, CreatedAt: instant(0), ModifiedAt: instant(1),
		}
		policy := store.OIDCPolicy{ID: "p1", IssuerID: "i1", Version: 1, Document: "[]", CreatedAt: instant(0), ModifiedAt: instant(1)}
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.InsertOrganization(org("acme")), tx.InsertOrganization(org("other")), tx.InsertOIDCIssuer(want), tx.InsertOIDCPolicy(policy))
		})
		twin := want
		twin.ID = "i2"
		if err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertOIDCIssuer(twin) }); !errors.Is(err, store.ErrConflict) {
			t.Errorf("trusting an issuer twice = %v, want ErrConflict", err)
		}
		twin.OrgID = "id-other"
		write(t, db, func(tx *store.Tx) error { return tx.InsertOIDCIssuer(twin) })

		want.Name, want.Thumbprints, want.MaxExpiration, want.JWKS, want.ModifiedAt = "m", nil, time.Hour, "", instant(5)
		policy.Version, policy.Document, policy.ModifiedAt = 2, `[{"decision":"allow"}]`, instant(6)
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.UpdateOIDCIssuer(want), tx.TouchOIDCIssuer("i1", instant(7)), tx.UpdateOIDCPolicy(policy))
		})
		want.LastUsedAt = instant(7)
		err := db.Read(t.Context(), func(tx *store.Tx) error {
			byID, err := tx.OIDCIssuer("id-acme", "i1")
			if diff := cmp.Diff(want, byID); diff != "" || err != nil {
				t.Errorf("issuer (-want +got): %v\n%s", err, diff)
			}
			byName, err := tx.OIDCIssuerOf("id-acme", "https://i")
			if diff := cmp.Diff(want, byName); diff != "" || err != nil {
				t.Errorf("issuer by name (-want +got): %v\n%s", err, diff)
			}
			if list, err := tx.OIDCIssuers("id-acme"); err != nil || len(list) != 1 || list[0].ID != "i1" {
				t.Errorf("issuers %v, %v", list, err)
			}
			for _, get := range []func() (store.OIDCPolicy, error){
				func() (store.OIDCPolicy, error) { return tx.OIDCPolicyOf("i1") },
				func() (store.OIDCPolicy, error) { return tx.OIDCPolicy("id-acme", "p1") },
			} {
				got, err := get()
				if diff := cmp.Diff(policy, got); diff != "" || err != nil {
					t.Errorf("policy (-want +got): %v\n%s", err, diff)
				}
			}
			if _, err := tx.OIDCIssuer("id-other", "i1"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("another organization's issuer: %v", err)
			}
			if _, err := tx.OIDCPolicy("id-other", "p1"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("another organization's policy: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		token := func(id, issuer string, kind store.TokenKind) store.Token {
			return store.Token{ID: id, Hash: []byte(id), Kind: kind, OrgID: "id-acme", UserID: "u", IssuerID: issuer, CreatedAt: instant(0), ExpiresAt: instant(99)}
		}
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(
				tx.InsertToken(token("t1", "i1", store.OrgToken)), tx.InsertToken(token("t2", "i1", store.PersonalToken)),
				tx.InsertToken(token("t3", "i2", store.PoolToken)), tx.InsertToken(token("t4", "", store.OrgToken)), tx.InsertToken(token("t5", "", store.PersonalToken)),
			)
		})
		write(t, db, func(tx *store.Tx) error {
			// Lists contain the tokens that users created, but not exchanged tokens.
			byOrg, err := tx.Tokens(store.TokenFilter{Kind: store.OrgToken, OrgID: "id-acme"})
			if err != nil || len(byOrg) != 1 || byOrg[0].ID != "t4" {
				t.Errorf("tokens of the organization %v, %v", byOrg, err)
			}
			byUser, err := tx.Tokens(store.TokenFilter{Kind: store.PersonalToken, UserID: "u"})
			if err != nil || len(byUser) != 1 || byUser[0].ID != "t5" {
				t.Errorf("tokens of the user %v, %v", byUser, err)
			}
			if n, err := tx.DeleteTokensOfIssuer(""); err != nil || n != 0 {
				t.Errorf("deleted %d tokens of no issuer, %v", n, err)
			}
			if n, err := tx.DeleteTokensOfIssuer("i1"); err != nil || n != 2 {
				t.Errorf("deleted %d tokens, %v, want 2", n, err)
			}
			if got, err := tx.CredentialByHash([]byte("t3")); err != nil || got.IssuerID != "i2" {
				t.Errorf("token of another issuer %+v, %v", got, err)
			}
			if err := tx.DeleteOIDCIssuer("id-other", "i1"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("deleting another organization's issuer: %v", err)
			}
			if err := tx.DeleteOIDCIssuer("id-acme", "i1"); err != nil {
				return err
			}
			if _, err := tx.OIDCPolicyOf("i1"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the policy of a deleted issuer: %v", err)
			}
			if err := tx.TouchOIDCIssuer("i1", instant(8)); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("using a deleted issuer: %v", err)
			}
			return nil
		})
	})
}
