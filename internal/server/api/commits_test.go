package api_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"workflowagent/internal/dev/pgproxy"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
)

// TestLostAnswersToCommit loses the answers to COMMIT at every kind of write. What a client was told,
// or can read then, must be whole, and nothing may be doubled.
func TestLostAnswersToCommit(t *testing.T) {
	// The database knows the outcome.
	known := func(t *testing.T, l *lab, p *pgproxy.Proxy, fault pgproxy.Fault, w lostWrite) {
		write, check := w.prepare(l)
		p.Set(fault)
		status := write()
		wantHit(t, p)
		wantStatus(t, status, w.ok)
		check(true)
	}
	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		eachLostWrite(t, store.Timeouts{}, func(t *testing.T, l *lab, p *pgproxy.Proxy, w lostWrite) {
			known(t, l, p, pgproxy.Cut, w)
		})
	})
	t.Run("late", func(t *testing.T) {
		t.Parallel()
		// Each write takes as long as its timeout.
		slow := []string{"import", "checkpoint", "fold", "claim", "result", "schedule that fires", "token", "delivery of a webhook"}
		eachLostWrite(t, store.Timeouts{Answer: 1500 * time.Millisecond}, func(t *testing.T, l *lab, p *pgproxy.Proxy, w lostWrite) {
			known(t, l, p, pgproxy.Late, w)
		}, slow...)
	})
	t.Run("unknown", func(t *testing.T) {
		t.Parallel()
		eachLostWrite(t, store.Timeouts{Outcome: 50 * time.Millisecond}, func(t *testing.T, l *lab, p *pgproxy.Proxy, w lostWrite) {
			if w.name == "delivery of a webhook" {
				return // the lease of a claim that may exist blocks the webhook for a minute
			}
			write, check := w.prepare(l)
			p.Hide(true)
			p.Set(pgproxy.Cut)
			l.loses = true
			status := write()
			l.loses = false
			wantHit(t, p)
			p.Hide(false)
			if !w.inside {
				wantStatus(t, status, 500)
			}
			if !w.inside {
				check(true)
			}
			wantStatus(t, write(), w.again)
			check(true)
		})
	})
	t.Run("never committed", func(t *testing.T) {
		t.Parallel()
		eachLostWrite(t, store.Timeouts{}, func(t *testing.T, l *lab, p *pgproxy.Proxy, w lostWrite) {
			if w.inside {
				return // the server repeats such a write later
			}
			write, check := w.prepare(l)
			p.Set(pgproxy.Drop)
			status := write()
			wantHit(t, p)
			wantStatus(t, status, 500)
			check(false)
			wantStatus(t, write(), w.ok)
			check(true)
		})
	})
}

// eachLostWrite runs a test for each kind of write, or for those with a name, behind a proxy.
func eachLostWrite(t *testing.T, timeouts store.Timeouts, test func(*testing.T, *lab, *pgproxy.Proxy, lostWrite), names ...string) {
	t.Helper()
	open := func(t *testing.T) (*lab, *pgproxy.Proxy) {
		// Nothing names a blob while it is written.
		p := pgproxy.Start(t, storetest.PostgresDSN(t), "blob_chunks")
		return newLab(t, storetest.PostgresAlone(t, p.DSN(), timeouts), deployments.Options{}), p
	}
	shared, proxy := open(t)
	jobs := jobWrites()
	n := 0
	for i, w := range slices.Concat(jobs, stateWrites(), otherWrites()) {
		if len(names) > 0 && !slices.Contains(names, w.name) {
			continue
		}
		n++
		t.Run(w.name, func(t *testing.T) {
			l, p := shared, proxy
			if i < len(jobs) { // an agent might get the jobs of others
				l, p = open(t)
			}
			outer := l.t
			defer func() { l.t = outer }()
			l.t, l.name = t, fmt.Sprintf("s%d", i)
			test(t, l, p, w)
		})
	}
	if len(names) > 0 && n != len(names) {
		t.Errorf("only %d of the kinds exist: %q", n, names)
	}
}

func wantHit(t *testing.T, p *pgproxy.Proxy) {
	t.Helper()
	if p.Set(pgproxy.None) == 0 {
		t.Error("the write has sent no COMMIT")
	}
}

func wantStatus(t *testing.T, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("the write has the status %d, want %d", got, want)
	}
}
