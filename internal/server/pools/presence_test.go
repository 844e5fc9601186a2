package pools

import (
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

func TestOnline(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		silent, every time.Duration
		want          bool
	}{
		{34 * time.Second, 0, true},
		{36 * time.Second, 0, false},
		{36 * time.Second, 10 * time.Second, false},
		{119 * time.Second, time.Minute, true},
		{121 * time.Second, time.Minute, false},
	} {
		a := store.PoolAgent{LiveUntil: now, LastSeenAt: now.Add(-tc.silent), Every: tc.every}
		if got := Online(a, now); got != tc.want {
			t.Errorf("silent for %s, announced %s: online %t", tc.silent, tc.every, got)
		}
	}
}

func TestSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil, nil)
		mine := Sighting{PoolID: "p", AgentID: "a", SessionID: "mine", Hold: 25 * time.Second}
		twin := mine
		twin.SessionID = "twin"
		key := agentKey{"p", "a"}
		s.presence.agents[key] = &sighted{Sighting: mine, liveUntil: time.Now().Add(mine.Hold + sessionGrace), written: time.Now()}
		look := func(g Sighting) (fresh, conflict bool) {
			_, fresh, err := s.presence.look(key, &g, time.Now())
			return fresh, fault.KindOf(err) == fault.KindConflict
		}
		if fresh, _ := look(mine); !fresh {
			t.Error("a poll right after the last write causes another write")
		}
		if _, conflict := look(twin); !conflict {
			t.Error("a second session was accepted during a held poll")
		}
		// The poll has received its response. The next poll is due immediately.
		s.Answered(&mine)
		time.Sleep(sessionGrace - time.Millisecond)
		if _, conflict := look(twin); !conflict {
			t.Error("a second session was accepted between two polls")
		}
		time.Sleep(2 * time.Millisecond)
		if _, conflict := look(twin); conflict {
			t.Error("an agent that stopped polling keeps its id")
		}
		time.Sleep(writeEvery)
		s.presence.agents[key].written = time.Now()
		time.Sleep(writeEvery)
		if fresh, _ := look(mine); !fresh || len(s.presence.due(1)) != 1 {
			t.Error("presence is not written often enough, or by the poll itself")
		}
		time.Sleep(renewPatience + time.Millisecond)
		if fresh, _ := look(mine); fresh {
			t.Error("a poll does not notice that its presence cannot be written")
		}
		moved := mine
		moved.Version = "v2"
		s.presence.agents[key].written = time.Now()
		if fresh, _ := look(moved); fresh {
			t.Error("a new version of the agent is not written")
		}
	})
}

// TestPresenceIsNotified checks that open pages learn when an agent connects, disconnects, and goes
// offline by silence.
func TestPresenceIsNotified(t *testing.T) {
	var clock storetest.Clock
	db := storetest.SQLiteAt(t, &clock)
	ids := identity.New(db, storetest.Log())
	var token string
	must(t, ids.Bootstrap(t.Context(), "acme", func(text string) error { token = text; return nil }))
	user, err := ids.Authenticate(t.Context(), token)
	must(t, err)
	org, err := ids.Organization(t.Context(), user, "acme")
	must(t, err)
	s := New(db, storetest.Log())
	made, err := s.Create(t.Context(), user, org, "p", "")
	must(t, err)
	notes := make(chan string, 10)
	defer db.Subscribe(Topic, func(payload string) { notes <- payload })()
	expect := func(what string) {
		t.Helper()
		select {
		case got := <-notes:
			if want := About(org.ID, made.Pool.ID); got != want {
				t.Errorf("%s: the notification is %q, want %q", what, got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: no notification", what)
		}
	}
	g := &Sighting{OrgID: org.ID, PoolID: made.Pool.ID, AgentID: "a", SessionID: "one", Hostname: "h"}
	must(t, s.Seen(t.Context(), g))
	expect("connecting")
	s.Gone(t.Context(), g)
	expect("disconnecting")
	g.SessionID = "two"
	must(t, s.Seen(t.Context(), g))
	expect("connecting again")
	checked, err := s.noteSilent(t.Context(), clock.Now())
	must(t, err)
	if len(notes) > 0 {
		t.Errorf("an agent that is online was reported: %q", <-notes)
	}
	clock.Pass(2 * Silence)
	checked, err = s.noteSilent(t.Context(), checked)
	must(t, err)
	expect("silence")
	_, err = s.noteSilent(t.Context(), checked)
	must(t, err)
	if len(notes) > 0 {
		t.Errorf("silence was reported twice: %q", <-notes)
	}
	summary, err := s.Summary(t.Context(), user, org.ID, made.Pool.ID)
	must(t, err)
	if summary.Agents != 1 || summary.Online != 0 || !summary.Default {
		t.Errorf("the summary is %+v, want one agent, none online, in the default pool", summary)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
