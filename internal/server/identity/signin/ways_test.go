package signin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

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
		err = db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
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

// TestOneLinkIsEnough makes several links for a user, as a server that starts again does. A sign-in by one of them, or in
// another way, ends all of them, also those that are used at the same time, and none of another user.
func TestOneLinkIsEnough(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		first := func() string { return must.Get(h.FirstLink(t.Context()))(t) }
		uses := func(keys ...string) (used int) {
			t.Helper()
			var wg sync.WaitGroup
			results := make([]error, len(keys))
			for i, key := range keys {
				wg.Go(func() { _, results[i] = h.UseLink(t.Context(), key, "192.0.2.1") })
			}
			wg.Wait()
			for _, err := range results {
				if err == nil {
					used++
				} else if fault.KindOf(err) != fault.KindUnauthenticated {
					t.Errorf("UseLink: %v", err)
				}
			}
			return used
		}
		others := must.Get(h.MakeLink(t.Context(), h.ada))(t)
		if used := uses(first(), first(), first(), first()); used != 1 {
			t.Errorf("%d of the links worked, want one", used)
		}
		key := first() // of a start after that, because no session was opened
		h.open(t, h.admin)
		if used := uses(key); used != 0 {
			t.Error("the first link works after the administrator has signed in")
		}
		if key := first(); key != "" {
			t.Error("the server offers a link although the administrator has signed in")
		}
		if used := uses(others); used != 1 {
			t.Error("the link of another user does not work")
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
	err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
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
	for _, address := range []string{"2001:db8::1", "2001:db8:0:1::1"} {
		if err := try(h.adaToken, address); err != nil {
			t.Errorf("the right token from %s: %v", address, err)
		}
	}
	// A user who proved an account learns what to do, although others fail from the same address.
	cause := errors.New("sign in in another way")
	if err := h.Refuse(t.Context(), WayPasskey, "ada", "2001:db8::1", cause); !errors.Is(err, cause) {
		t.Errorf("with a proof: %v", err)
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
