package stacks_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

func TestStatesThatNothingNames(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		secrets, err := keyring.Open(ctx, db, bytes.Repeat([]byte{7}, 32))
		if err != nil {
			t.Fatal(err)
		}
		s := stacks.New(db, stacks.Options{Log: storetest.Log(), Secrets: secrets})
		ids := identity.New(db, storetest.Log())
		var token string
		if err := ids.Bootstrap(ctx, "acme", func(text string) error { token = text; return nil }); err != nil {
			t.Fatal(err)
		}
		p, err := ids.Authenticate(ctx, token)
		if err != nil {
			t.Fatal(err)
		}
		org, err := ids.Organization(ctx, p, "acme")
		if err != nil {
			t.Fatal(err)
		}
		st, err := s.Create(ctx, p, stacks.NewStack{Org: org, Project: "proj", Name: "dev"})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // only its update refers to the first state
			state, err := states.Parse([]byte(`{"version":3,"deployment":{"resources":[]}}`), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Import(ctx, p, st, state); err != nil {
				t.Fatal(err)
			}
		}
		put := func(key string) {
			t.Helper()
			if err := db.Blobs().Put(ctx, key, strings.NewReader("x")); err != nil {
				t.Fatal(err)
			}
		}
		left := map[string]bool{}
		for range 150 {
			key := "stacks/" + st.ID + "/" + identity.NewID()
			left[key] = true
			put(key)
		}
		put("logs/job/1/0")
		put("stacks2/a/b")
		if n, err := s.SweepStates(ctx); err != nil || n != 0 {
			t.Errorf("removed %d young states, %v", n, err)
		}
		if n, err := s.SweepStatesOlder(ctx, -time.Hour); err != nil || n != len(left) {
			t.Errorf("removed %d states, %v, want %d", n, err, len(left))
		}
		for key := range left {
			if size, err := db.Blobs().Size(ctx, key); err != nil || size != 0 {
				t.Errorf("%s has %d bytes, %v", key, size, err)
			}
		}
		for _, key := range []string{"logs/job/1/0", "stacks2/a/b"} {
			if size, err := db.Blobs().Size(ctx, key); err != nil || size != 1 {
				t.Errorf("%s has %d bytes, %v", key, size, err)
			}
		}
		for version := int64(1); version <= 2; version++ {
			if _, err := s.OpenVersion(ctx, identity.Principal{}, st, version); err != nil {
				t.Errorf("version %d: %v", version, err)
			}
		}
	})
}
