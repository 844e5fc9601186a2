package pools

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const (
	// Silence is the minimum time for which an agent counts as online after a sign of life.
	Silence = 35 * time.Second
	// forgetAfter is the time for which a silent agent remains in lists.
	forgetAfter = time.Hour
	// rememberFor is the time for which a silent agent remains in memory. It is longer than any session.
	rememberFor = 2 * time.Minute
	// sessionGrace is the time for which a session keeps its agent id after the response to its
	// last poll. Normally, the next poll follows immediately.
	sessionGrace = 5 * time.Second
	// maxIdleGrace bounds sessionGrace for agents that announce pauses.
	maxIdleGrace = 30 * time.Second
	// writeEvery is the minimum interval between writes of one agent's presence.
	writeEvery = 15 * time.Second
)

// Online reports whether an agent is online: its session has not ended, and it was seen recently.
func Online(a store.PoolAgent, now time.Time) bool {
	return !a.LiveUntil.IsZero() && now.Sub(a.LastSeenAt) <= max(Silence, 2*a.Every)
}

// Sighting is an agent's description of itself in a poll.
type Sighting struct {
	OrgID                      string
	PoolID, AgentID, SessionID string
	Hostname, IP, PID          string
	Platform, Version          string
	Slots                      int64         // number of jobs that the agent can run at once; 0 while it cannot start jobs
	Interval                   time.Duration // longest announced pause between polls; 0 for none
	Hold                       time.Duration // time for which the server holds this poll
}

type agentKey struct{ pool, agent string }

type sighted struct {
	Sighting
	liveUntil time.Time
	written   time.Time
	rowUntil  time.Time // LiveUntil of the row that this process wrote last
}

// session identifies a process of an agent.
type session struct {
	agentKey
	id string
}

func (g *Sighting) session() session { return session{agentKey{g.PoolID, g.AgentID}, g.SessionID} }

// sign is the sign of life of an agent that has begun a poll.
type sign struct {
	at    time.Time
	until time.Time // time until which the agent's session is alive
}

// until returns the time until which a session is alive whose poll begins, or has got its response.
func (g *Sighting) until(now time.Time, begins bool) time.Time {
	idle := sessionGrace
	if g.Hold == 0 {
		idle += min(g.Interval, maxIdleGrace)
	}
	if begins {
		idle += g.Hold
	}
	return now.Add(idle)
}

// presence caches signs of life in memory, which avoids most database writes.
type presence struct {
	mu     sync.Mutex
	agents map[agentKey]*sighted
	polls  map[session]int // open polls; a new poll can begin before the end of the last one is noticed
	// unwritten holds the signs of life that [Service.Run] will write.
	unwritten map[agentKey]sign

	renewing sync.Mutex // held while signs of life are written
}

func (p *presence) begin(g *Sighting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.polls[g.session()]++
}

// end ends a poll. It reports whether the session has no other polls.
func (p *presence) end(g *Sighting) (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := g.session()
	if p.polls[key]--; p.polls[key] > 0 {
		return false
	}
	delete(p.polls, key)
	return true
}

// Seen records the start of an agent's poll. If it returns nil, the caller must call
// [Service.Answered] or [Service.Gone] when the poll ends. Seen returns a conflict while another
// session with the same agent id is alive, because two agents must not share a state directory. It
// returns a forbidden error if the pool was deleted.
func (s *Service) Seen(ctx context.Context, g *Sighting) error {
	s.presence.begin(g)
	err := s.seen(ctx, g)
	if err != nil {
		s.presence.end(g)
	}
	return err
}

func (s *Service) seen(ctx context.Context, g *Sighting) error {
	here := time.Now() // time for the in-memory presence
	key := agentKey{g.PoolID, g.AgentID}
	known, fresh, err := s.presence.look(key, g, here)
	if err != nil || fresh {
		return err
	}
	hasRoom := known == ""
	if hasRoom {
		if err := s.makeRoom(ctx, g); err != nil {
			return err
		}
	}
	row := store.PoolAgent{
		PoolID: g.PoolID, AgentID: g.AgentID, SessionID: g.SessionID,
		Hostname: g.Hostname, IP: g.IP, PID: g.PID, Platform: g.Platform, Version: g.Version,
		Slots: g.Slots, Every: max(g.Interval, g.Hold),
	}
	write := func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		row.LiveUntil, row.LastSeenAt = g.until(now, true), now
		old, err := tx.Agent(g.PoolID, g.AgentID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err != nil && !hasRoom {
			return errForgotten
		}
		// The in-memory presence can already show that a session has ended although the row does
		// not.
		other := err == nil && old.SessionID != g.SessionID && old.SessionID != known
		if other && now.Before(old.LiveUntil) {
			return errSession(old.Hostname, old.PID, old.LiveUntil)
		}
		if err != nil || !Online(old, now) || old.Slots != row.Slots || old.Version != row.Version || old.Hostname != row.Hostname {
			changed(tx, g.OrgID, g.PoolID)
		}
		return tx.SaveAgent(row)
	}
	owner := scope.Agent(g.OrgID, g.AgentID)
	if err = s.db.Write(ctx, owner, write); errors.Is(err, errForgotten) {
		if err := s.makeRoom(ctx, g); err != nil {
			return err
		}
		hasRoom = true
		err = s.db.Write(ctx, owner, write)
	}
	if errors.Is(err, store.ErrNotFound) {
		return fault.Forbidden("the agent pool of this token was deleted")
	}
	if err != nil {
		return fmt.Errorf("recording the presence of an agent: %w", err)
	}
	s.presence.mu.Lock()
	defer s.presence.mu.Unlock()
	s.presence.agents[key] = &sighted{Sighting: *g, liveUntil: g.until(here, true), written: here, rowUntil: row.LiveUntil}
	delete(s.presence.unwritten, key)
	return nil
}

