package oidc

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/server/store"
)

type publisher struct {
	mu      sync.Mutex
	names   []string
	err     error
	fetches int
}

func (p *publisher) fetch(context.Context, store.OIDCIssuer) ([]key, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetches++
	var keys []key
	for _, n := range p.names {
		keys = append(keys, key{KeyID: n})
	}
	return keys, p.err
}

func (p *publisher) set(err error, names ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names, p.err = names, err
}

func named(name string) func([]key) bool {
	return func(keys []key) bool {
		for _, k := range keys {
			if k.KeyID == name {
				return true
			}
		}
		return false
	}
}

func TestKeyCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &publisher{names: []string{"one"}}
		c := newKeyCache(p.fetch)
		issuer := store.OIDCIssuer{ID: "i", ModifiedAt: time.Now()}
		expect := func(name string, found, settled, unavailable bool, fetches int) {
			t.Helper()
			gotFound, gotSettled, err := c.find(t.Context(), issuer, named(name))
			if gotFound != found || gotSettled != settled || errors.Is(err, errNotNow) != unavailable || p.fetches != fetches {
				t.Errorf("%s: found %v, settled %v, %v after %d fetches; want %v, %v, unavailable %v after %d",
					name, gotFound, gotSettled, err, p.fetches, found, settled, unavailable, fetches)
			}
		}
		expect("one", true, true, false, 1)
		expect("one", true, true, false, 1)
		expect("two", false, false, false, 1) // just fetched: not settled
		p.set(nil, "two")
		expect("two", false, false, false, 1)
		time.Sleep(askAgain)
		expect("two", true, true, false, 2) // rotated: an unknown key causes a fetch
		expect("one", false, false, false, 2)
		time.Sleep(askAgain)
		expect("one", false, true, false, 3) // the result is final
		for range 100 {                      // unknown keys cannot cause more fetches
			expect("junk", false, false, false, 3)
		}

		p.set(errors.New("down"), "two")
		time.Sleep(keysFresh)
		expect("two", true, true, false, 4) // no longer fresh, but still used
		expect("two", true, true, false, 4)
		expect("junk", false, false, true, 4)
		time.Sleep(keysUsable)
		expect("two", false, false, true, 5) // too old
		expect("two", false, false, true, 5)
		p.set(nil, "two")
		time.Sleep(askAgain)
		expect("two", true, true, false, 6)

		issuer.ModifiedAt = issuer.ModifiedAt.Add(time.Hour)
		expect("two", true, true, false, 7) // changed: the trusted thumbprints might differ
		c.forget("i")
		expect("two", true, true, false, 8)
	})
}

func TestKeyCacheAsksOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &publisher{names: []string{"one"}}
		c := newKeyCache(func(ctx context.Context, i store.OIDCIssuer) ([]key, error) {
			time.Sleep(5 * time.Second)
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return p.fetch(ctx, i)
		})
		issuer := store.OIDCIssuer{ID: "i", ModifiedAt: time.Now()}
		impatient, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { c.find(impatient, issuer, named("one")) })
		synctest.Wait()
		cancel() // the fetching caller disconnects
		for range 10 {
			wg.Go(func() {
				if found, _, err := c.find(t.Context(), issuer, named("one")); !found || err != nil {
					t.Errorf("found %v, %v", found, err)
				}
			})
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := c.find(gone, issuer, named("one")); !errors.Is(err, context.Canceled) {
			t.Errorf("waiting after the caller disconnected: %v", err)
		}
		wg.Wait()
		if p.fetches != 1 {
			t.Errorf("%d fetches, want 1", p.fetches)
		}
	})
}

func TestSlowIssuerDelaysOnlyThoseWhoNeedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := time.Duration(0)
		c := newKeyCache(func(context.Context, store.OIDCIssuer) ([]key, error) {
			time.Sleep(slow)
			return []key{{KeyID: "one"}}, nil
		})
		issuer := store.OIDCIssuer{ID: "i", ModifiedAt: time.Now()}
		if found, _, err := c.find(t.Context(), issuer, named("one")); !found || err != nil {
			t.Fatalf("found %v, %v", found, err)
		}
		time.Sleep(askAgain)
		slow = fetchTime
		var wg sync.WaitGroup
		wg.Go(func() { c.find(t.Context(), issuer, named("junk")) })
		synctest.Wait()
		began := time.Now()
		if found, _, err := c.find(t.Context(), issuer, named("one")); !found || err != nil || time.Since(began) > 0 {
			t.Errorf("found %v, %v after %s", found, err, time.Since(began))
		}
		wg.Wait()
	})
}

func TestParseKeys(t *testing.T) {
	const (
		ec      = `{"kty":"EC","crv":"P-256","kid":"e","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`
		private = `{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0","d":"jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI"}`
		shared  = `{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}`
		short   = `{"kty":"RSA","e":"AQAB","n":"sXchDaQebHnPiGvyDOAT4saGEUetSyo9MKLOoWFsueri23bOdgWp4Dy1WlUzewbgBHod5pcM9H95GQRV3JDXboIRROSBigeC5yjU1hGzHHyXss8UDprecbAYxknTcQkhslANGRUZmdTOQ5qTRsLAt6BTYuyvVRdhS8exSZEy_c4"}`
		encrypt = `{"kty":"EC","use":"enc","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`
		off     = `{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"}`
		future  = `{"kty":"XYZ"}`
	)
	skipped := map[int]string{}
	keys, err := parseKeys([]byte(`{"keys": [`+ec+","+private+","+shared+","+short+","+encrypt+","+off+","+future+`, 7]}`), func(i int, reason string) error {
		skipped[i] = reason
		return nil
	})
	if err != nil || len(keys) != 1 || keys[0].KeyID != "e" || len(skipped) != 7 {
		t.Errorf("keys %v, skipped %v, %v", keys, skipped, err)
	}
	stop := errors.New("stop")
	if _, err := parseKeys([]byte(`{"keys": [`+private+`]}`), func(int, string) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a rejected key: %v", err)
	}
	for _, bad := range []string{"", "[]", `{"keys": 1}`} {
		if _, err := parseKeys([]byte(bad), nil); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
