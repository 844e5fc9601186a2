package recovery_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestTokens lists and revokes the valid tokens of a backup: of one kind, of one organization, and all. Others remain.
func TestTokens(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ids := identity.New(db, storetest.Log())
		revoker := pools.Revoker{Identity: ids, Pools: pools.New(db, storetest.Log())}
		admin := identity.Operator()
		revoke := func(org string, kinds ...recovery.TokenKind) (recovery.Revoked, error) {
			return recovery.RevokeTokens(t.Context(), db, revoker, admin, org, kinds)
		}
		if _, err := revoke("", recovery.AccessTokens); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("without a restore: %v", err)
		}
		restored(t, db)
		before, after := backupTime.Add(-time.Hour), backupTime.Add(time.Hour)
		must.OK(t, db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			for _, org := range []string{"a", "b"} {
				if err := tx.InsertPool(store.AgentPool{ID: "pool-" + org, OrgID: org, Name: "pool"}); err != nil {
					return err
				}
			}
			if err := tx.InsertTeam(store.Team{ID: "team", OrgID: "b", Name: "team"}); err != nil {
				return err
			}
			insert := func(list ...store.Token) error {
				for _, token := range list {
					token.Hash = []byte(token.ID)
					if token.CreatedAt.IsZero() {
						token.CreatedAt = before
					}
					if err := tx.InsertToken(token); err != nil {
						return err
					}
				}
				return nil
			}
			for i := range 201 { // more than one page
				if err := insert(store.Token{ID: fmt.Sprintf("org-%03d", i), Kind: store.OrgToken, OrgID: "a"}); err != nil {
					return err
				}
			}
			return insert(
				store.Token{ID: "personal", Kind: store.PersonalToken, UserID: "ann"},
				store.Token{ID: "team", Kind: store.TeamToken, OrgID: "b", TeamID: "team"},
				store.Token{ID: "pool-a", Kind: store.PoolToken, OrgID: "a", PoolID: "pool-a", ExpiresAt: time.Now().Add(time.Hour)},
				store.Token{ID: "pool-b", Kind: store.PoolToken, OrgID: "b", PoolID: "pool-b"},
				store.Token{ID: "exchanged", Kind: store.PersonalToken, OrgID: "b", UserID: "ann", IssuerID: "issuer"},
				store.Token{ID: "exchanged-pool", Kind: store.PoolToken, OrgID: "b", PoolID: "pool-b", IssuerID: "issuer"},
				store.Token{ID: "expired", Kind: store.OrgToken, OrgID: "a", ExpiresAt: after},
				store.Token{ID: "new", Kind: store.PersonalToken, UserID: "ann", CreatedAt: after},
				store.Token{ID: "new-pool", Kind: store.PoolToken, OrgID: "a", PoolID: "pool-a", CreatedAt: after},
				store.Token{ID: "job", Kind: store.JobToken, OrgID: "a", JobID: "job-running", StackID: "running"},
			)
		}))
		s := recovery.New(db, &queues{paused: map[string]bool{}}, storetest.Log())
		listed := func(org string) (names []string) {
			t.Helper()
			for _, l := range must.Get(s.Tokens(t.Context(), org, 1000))(t) {
				if l.Kind != store.OrgToken {
					names = append(names, l.ID)
				}
			}
			slices.Sort(names)
			return names
		}
		for org, want := range map[string][]string{
			"":  {"exchanged", "exchanged-pool", "personal", "pool-a", "pool-b", "team"},
			"a": {"pool-a"},
			"b": {"exchanged", "exchanged-pool", "pool-b", "team"},
		} {
			if got := listed(org); !slices.Equal(got, want) {
				t.Errorf("the tokens of %q are %v, want %v", org, got, want)
			}
		}
		for _, kinds := range [][]recovery.TokenKind{nil, {"job"}} {
			if _, err := revoke("", kinds...); fault.KindOf(err) != fault.KindInvalid {
				t.Errorf("the kinds %v: %v", kinds, err)
			}
		}
		for _, step := range []struct {
			org   string
			kinds []recovery.TokenKind
			want  recovery.Revoked
			left  []string
		}{
			{"b", []recovery.TokenKind{recovery.ExchangedTokens}, recovery.Revoked{recovery.ExchangedTokens: 2}, []string{"personal", "pool-a", "pool-b", "team"}},
			{"a", recovery.TokenKinds(), recovery.Revoked{recovery.AccessTokens: 201, recovery.PoolTokens: 1}, []string{"personal", "pool-b", "team"}},
			{"", []recovery.TokenKind{recovery.PoolTokens}, recovery.Revoked{recovery.PoolTokens: 1}, []string{"personal", "team"}},
			{"", recovery.TokenKinds(), recovery.Revoked{recovery.AccessTokens: 2}, nil},
			{"", recovery.TokenKinds(), recovery.Revoked{}, nil},
		} {
			if got, err := revoke(step.org, step.kinds...); err != nil || !maps.Equal(got, step.want) {
				t.Errorf("revoking %v of %q: %v, %v, want %v", step.kinds, step.org, got, err, step.want)
			}
			if got := listed(""); !slices.Equal(got, step.left) {
				t.Errorf("after revoking %v of %q, the tokens are %v, want %v", step.kinds, step.org, got, step.left)
			}
		}
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			for _, id := range []string{"expired", "new", "new-pool", "job"} {
				if _, err := tx.TokenByID(id); err != nil {
					t.Errorf("the token %s: %v", id, err)
				}
			}
			if _, err := tx.TokenByID("pool-a"); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("a revoked token: %v", err)
			}
			for org, want := range map[string]int64{"": 1, "a": 202, "b": 4} {
				n, err := tx.CountAuditEntries(store.AuditFilter{OrgID: org, Action: string(audit.TokenRevoked), Limit: 1000})
				if err != nil || n != want {
					t.Errorf("the audit log of %q has %d entries, want %d: %v", org, n, want, err)
				}
			}
			return nil
		}))
	})
}

// TestTokensFromTheFuture revokes tokens of the backup that were created while the clock was ahead.
func TestTokensFromTheFuture(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		restored(t, db)
		ids := identity.New(db, storetest.Log())
		revoker := pools.Revoker{Identity: ids, Pools: pools.New(db, storetest.Log())}
		insert := func(id string, created time.Time) {
			t.Helper()
			must.OK(t, db.Write(t.Context(), scope.User("ann"), func(tx *store.Tx) error {
				return tx.InsertToken(store.Token{ID: id, Hash: []byte(id), Kind: store.PersonalToken, UserID: "ann", CreatedAt: created})
			}))
		}
		insert("ahead", backupTime.Add(2*time.Hour))
		must.OK(t, recovery.New(db, &queues{paused: map[string]bool{}}, storetest.Log()).Begin(t.Context()))
		insert("new", backupTime.Add(time.Hour))
		got := must.Get(recovery.RevokeTokens(t.Context(), db, revoker, identity.Operator(), "", recovery.TokenKinds()))(t)
		if want := (recovery.Revoked{recovery.AccessTokens: 1}); !maps.Equal(got, want) {
			t.Errorf("revoked %v, want %v", got, want)
		}
		must.OK(t, db.Read(t.Context(), func(tx *store.Tx) error {
			_, err := tx.TokenByID("new")
			return err
		}))
	})
}
