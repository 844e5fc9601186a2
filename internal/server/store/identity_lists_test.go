package store_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// TestFindMembers selects members of an organization, and describes them.
func TestFindMembers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		now := time.Now().UTC()
		write(t, db, func(tx *store.Tx) error {
			for _, name := range []string{"acme", "other"} {
				if err := tx.InsertOrganization(org(name)); err != nil {
					return err
				}
			}
			for login, role := range map[string]string{"ada": "admin", "bob": "member", "cy": "member", "dee": "member"} {
				if err := tx.InsertUser(store.User{ID: "u-" + login, Login: login, Name: login + " Example", CreatedAt: now}); err != nil {
					return err
				}
				if err := tx.InsertMember(store.Member{OrgID: "id-acme", UserID: "u-" + login, Role: role, CreatedAt: now}); err != nil {
					return err
				}
			}
			// A team of another organization is none of this one.
			for _, team := range []store.Team{{ID: "t1", OrgID: "id-acme", Name: "Payments_1"}, {ID: "t2", OrgID: "id-acme", Name: "Core"}, {ID: "t3", OrgID: "id-other", Name: "Payments_2"}} {
				if err := tx.InsertTeam(team); err != nil {
					return err
				}
			}
			for user, teams := range map[string][]string{"u-ada": {"t1", "t2"}, "u-bob": {"t1"}, "u-cy": {"t3"}} {
				for _, team := range teams {
					if err := tx.SaveTeamMember(store.TeamMember{TeamID: team, UserID: user, Role: "member", CreatedAt: now}); err != nil {
						return err
					}
				}
			}
			if err := tx.InsertPasskey(store.Passkey{ID: "p", Credential: []byte("p"), UserID: "u-bob", Name: "laptop", CreatedAt: now}); err != nil {
				return err
			}
			for id, token := range map[string]store.Token{"a": {Kind: store.PersonalToken, UserID: "u-ada"}, "b": {Kind: store.PersonalToken, UserID: "u-bob", IssuerID: "i"}, "c": {Kind: store.OrgToken}} {
				token.ID, token.Hash, token.OrgID, token.CreatedAt = id, []byte(id), "id-acme", now
				if err := tx.InsertToken(token); err != nil {
					return err
				}
			}
			return nil
		})
		all := store.MemberFilter{OrgID: "id-acme", Limit: 10}
		for name, c := range map[string]struct {
			change func(f *store.MemberFilter)
			want   []string
			count  int64
		}{
			"all":            {func(*store.MemberFilter) {}, []string{"ada", "bob", "cy", "dee"}, 4},
			"administrators": {func(f *store.MemberFilter) { f.Role = "admin" }, []string{"ada"}, 1},
			"without a team": {func(f *store.MemberFilter) { f.NoTeam = true }, []string{"cy", "dee"}, 2},
			"a team":         {func(f *store.MemberFilter) { f.Words, f.Teams = "payments_", true }, []string{"ada", "bob"}, 2},
			"no team's name": {func(f *store.MemberFilter) { f.Words = "payments" }, nil, 0},
			"a part":         {func(f *store.MemberFilter) { f.After, f.Limit = "ada", 2 }, []string{"bob", "cy"}, 4},
			"both":           {func(f *store.MemberFilter) { f.Words, f.NoTeam = "EXAMPLE", true }, []string{"cy", "dee"}, 2},
		} {
			f := all
			c.change(&f)
			var logins []string
			var count int64
			if err := db.Read(t.Context(), func(tx *store.Tx) error {
				found, err := tx.FindMembers(f)
				for _, m := range found {
					logins = append(logins, m.Login)
				}
				if err == nil {
					count, err = tx.CountFound(f)
				}
				return err
			}); err != nil || !slices.Equal(logins, c.want) || count != c.count {
				t.Errorf("%s: %v of %d, %v; want %v of %d", name, logins, count, err, c.want, c.count)
			}
		}
		ids := []string{"u-ada", "u-bob", "u-cy"}
		if err := db.Read(t.Context(), func(tx *store.Tx) error {
			teams, err := tx.TeamsOf("id-acme", ids)
			if want := []store.TeamOf{{UserID: "u-ada", Name: "Core"}, {UserID: "u-ada", Name: "Payments_1"}, {UserID: "u-bob", Name: "Payments_1"}}; err != nil || len(teams) != 3 || teams[0] != want[0] {
				t.Errorf("the teams are %v, %v", teams, err)
			}
			passkeys, err := tx.CountPasskeys(ids)
			if err != nil || !maps.Equal(passkeys, map[string]int64{"u-bob": 1}) {
				t.Errorf("the passkeys are %v, %v", passkeys, err)
			}
			tokens, err := tx.CountPersonalTokens(ids)
			if err != nil || !maps.Equal(tokens, map[string]int64{"u-ada": 1}) {
				t.Errorf("the tokens are %v, %v", tokens, err)
			}
			logins, err := tx.Logins(append(ids, "nobody"))
			if err != nil || !maps.Equal(logins, map[string]string{"u-ada": "ada", "u-bob": "bob", "u-cy": "cy"}) {
				t.Errorf("the logins are %v, %v", logins, err)
			}
			counts, err := tx.CountSettings("id-acme")
			if want := map[string]int64{"members": 4, "teams": 2, "tokens": 1, "issuers": 0, "webhooks": 0, "integrations": 0}; err != nil || !maps.Equal(counts, want) {
				t.Errorf("the counts are %v, %v; want %v", counts, err, want)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}
