package signin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/keyring"
	"workflowagent/internal/server/store"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// house is a service with the organization acme, its administrator, and the member ada.
type house struct {
	*Service
	db         *store.DB
	org        store.Organization
	admin, ada store.User
	adaToken   string
}

func newHouse(t *testing.T, db *store.DB) house {
	t.Helper()
	ids := identity.New(db, storetest.Log())
	if err := ids.Bootstrap(t.Context(), "acme", func(string) error { return nil }); err != nil {
		t.Fatal(err)
	}
	h := house{Service: New(db, Options{Log: storetest.Log(), Identity: ids}), db: db}
	var err error
	if h.adaToken, err = ids.CreateUser(t.Context(), identity.NewUser{Login: "ada", Name: "Ada", Org: "acme", Role: identity.RoleMember}); err != nil {
		t.Fatal(err)
	}
	if h.ada, err = ids.UserByLogin(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	if h.admin, err = ids.UserByLogin(t.Context(), identity.AdminLogin); err != nil {
		t.Fatal(err)
	}
	if h.org, err = store.Read(t.Context(), db, func(tx *store.Tx) (store.Organization, error) { return tx.OrganizationByName("acme") }); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h house) open(t *testing.T, u store.User) (string, Session) {
	t.Helper()
	cookie, s, err := h.Open(t.Context(), Proof{User: u, Way: WayToken}, "192.0.2.1", "browser\nof "+strings.Repeat("x", 1000))
	if err != nil {
		t.Fatal(err)
	}
	return cookie, s
}

func (h house) resumes(t *testing.T, cookie string) bool {
	t.Helper()
	_, _, err := h.Resume(t.Context(), cookie, true)
	if err != nil && fault.KindOf(err) != fault.KindUnauthenticated {
		t.Fatal(err)
	}
	return err == nil
}

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
			if err := db.Write(t.Context(), func(tx *store.Tx) error { return tx.InsertSession(row) }); err != nil {
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

func TestUseLink(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		key, err := h.MakeLink(t.Context(), h.ada)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		results := make([]error, 4)
		for i := range results {
			wg.Go(func() { _, results[i] = h.UseLink(t.Context(), key, "192.0.2.1") })
		}
		wg.Wait()
		used := 0
		for _, err := range results {
			if err == nil {
				used++
			} else if fault.KindOf(err) != fault.KindUnauthenticated {
				t.Errorf("UseLink: %v", err)
			}
		}
		if used != 1 {
			t.Errorf("the link worked %d times, want once", used)
		}
		expired, hash := identity.NewToken()
		err = db.Write(t.Context(), func(tx *store.Tx) error {
			return tx.InsertSignInLink(store.SignInLink{ID: "old", Hash: hash, UserID: h.ada.ID, CreatedAt: tx.Now().Add(-linkFor), ExpiresAt: tx.Now().Add(-time.Second)})
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{expired, "", "x"} {
			if _, err := h.UseLink(t.Context(), key, "192.0.2.2"); err != errLink { //nolint:errorlint // it is returned as it is
				t.Errorf("UseLink(%q): %v", key, err)
			}
		}
	})
}

func TestUseToken(t *testing.T) {
	db := storetest.SQLite(t)
	h := newHouse(t, db)
	ids := identity.New(db, storetest.Log())
	create := func(spec identity.NewTokenSpec) string {
		t.Helper()
		text, _, err := ids.CreateToken(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	org := create(identity.NewTokenSpec{Kind: store.OrgToken, OrgID: h.org.ID, Name: "robot", Description: "of the organization", CreatedBy: h.admin.ID})
	exchanged, hash := identity.NewToken()
	err := db.Write(t.Context(), func(tx *store.Tx) error {
		return tx.InsertToken(store.Token{
			ID: identity.NewID(), Hash: hash, Kind: store.PersonalToken, OrgID: h.org.ID, UserID: h.ada.ID, IssuerID: "issuer", CreatedBy: h.ada.ID, CreatedAt: tx.Now(),
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, token string
		want        error
	}{
		{"personal", h.adaToken, nil},
		{"of an organization", org, errToken},
		{"exchanged", exchanged, errToken},
		{"unknown", "pul-0123456789", errToken},
		{"empty", "", errToken},
	} {
		proof, err := h.UseToken(t.Context(), tt.token, "192.0.2.1")
		if err != tt.want || err == nil && (proof.User.ID != h.ada.ID || proof.TokenID == "") { //nolint:errorlint // it is returned as it is
			t.Errorf("%s: %+v, %v, want %v", tt.name, proof, err, tt.want)
		}
	}
	off := New(db, Options{Log: storetest.Log(), Identity: ids, NoTokens: true})
	if _, err := off.UseToken(t.Context(), h.adaToken, "192.0.2.1"); fault.KindOf(err) != fault.KindForbidden {
		t.Errorf("with the sign-in by token turned off: %v", err)
	}
}

func TestFailedSignInsAreLimited(t *testing.T) {
	h := newHouse(t, storetest.SQLite(t))
	try := func(token, address string) error {
		_, err := h.UseToken(context.WithoutCancel(t.Context()), token, address)
		return err
	}
	limited := false
	for range 3 * failuresPerMinute { // a new minute can begin in between
		if limited = errors.Is(try("wrong", "2001:db8::1"), errTries); limited {
			break
		}
	}
	if !limited {
		t.Fatal("wrong tokens are not limited")
	}
	if err := try(h.adaToken, "2001:db8:0:1::1"); err != nil {
		t.Errorf("from another network: %v", err)
	}
}

// TestFailuresInAudit checks that failed sign-ins from many networks do not fill the audit log, and
// that each of them is refused all the same.
func TestFailuresInAudit(t *testing.T) {
	for range 3 { // a new minute can begin in between
		h := newHouse(t, storetest.SQLite(t))
		before, minute := len(h.entries(t)), time.Now().Truncate(time.Minute)
		for i := range recordsPerMinute + 10 {
			if _, err := h.UseToken(t.Context(), "wrong", fmt.Sprintf("192.0.2.%d", i)); !errors.Is(err, errToken) {
				t.Fatal(err)
			}
		}
		if !time.Now().Truncate(time.Minute).Equal(minute) {
			continue
		}
		if n := len(h.entries(t)) - before; n != recordsPerMinute {
			t.Errorf("%d failures are recorded", n)
		}
		return
	}
	t.Error("no attempt took less than a minute")
}

// entries returns the actions of the audit log, oldest first.
func (h house) entries(t *testing.T) (list []string) {
	t.Helper()
	err := h.db.Read(t.Context(), func(tx *store.Tx) error {
		found, err := tx.AuditEntries(store.AuditFilter{Limit: 100})
		for _, e := range slices.Backward(found) {
			list = append(list, e.Action+" "+e.ActorKind+" "+e.Subject+" "+e.Detail)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
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
	err := db.Write(t.Context(), func(tx *store.Tx) error {
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

// TestProvidersVouchForADay checks that a provider decides at least daily about the users who have an
// account there.
func TestProvidersVouchForADay(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		for _, tt := range []struct {
			way     string
			account bool
			want    time.Duration
		}{
			{WayPasskey, false, Longest},
			{WayLink, false, Longest},
			{WayProvider, true, longestOfProvider},
			{WayPasskey, true, longestOfProvider},
			{WayLink, true, Longest},
			{WayToken, true, Longest},
		} {
			if tt.account {
				h.connect(t, time.Now())
			}
			_, s, err := h.Open(t.Context(), Proof{User: h.ada, Way: tt.way}, "", "")
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Ends.Sub(s.Created); got != tt.want {
				t.Errorf("a session by %s of a user with an account: %t lasts %v, want %v", tt.way, tt.account, got, tt.want)
			}
		}
	})
}

// connect records that ada has signed in at a provider.
func (h house) connect(t *testing.T, at time.Time) {
	t.Helper()
	err := h.db.Write(t.Context(), func(tx *store.Tx) error {
		i := store.Identity{Issuer: "https://id.example", Subject: "1", UserID: h.ada.ID, CreatedAt: at, UsedAt: at}
		if err := tx.DeleteIdentity(h.ada.ID, i.Issuer, i.Subject); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		return tx.InsertIdentity(i)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPasskeyOfALeaver checks that a user who has not signed in at the provider for a week cannot enter
// with a passkey.
func TestPasskeyOfALeaver(t *testing.T) {
	h := newHouse(t, storetest.SQLite(t))
	vouch := func(way string) error {
		_, err := h.Vouch(t.Context(), h.ada.ID, way, "key", "192.0.2.1")
		return err
	}
	if err := vouch(WayPasskey); err != nil {
		t.Errorf("without an account at a provider: %v", err)
	}
	for age, want := range map[time.Duration]error{6 * 24 * time.Hour: nil, 8 * 24 * time.Hour: errAskProvider} {
		h.connect(t, time.Now().Add(-age))
		if err := vouch(WayPasskey); !errors.Is(err, want) {
			t.Errorf("%v after the last sign-in at the provider: %v, want %v", age, err, want)
		}
		if err := vouch(WayProvider); err != nil {
			t.Errorf("by the provider itself: %v", err)
		}
	}
}

func TestConfirmedBeforeTheSession(t *testing.T) {
	h := newHouse(t, storetest.SQLite(t))
	for _, tt := range []struct {
		confirmed time.Time
		fresh     bool
	}{{time.Time{}, true}, {time.Now().Add(-20 * time.Minute), false}, {time.Now().Add(time.Hour), true}} {
		cookie, _, err := h.Open(t.Context(), Proof{User: h.ada, Way: WayProvider, Confirmed: tt.confirmed}, "", "")
		if err != nil {
			t.Fatal(err)
		}
		_, s, err := h.Resume(t.Context(), cookie, true)
		if err != nil || s.Fresh(time.Now()) != tt.fresh || s.Confirmed.After(time.Now().Add(time.Minute)) {
			t.Errorf("confirmed %v: fresh %v until %v (%v)", tt.confirmed, s.Fresh(time.Now()), s.Confirmed, err)
		}
	}
}

func TestAuditLog(t *testing.T) {
	h := newHouse(t, storetest.SQLite(t))
	before := len(h.entries(t))
	ctx := audit.With(t.Context(), audit.Source{Address: "192.0.2.1", Way: audit.WayConsole})
	key, err := h.MakeLink(ctx, h.ada)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := h.UseLink(ctx, key, "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	_, s, err := h.Open(ctx, proof, "192.0.2.1", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.End(ctx, h.ada, s.ID, SignedOut); err != nil {
		t.Fatal(err)
	}
	if err := h.End(ctx, h.ada, s.ID, SignedOut); err != nil { // it has ended
		t.Fatal(err)
	}
	if _, err := h.UseToken(ctx, "pul-wrong", "192.0.2.1"); err == nil {
		t.Fatal("a wrong token works")
	}
	want := []string{
		`user.sign-in-link-made server ada {}`,
		`user.signed-in user ada {"with":"link"}`,
		`user.session-ended server ada {"because":"signed out","sessions":1}`,
		`user.sign-in-failed visitor  {"because":"The token is not a valid personal access token.","with":"token"}`,
	}
	if got := h.entries(t)[before:]; !slices.Equal(got, want) {
		t.Errorf("the audit log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestBox(t *testing.T) {
	ring, err := keyring.Open(t.Context(), storetest.SQLite(t), bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	box, other := Box{Secrets: ring, Purpose: "a"}, Box{Secrets: ring, Purpose: "b"}
	text, err1 := box.Seal(t.Context(), "value", time.Now().Add(time.Minute))
	old, err2 := box.Seal(t.Context(), "value", time.Now().Add(-time.Second))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := box.Open(t.Context(), text, &got); err != nil || got != "value" {
		t.Errorf("Open = %q, %v", got, err)
	}
	changed := []byte(text)
	changed[len(changed)/2] ^= 1
	for name, err := range map[string]error{
		"of another purpose": other.Open(t.Context(), text, &got),
		"expired":            box.Open(t.Context(), old, &got),
		"changed":            box.Open(t.Context(), string(changed), &got),
		"empty":              box.Open(t.Context(), "", &got),
		"no base64":          box.Open(t.Context(), "!", &got),
	} {
		if err == nil {
			t.Errorf("a text that is %s opens the box", name)
		}
	}
}
