package passkey

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/store"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const origin = "https://console.example.com"

// house is a service with the users ada and eve.
type house struct {
	*Service
	t        *testing.T
	ada, eve store.User
}

func newHouse(t *testing.T, db *store.DB) *house {
	t.Helper()
	ids := identity.New(db, storetest.Log())
	h := &house{t: t}
	for login, u := range map[string]*store.User{"ada": &h.ada, "eve": &h.eve} {
		_, err := ids.CreateUser(t.Context(), identity.NewUser{Login: login, Name: login})
		if err != nil {
			t.Fatal(err)
		}
		if *u, err = ids.UserByLogin(t.Context(), login); err != nil {
			t.Fatal(err)
		}
	}
	h.Service = at(t, db, origin)
	return h
}

func at(t *testing.T, db *store.DB, url string) *Service {
	t.Helper()
	ring, err := keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(db, Options{Log: storetest.Log(), Secrets: ring, URL: url})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (h *house) askToAdd(u store.User) Question {
	h.t.Helper()
	q, err := h.AskToAdd(h.t.Context(), u)
	if err != nil {
		h.t.Fatal(err)
	}
	return q
}

func (h *house) askToSignIn() Question {
	h.t.Helper()
	q, err := h.AskToSignIn(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return q
}

// add returns a device with a new passkey of a user.
func (h *house) add(u store.User, name string) *authenticator {
	h.t.Helper()
	a, q := newAuthenticator(h.t), h.askToAdd(u)
	if err := h.Add(h.t.Context(), u, name, q.State, a.create(q)); err != nil {
		h.t.Fatal(err)
	}
	return a
}

// signIn answers a new question with a device.
func (h *house) signIn(a *authenticator) (string, error) {
	h.t.Helper()
	q := h.askToSignIn()
	userID, _, err := h.SignIn(h.t.Context(), q.State, a.get(q))
	return userID, err
}

func isRefused(err error) bool { return fault.KindOf(err) == fault.KindUnauthenticated }

func TestPasskey(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		a := h.add(h.ada, "key\n ring")
		if string(a.user) != h.ada.ID {
			t.Errorf("the passkey contains the handle %q", a.user)
		}
		for range 2 { // devices without a counter always say 0
			if id, err := h.signIn(a); err != nil || id != h.ada.ID {
				t.Errorf("signing in: %q, %v", id, err)
			}
		}
		a.count = 7
		if _, err := h.signIn(a); err != nil {
			t.Errorf("with a counter: %v", err)
		}
		list, err := h.List(t.Context(), h.ada.ID)
		if err != nil || len(list) != 1 || list[0].Name != "key ring" || list[0].SignCount != 7 || list[0].UsedAt.IsZero() {
			t.Fatalf("the passkeys are %+v, %v", list, err)
		}
		id := list[0].ID
		if err := h.Rename(t.Context(), h.ada.ID, id, "phone"); err != nil {
			t.Error(err)
		}
		if err := h.Rename(t.Context(), h.ada.ID, id, " \n"); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("an empty name: %v", err)
		}
		// Another user can do nothing with it.
		if err := h.Rename(t.Context(), h.eve.ID, id, "mine"); err == nil {
			t.Error("another user renamed the passkey")
		}
		if err := h.Remove(t.Context(), h.eve, id); err != nil {
			t.Error(err)
		}
		if list, err := h.List(t.Context(), h.ada.ID); err != nil || len(list) != 1 || list[0].Name != "phone" {
			t.Errorf("the passkeys are %+v, %v", list, err)
		}
		for range 2 {
			if err := h.Remove(t.Context(), h.ada, id); err != nil {
				t.Error(err)
			}
		}
		if _, err := h.signIn(a); !isRefused(err) {
			t.Errorf("the removed passkey: %v", err)
		}
	})
}

