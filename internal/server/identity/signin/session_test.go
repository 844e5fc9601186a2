package signin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestSession(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		cookie, opened := h.open(t, h.ada)
		p, s, err := h.Resume(t.Context(), cookie, true)
		if err != nil || p.User.Login != "ada" || p.Kind != identity.KindUser || p.Role(h.org.ID) != identity.RoleMember || s.ID != opened.ID {
			t.Fatalf("Resume = %+v, %+v, %v", p, s, err)
		}
		if strings.Contains(s.Agent, "\n") || len(s.Agent) > maxAgent+10 {
			t.Errorf("the browser's text is %q", s.Agent)
		}
		for _, bad := range []string{"", "x", opened.ID, strings.ToUpper(cookie)} {
			if h.resumes(t, bad) {
				t.Errorf("the cookie %q opened a session", bad)
			}
		}
		if text := fmt.Sprintf("%+v", opened); strings.Contains(text, cookie) {
			t.Error("the session contains the cookie")
		}
		// Roles are read again at each request.
		ids := identity.New(db, storetest.Log())
		if err := ids.SetRole(t.Context(), h.org, "ada", identity.RoleAdmin); err != nil {
			t.Fatal(err)
		}
		if p, _, err := h.Resume(t.Context(), cookie, true); err != nil || !p.CanAdminOrg(h.org.ID) {
			t.Errorf("after the change of the role: %+v, %v", p.Roles, err)
		}
	})
}

func TestSessionsEnd(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		first, a := h.open(t, h.ada)
		second, b := h.open(t, h.ada)
		third, _ := h.open(t, h.ada)
		other, _ := h.open(t, h.admin)
		if err := h.End(t.Context(), h.admin, a.ID, Ended); err != nil || !h.resumes(t, first) {
			t.Errorf("another user ended the session (%v)", err)
		}
		if err := h.End(t.Context(), h.ada, a.ID, Ended); err != nil || h.resumes(t, first) || !h.resumes(t, second) {
			t.Errorf("ending one session (%v): first %v, second %v", err, h.resumes(t, first), h.resumes(t, second))
		}
		if err := h.EndOthers(t.Context(), h.ada, b.ID); err != nil || h.resumes(t, third) || !h.resumes(t, second) || !h.resumes(t, other) {
			t.Errorf("ending the other sessions (%v): third %v, second %v, of the other user %v", err, h.resumes(t, third), h.resumes(t, second), h.resumes(t, other))
		}
		list, err := h.Sessions(t.Context(), h.ada.ID)
		if err != nil || len(list) != 1 || list[0].ID != b.ID {
			t.Errorf("the sessions are %+v, %v", list, err)
		}
	})
}

func TestRemovedMembersAreSignedOut(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		cookie, _ := h.open(t, h.ada)
		admin, _ := h.open(t, h.admin)
		ids := identity.New(db, storetest.Log())
		if err := ids.RemoveMember(t.Context(), h.org, "ada"); err != nil {
			t.Fatal(err)
		}
		if h.resumes(t, cookie) || !h.resumes(t, admin) {
			t.Errorf("after the removal: ada %v, want signed out; the administrator %v, want signed in", h.resumes(t, cookie), h.resumes(t, admin))
		}
		if _, err := h.UseToken(t.Context(), h.adaToken, "192.0.2.1"); err != errNoRole { //nolint:errorlint // it is returned as it is
			t.Errorf("signing in without a membership: %v", err)
		}
		// The old session stays ended after the user has returned.
		if _, err := ids.AddMember(t.Context(), h.org, "ada", identity.RoleMember); err != nil {
			t.Fatal(err)
		}
		if h.resumes(t, cookie) {
			t.Error("the session returned with the membership")
		}
	})
}

func TestSessionsExpire(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		now, err := store.Read(t.Context(), db, func(tx *store.Tx) (time.Time, error) { return tx.Now(), nil })
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name          string
			created, seen time.Duration
			live, fresh   bool
		}{
			{"new", 0, 0, true, true},
			{"recent", 14 * time.Minute, 0, true, true},
			{"not fresh", 16 * time.Minute, 0, true, false},
			{"almost idle", 3 * 24 * time.Hour, 23 * time.Hour, true, false},
			{"idle", 3 * 24 * time.Hour, 25 * time.Hour, false, false},
			{"old", 15 * 24 * time.Hour, 0, false, false},
		} {
			text, hash := identity.NewToken()
			row := store.Session{ID: tt.name, Hash: hash, UserID: h.ada.ID, Way: WayLink, CreatedAt: now.Add(-tt.created), SeenAt: now.Add(-tt.seen), ConfirmedAt: now.Add(-tt.created), EndsAt: now.Add(Longest - tt.created)}
			if err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertSession(row) }); err != nil {
				t.Fatal(err)
			}
			_, s, err := h.Resume(t.Context(), text, true)
			if (err == nil) != tt.live || tt.live && s.Fresh(now) != tt.fresh {
				t.Errorf("%s: Resume: %v, fresh %v", tt.name, err, s.Fresh(now))
			}
		}
		if err := h.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		list, err := h.Sessions(t.Context(), h.ada.ID)
		if err != nil || len(list) != 4 {
			t.Errorf("%d sessions remain (%v), want 4", len(list), err)
		}
		for _, s := range list {
			if s.ID == "almost idle" && now.Sub(s.Seen) > time.Hour {
				t.Error("the last use was not recorded")
			}
		}
	})
}

func TestSessionsAreBounded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		other, _ := h.open(t, h.admin)
		oldest, _ := h.open(t, h.ada)
		var cookies []string
		for range maxSessions {
			cookie, _ := h.open(t, h.ada)
			cookies = append(cookies, cookie)
		}
		if h.resumes(t, oldest) || !h.resumes(t, other) {
			t.Errorf("the oldest session remains: %v; the one of another user ended: %v", h.resumes(t, oldest), !h.resumes(t, other))
		}
		for i, cookie := range cookies {
			if !h.resumes(t, cookie) {
				t.Errorf("session %d of %d has ended", i+1, maxSessions)
			}
		}
		if log := h.entries(t); !strings.HasPrefix(log[len(log)-1], `user.session-ended user ada {"because":"too many sessions"`) {
			t.Errorf("the audit log ends with %q", log[len(log)-1])
		}
	})
}

func TestOnlyUseKeepsASession(t *testing.T) {
	db := storetest.SQLite(t)
	h := newHouse(t, db)
	text, hash := identity.NewToken()
	seen := time.Now().Add(-time.Hour)
	err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		return tx.InsertSession(store.Session{ID: "s", Hash: hash, UserID: h.ada.ID, Way: WayLink, CreatedAt: seen, SeenAt: seen, EndsAt: seen.Add(Longest)})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, use := range []bool{false, true} {
		if _, _, err := h.Resume(t.Context(), text, use); err != nil {
			t.Fatal(err)
		}
		list, err := h.Sessions(t.Context(), h.ada.ID)
		if err != nil || time.Since(list[0].Seen) < time.Minute != use {
			t.Errorf("with use %v: last seen %v (%v)", use, list[0].Seen, err)
		}
	}
}
