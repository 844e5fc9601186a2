package pools

import (
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/server/fault"
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
			_, fresh, err := s.presence.look(key, g, time.Now())
			return fresh, fault.KindOf(err) == fault.KindConflict
		}
		if fresh, _ := look(mine); !fresh {
			t.Error("a poll right after the last write causes another write")
		}
		if _, conflict := look(twin); !conflict {
			t.Error("a second session was accepted during a held poll")
		}
		// The poll has received its response. The next poll is due immediately.
		s.Answered(mine)
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
