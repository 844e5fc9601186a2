package signin

import (
	"errors"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

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
	err := h.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
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