// TestForgedSignIns answers questions in ways that prove nothing.
func TestForgedSignIns(t *testing.T) {
	h := newHouse(t, storetest.SQLite(t))
	eve := h.add(h.eve, "hers")
	for name, change := range map[string]func(a *authenticator){
		"another site":                 func(a *authenticator) { a.origin = "https://evil.example" },
		"a site with a longer name":    func(a *authenticator) { a.origin = "https://console.example.com.evil.example" },
		"another port":                 func(a *authenticator) { a.origin = origin + ":8443" },
		"a subdomain":                  func(a *authenticator) { a.origin = "https://x.console.example.com" },
		"without https":                func(a *authenticator) { a.origin = "http://console.example.com" },
		"a frame of another site":      func(a *authenticator) { a.cross = true },
		"a key for another domain":     func(a *authenticator) { a.domain = "example.com" },
		"another challenge":            func(a *authenticator) { a.challenge = []byte("0123456789abcdef0123456789abcdef") },
		"an answer for another use":    func(a *authenticator) { a.kind = "webauthn.create" },
		"without a PIN or finger":      func(a *authenticator) { a.flags = present },
		"without the user":             func(a *authenticator) { a.flags = verified },
		"the handle of another user":   func(a *authenticator) { a.user = []byte(h.eve.ID) },
		"no handle":                    func(a *authenticator) { a.user = nil },
		"the key of another user":      func(a *authenticator) { a.key = eve.key },
		"the passkey of another user":  func(a *authenticator) { a.credential = eve.credential },
		"key and id of another user":   func(a *authenticator) { a.credential, a.key = eve.credential, eve.key },
		"an unknown passkey":           func(a *authenticator) { a.credential = []byte("unknown") },
		"a device that became another": func(a *authenticator) { a.flags |= 8 }, // eligible for backup
	} {
		a := h.add(h.ada, name)
		change(a)
		if id, err := h.signIn(a); !isRefused(err) || id != "" {
			t.Errorf("%s: %q, %v", name, id, err)
		}
		list, err := h.List(t.Context(), h.ada.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range list {
			if err := h.Remove(t.Context(), h.ada, k.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	a := h.add(h.ada, "good")
	q := h.askToSignIn()
	answer := a.get(q)
	for name, tt := range map[string]struct{ state, answer string }{
		"no state":                  {"", answer},
		"a changed state":           {"B" + q.State[1:], answer},
		"the state of another use":  {h.askToAdd(h.ada).State, answer},
		"the state of another try":  {h.askToSignIn().State, answer},
		"no answer":                 {q.State, ""},
		"an answer that is no JSON": {q.State, "<"},
		"an answer that is too big": {q.State, answer + strings.Repeat(" ", maxAnswer)},
	} {
		if id, _, err := h.SignIn(t.Context(), tt.state, tt.answer); !isRefused(err) || id != "" {
			t.Errorf("%s: %q, %v", name, id, err)
		}
	}
	if id, _, err := h.SignIn(t.Context(), q.State, answer); err != nil || id != h.ada.ID {
		t.Errorf("the right answer: %q, %v", id, err)
	}
}

// TestReplay sends an answer several times at once. Only one may work.
func TestReplay(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		h := newHouse(t, db)
		a := h.add(h.ada, "")
		q := h.askToSignIn()
		answer := a.get(q)
		results := make([]error, 4)
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() { _, _, results[i] = h.SignIn(t.Context(), q.State, answer) })
		}
		wg.Wait()
		if n := len(slices.DeleteFunc(results, func(err error) bool { return isRefused(err) })); n != 1 {
			t.Errorf("the answer worked %d times: %v", n, results)
		}
	})
}