// errSession says that a session is alive. Its end is a time and not a duration, so that an agent that waits for it logs
// the text once.
func errSession(hostname, pid string, until time.Time) error {
	return fault.Conflict("another process with this agent id is polling (host %q, pid %s); two agents must not share a state directory; if that process has ended, its session ends at %s UTC",
		hostname, pid, until.UTC().Format(time.TimeOnly))
}

// look returns the last session in memory, and reports whether the poll need not write its row,
// because the row is current or [Service.Run] will write it. It returns a conflict if another session
// is alive.
func (p *presence) look(key agentKey, g *Sighting, now time.Time) (known string, fresh bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.agents[key]
	if old == nil {
		return "", false, nil
	}
	if old.SessionID != g.SessionID {
		if now.Before(old.liveUntil) {
			return "", false, errSession(old.Hostname, old.PID, old.liveUntil)
		}
		return old.SessionID, false, nil
	}
	same := old.Sighting
	same.Hold = g.Hold
	unwritten, waiting := p.unwritten[key]
	if same != *g || old.written.IsZero() || waiting && now.Sub(unwritten.at) > renewPatience {
		return old.SessionID, false, nil
	}
	if waiting || now.Sub(old.written) >= writeEvery {
		// Another session may have begun on another server when the row was no longer alive.
		if !now.Before(old.until(old.written, true)) {
			return old.SessionID, false, nil
		}
	}
	if !waiting && now.Sub(old.written) >= writeEvery {
		old.Hold = g.Hold
		p.unwritten[key] = sign{now, g.until(now, true)}
	}
	if until := now.Add(g.Hold + sessionGrace); until.After(old.liveUntil) {
		old.liveUntil = until
	}
	return old.SessionID, true, nil
}

// Answered records that the server responded to a session's poll.
func (s *Service) Answered(g *Sighting) {
	s.presence.end(g)
	s.presence.mu.Lock()
	defer s.presence.mu.Unlock()
	a := s.presence.agents[agentKey{g.PoolID, g.AgentID}]
	if a == nil || a.SessionID != g.SessionID {
		return
	}
	a.liveUntil = g.until(time.Now(), false)
}

// Gone ends the session of a poll whose connection was lost or whose token has become invalid. The
// agent is then offline, and a restarted agent need not wait until its previous session expires.
func (s *Service) Gone(ctx context.Context, g *Sighting) {
	s.presence.renewing.Lock()
	until, ended := s.presence.leave(g)
	s.presence.renewing.Unlock()
	if !ended {
		return
	}
	err := s.db.Write(ctx, scope.Agent(g.OrgID, g.AgentID), func(tx *store.Tx) error {
		// A later poll, possibly on another server, has written a different time.
		ended, err := tx.EndSession(store.PoolAgent{PoolID: g.PoolID, AgentID: g.AgentID, SessionID: g.SessionID, LiveUntil: until})
		if ended {
			changed(tx, g.OrgID, g.PoolID)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		s.log.WithError(err).WithField("pool", g.PoolID).Warn("recording the end of an agent session failed; a restarted agent must wait until the session expires")
	}
}

// leave ends a poll. If it was the session's last poll, leave ends the session and returns the
// LiveUntil time of the session's row.
func (p *presence) leave(g *Sighting) (until time.Time, ended bool) {
	last := p.end(g)
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.agents[agentKey{g.PoolID, g.AgentID}]
	if !last || p.polls[g.session()] > 0 || a == nil || a.SessionID != g.SessionID {
		return time.Time{}, false
	}
	a.liveUntil, a.written = time.Time{}, time.Time{}
	delete(p.unwritten, a.session().agentKey)
	return a.rowUntil, true
}

// Forget removes agents that have been silent for an hour.
func (s *Service) Forget(ctx context.Context) error {
	before := time.Now().Add(-rememberFor)
	s.presence.mu.Lock()
	for key, a := range s.presence.agents {
		if a.written.Before(before) && a.liveUntil.Before(before) {
			delete(s.presence.agents, key)
			delete(s.presence.unwritten, key)
		}
	}
	s.presence.mu.Unlock()
	err := s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) {
		return tx.ForgetAgents(tx.Now().Add(-forgetAfter), limit)
	})
	return fault.While(err, "removing silent agents")
}
