package api_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/pgproxy"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// inOneHour calls try with the name of a new stack until no hour has begun meanwhile. On PostgreSQL, the
// database's clock determines the hour.
func (f *fixture) inOneHour(try func(stack string)) (stack string) {
	f.t.Helper()
	for n := 0; ; n++ {
		stack = fmt.Sprintf("dev%d", n)
		before, err1 := f.db.Now(f.t.Context())
		try(stack)
		after, err2 := f.db.Now(f.t.Context())
		if err1 != nil || err2 != nil {
			f.t.Fatal(err1, err2)
		}
		if before.Truncate(time.Hour).Equal(after.Truncate(time.Hour)) {
			return stack
		}
	}
}

// TestConcurrentReadsShareAnEntry lets two servers decrypt secrets for the same token at once. No read
// may fail or be missing in the count.
func TestConcurrentReadsShareAnEntry(t *testing.T) {
	const readers, each = 16, 5
	run := func(t *testing.T, first, second *fixture) {
		t.Helper()
		second.admin = first.admin
		stack := first.inOneHour(func(stack string) {
			path, ciphertext := first.secretStack(stack)
			var wg sync.WaitGroup
			for i := range readers {
				wg.Go(func() {
					f := []*fixture{first, second}[i%2]
					for range each {
						if a := f.do("POST", path+"/decrypt", map[string]string{"ciphertext": ciphertext}); a.Status != 200 {
							t.Errorf("a concurrent read: status %d, body %s", a.Status, a.Body)
						}
					}
				})
			}
			wg.Wait()
		})
		got := first.readsOf(stack)
		if len(got) != 1 || got[0].Count != readers*each || got[0].LastTimestamp < got[0].Timestamp {
			t.Errorf("%d concurrent reads left %+v, want one entry", readers*each, got)
		}
	}
	t.Run("one server", func(t *testing.T) {
		f := newFixture(t, options{})
		run(t, f, f)
	})
	t.Run("two servers", func(t *testing.T) {
		a, b := storetest.PostgresPair(t)
		first := newFixtureOn(t, a, options{})
		run(t, first, newFixtureOn(t, b, options{restarted: true}))
	})
}

// TestReadsFromSeveralAddresses reads versions of a state from several addresses. The entry lists both,
// each once and not without end.
func TestReadsFromSeveralAddresses(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		read := func(st store.Stack, address, name string) {
			t.Helper()
			ctx := audit.With(t.Context(), audit.Source{Address: address, Way: audit.WayAPI, Actor: audit.Actor{Kind: "user", ID: "u", Name: "ann", TokenID: "t"}})
			if err := f.stacks.ReportDecryption(ctx, identity.Principal{}, st, name); err != nil {
				t.Fatal(err)
			}
		}
		entryOf := func(st store.Stack) (e store.AuditEntry) {
			t.Helper()
			list, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.AuditEntry, error) {
				return tx.AuditEntries(store.AuditFilter{OrgID: st.OrgID, Subject: st.Ref(), Action: string(audit.DecryptionReported), Limit: 10})
			})
			if err != nil || len(list) != 1 {
				t.Fatalf("entries %+v, %v, want 1", list, err)
			}
			return list[0]
		}
		stackOf := func(name string) (st store.Stack) {
			t.Helper()
			f.stack(name)
			err := db.Read(t.Context(), func(tx *store.Tx) (err error) {
				st, err = tx.StackByName("acme", "proj", name)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		var st store.Stack
		f.inOneHour(func(stack string) {
			st = stackOf(stack)
			for _, r := range []struct{ address, name string }{
				{"192.0.2.1", "a"}, {"192.0.2.10", ""}, {"192.0.2.1", "A"}, {"", "a, b"}, {"192.0.2.1", "a%"}, {"192.0.2.10", "a"}, {"fe80::1%eth0", "_"}, {"fe80::1%eth0", "_"},
			} {
				read(st, r.address, r.name)
			}
		})
		if e := entryOf(st); e.Address != "192.0.2.1, 192.0.2.10, fe80::1%eth0" || e.Names != "a, A, a; b, a%, _" || e.Reads != 8 {
			t.Errorf("the entry has the addresses %q, the names %q and the count %d", e.Address, e.Names, e.Reads)
		}
		var page struct {
			Events []struct {
				SourceIP  string
				SourceIPs []string
			} `json:"auditLogEvents"`
		}
		f.do("GET", "/api/orgs/acme/auditlogs?eventFilter=stack.decryption-reported", nil).want(200, &page)
		if e := page.Events[0]; e.SourceIP != "192.0.2.1" || strings.Join(e.SourceIPs, " ") != "192.0.2.1 192.0.2.10 fe80::1%eth0" {
			t.Errorf("the API shows %+v", e)
		}

		f.inOneHour(func(stack string) {
			st = stackOf("many-" + stack)
			for i := range 10 {
				read(st, "192.0.2.1", fmt.Sprintf("%d%s", i, strings.Repeat("x", 200)))
			}
		})
		if e := entryOf(st); e.Reads != 10 || len(e.Names) > 1100 || !strings.HasSuffix(e.Names, "x, …") || strings.Count(e.Names, "…") != 1 {
			t.Errorf("the entry has the count %d and the names %q", e.Reads, e.Names)
		}
	})
}

// TestAReadOfWhichTheOutcomeIsUnknown loses the answer to the COMMIT of an entry about a read. The server
// must refuse the read so that clients repeat it.
func TestAReadOfWhichTheOutcomeIsUnknown(t *testing.T) {
	p := pgproxy.Start(t, storetest.PostgresDSN(t), "blob_chunks")
	f := newFixtureOn(t, storetest.PostgresAt(t, p.DSN(), store.Timeouts{Outcome: 50 * time.Millisecond}), options{})
	path, ciphertext := f.secretStack("dev")
	read := func() answer {
		t.Helper()
		return f.do("POST", path+"/decrypt", map[string]string{"ciphertext": ciphertext})
	}
	p.Hide(true)
	p.Set(pgproxy.Cut)
	a := read().want(503, nil).says("try again")
	wantHit(t, p)
	p.Hide(false)
	if revealed(a.Body) || a.Header.Get("Retry-After") == "" {
		t.Errorf("the refused read has the answer %s, with Retry-After %q", a.Body, a.Header.Get("Retry-After"))
	}
	read().want(200, nil)
	total := int64(0)
	for _, e := range f.readsOf("dev") {
		total += e.Count
	}
	if total != 2 { // PostgreSQL has stored the first one
		t.Errorf("%d reads are counted, want 2", total)
	}
}
