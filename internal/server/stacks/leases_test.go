package stacks_test

import (
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

type leaseTest struct {
	t       *testing.T
	clock   storetest.Clock
	db      *store.DB
	service *stacks.Service
	user    identity.Principal
	stack   store.Stack
}

const beatEvery = 5 * time.Second

func newLeaseTest(t *testing.T) *leaseTest {
	t.Helper()
	l := &leaseTest{t: t}
	l.db = storetest.SQLiteAt(t, &l.clock)
	ids := identity.New(l.db, storetest.Log())
	var token string
	l.must(ids.Bootstrap(t.Context(), "acme", func(text string) error { token = text; return nil }))
	var err error
	l.user, err = ids.Authenticate(t.Context(), token)
	l.must(err)
	org, err := ids.Organization(t.Context(), l.user, "acme")
	l.must(err)
	l.restart()
	l.stack, err = l.service.Create(t.Context(), l.user, stacks.NewStack{Org: org, Project: "proj", Name: "dev"})
	l.must(err)
	l.beat()
	return l
}

func (l *leaseTest) restart() {
	l.service = stacks.New(l.db, stacks.Options{Log: storetest.Log()})
}

func (l *leaseTest) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *leaseTest) beat() {
	l.t.Helper()
	l.must(l.db.Write(l.t.Context(), scope.Server(), func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		return tx.Beat(now, beatEvery)
	}))
}

func (l *leaseTest) up(d time.Duration) {
	l.t.Helper()
	for ; d > 0; d -= beatEvery {
		l.clock.Pass(beatEvery)
		l.beat()
	}
}

func (l *leaseTest) start() store.Update {
	l.t.Helper()
	u, err := l.service.CreateUpdate(l.t.Context(), l.user, l.stack, stacks.KindUpdate, stacks.Program{})
	l.must(err)
	_, err = l.service.Start(l.t.Context(), u, nil, 0)
	l.must(err)
	return u
}

func (l *leaseTest) left(u store.Update) time.Duration {
	l.t.Helper()
	u, err := l.service.FindUpdate(l.t.Context(), l.stack, u.ID)
	l.must(err)
	return u.LeaseExpiresAt.Sub(l.clock.Now())
}

func (l *leaseTest) renew(u store.Update) error {
	_, err := l.service.Renew(l.t.Context(), u, 0)
	return err
}

// TestLeaseKeepsWhatWasLeft checks that a lease keeps its remaining time while the servers are
// stopped or the clock is set. Either a renewal or the search for expired leases is the first to
// notice.
func TestLeaseKeepsWhatWasLeft(t *testing.T) {
	for _, tc := range []struct {
		name string
		what func(l *leaseTest)
		lost bool
	}{
		{"the server is stopped for an hour", func(l *leaseTest) { l.clock.Pass(time.Hour) }, false},
		{"the server starts again after an hour", func(l *leaseTest) { l.clock.Pass(time.Hour); l.restart() }, false},
		{"the machine starts again after an hour", func(l *leaseTest) { l.clock.Pass(time.Hour); l.clock.Reboot(); l.restart() }, false},
		{"the clock is set an hour ahead", func(l *leaseTest) { l.clock.Set(time.Hour) }, false},
		{"the clock is set three days ahead", func(l *leaseTest) { l.clock.Set(72 * time.Hour) }, false},
		{"the clock is set a year ahead", func(l *leaseTest) { l.clock.Set(365 * 24 * time.Hour) }, false},
		{"the clock is set a year back", func(l *leaseTest) { l.clock.Set(-365 * 24 * time.Hour) }, false},
		{"the clock is set an hour back", func(l *leaseTest) { l.clock.Set(-time.Hour) }, false},
		{"the machine starts again with its clock an hour behind", func(l *leaseTest) { l.clock.Set(-time.Hour); l.clock.Reboot() }, false},
		{"the server is stopped for an hour, and the clock is set back by it", func(l *leaseTest) { l.clock.Pass(time.Hour); l.clock.Set(-time.Hour) }, false},
		{"the machine goes on from a snapshot of an hour ago, and the database does not", func(l *leaseTest) { l.clock.Restore(time.Hour) }, false},
		{"the server is away for two days", func(l *leaseTest) { l.clock.Pass(48 * time.Hour) }, true},
		{"the client is gone", func(l *leaseTest) { l.up(stacks.MaxLease + beatEvery) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLeaseTest(t)
			u := l.start()
			l.up(3 * time.Minute)
			before := l.left(u)
			tc.what(l)
			if tc.lost {
				if err := l.renew(u); fault.KindOf(err) != fault.KindForbidden {
					t.Fatalf("the renewal of a lost lease: %v", err)
				}
				return
			}
			if n, err := l.service.ExpireLeases(t.Context()); n != 0 || err != nil {
				t.Fatalf("%d updates were ended (%v)", n, err)
			}
			for range 3 { // three servers notice
				l.beat()
			}
			if after := l.left(u); after < before-3*beatEvery || after > before+3*beatEvery {
				t.Errorf("the lease had %s left, and has %s now", before, after)
			}
			// A silent client still loses its lease.
			l.up(before + 3*beatEvery)
			if err := l.renew(u); fault.KindOf(err) != fault.KindForbidden {
				t.Errorf("the renewal of a lease that has ended since: %v", err)
			}
		})
	}
}

// TestRenewalNoticesTheAbsence checks that leases are extended if a renewal is the first write
// after the servers' absence.
func TestRenewalNoticesTheAbsence(t *testing.T) {
	l := newLeaseTest(t)
	u := l.start()
	l.clock.Pass(time.Hour)
	if err := l.renew(u); err != nil {
		t.Errorf("the renewal: %v", err)
	}
	if left := l.left(u); left != stacks.MaxLease {
		t.Errorf("the lease has %s left", left)
	}
}

// TestAbsenceRevivesNothing checks that an update that a newer update has replaced does not become
// active again.
func TestAbsenceRevivesNothing(t *testing.T) {
	l := newLeaseTest(t)
	old := l.start()
	l.up(stacks.MaxLease + beatEvery)
	u := l.start()
	l.clock.Pass(time.Hour)
	if err := l.renew(old); fault.KindOf(err) != fault.KindForbidden {
		t.Errorf("the renewal of the update that was replaced: %v", err)
	}
	if err := l.renew(u); err != nil {
		t.Errorf("the renewal of its successor: %v", err)
	}
	ended, err := l.service.FindUpdate(t.Context(), l.stack, old.ID)
	l.must(err)
	if stacks.Status(ended.Status) != stacks.Failed {
		t.Errorf("the update that was replaced is %s", ended.Status)
	}
}