func TestReplayOfANewPasskey(t *testing.T) {
	h := newHouse(t, storetest.SQLite(t))
	a, q := newAuthenticator(t), h.askToAdd(h.ada)
	answer := a.create(q)
	if err := h.Add(t.Context(), h.eve, "", q.State, answer); !isRefused(err) {
		t.Errorf("the question to another user: %v", err)
	}
	if err := h.Add(t.Context(), h.ada, "", h.askToSignIn().State, answer); !isRefused(err) {
		t.Errorf("the state of a sign-in: %v", err)
	}
	if err := h.Add(t.Context(), h.ada, "", q.State, answer); err != nil {
		t.Fatal(err)
	}
	if err := h.Add(t.Context(), h.ada, "", q.State, answer); !isRefused(err) {
		t.Errorf("the answer for a second time: %v", err)
	}
	again := h.askToAdd(h.eve)
	if err := h.Add(t.Context(), h.eve, "", again.State, a.create(again)); err != errKnown { //nolint:errorlint // it is returned as it is
		t.Errorf("the passkey of another user: %v", err)
	}
	for name, change := range map[string]func(a *authenticator){
		"another site":            func(a *authenticator) { a.origin = "https://evil.example" },
		"without a PIN or finger": func(a *authenticator) { a.flags = present },
		"another domain":          func(a *authenticator) { a.domain = "evil.example" },
		"another challenge":       func(a *authenticator) { a.challenge = []byte("0123456789abcdef0123456789abcdef") },
	} {
		a, q := newAuthenticator(t), h.askToAdd(h.ada)
		change(a)
		if err := h.Add(t.Context(), h.ada, "", q.State, a.create(q)); !isRefused(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClonedPasskey(t *testing.T) {
	h := newHouse(t, storetest.SQLite(t))
	a := h.add(h.ada, "key")
	a.count = 10
	if _, err := h.signIn(a); err != nil {
		t.Fatal(err)
	}
	for _, count := range []uint32{10, 9, 0} {
		a.count = count
		if _, err := h.signIn(a); err != errCloned { //nolint:errorlint // it is returned as it is
			t.Errorf("the counter %d after 10: %v", count, err)
		}
	}
	a.count = 11
	if _, err := h.signIn(a); err != nil {
		t.Errorf("the original: %v", err)
	}
}

func TestQuestionsExpire(t *testing.T) {
	box := signin.Box{Secrets: plain{}, Purpose: "passkey"}
	synctest.Test(t, func(t *testing.T) {
		service, err := New(nil, Options{Log: storetest.Log(), Secrets: plain{}, URL: origin})
		if err != nil {
			t.Fatal(err)
		}
		q, err := service.AskToSignIn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var session map[string]any
		time.Sleep(answerWithin - time.Second)
		if err := box.Open(t.Context(), q.State, &session); err != nil {
			t.Errorf("before the end: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := box.Open(t.Context(), q.State, &session); err == nil {
			t.Error("the question has no end")
		}
	})
}

func TestPasskeysAreBounded(t *testing.T) {
	h := newHouse(t, storetest.SQLite(t))
	late := h.askToAdd(h.ada)
	for range maxPasskeys {
		h.add(h.ada, "")
	}
	if _, err := h.AskToAdd(t.Context(), h.ada); err != errMany { //nolint:errorlint // it is returned as it is
		t.Errorf("asking for one more: %v", err)
	}
	if err := h.Add(t.Context(), h.ada, "", late.State, newAuthenticator(t).create(late)); fault.KindOf(err) != fault.KindConflict {
		t.Errorf("adding one more: %v", err)
	}
}

func TestOrigin(t *testing.T) {
	db := storetest.SQLite(t)
	for url, want := range map[string]bool{
		"https://console.example.com":      true,
		"https://console.example.com:8443": true,
		"http://localhost:8800":            true,
		"http://x.localhost":               true,
		"http://console.example.com":       false,
		"http://127.0.0.1:8800":            false,
		"https://192.0.2.1":                false,
		"https://[2001:db8::1]":            false,
		"http://localhost.example.com":     false,
		"":                                 false,
	} {
		s := at(t, db, url)
		if got := s.Origin() != ""; got != want || want && s.Origin() != url {
			t.Errorf("at %q: origin %q", url, s.Origin())
		}
		if _, err := s.AskToSignIn(t.Context()); (err == nil) != want {
			t.Errorf("at %q: AskToSignIn: %v", url, err)
		}
	}
}

// plain encrypts nothing.
type plain struct{}

func (plain) Encrypt(_ context.Context, _ string, text []byte) ([]byte, error) { return text, nil }
func (plain) Decrypt(_ context.Context, _ string, text []byte) ([]byte, error) { return text, nil }
