package pools

import (
	"context"
	"fmt"
	"slices"
	"time"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const (
	// renewEvery is the interval at which signs of life of known sessions are written. They reach
	// other servers and lists with this delay.
	renewEvery = time.Second
	// renewPatience is the time after which a sign of life that could not be written makes the
	// agent's next poll write it, and fail with the database's error.
	renewPatience = 10 * time.Second
	// silentEvery is the interval at which open pages learn that agents have gone offline by silence.
	silentEvery = 5 * time.Second
	// perRenewal is the maximum number of agents that one transaction renews.
	perRenewal = 200
)

// Run writes the signs of life of known sessions, until ctx is canceled.
func (s *Service) Run(ctx context.Context) {
	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	silent := time.NewTicker(silentEvery)
	defer silent.Stop()
	var checked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-silent.C:
			var err error
			if checked, err = s.noteSilent(ctx, checked); err != nil && ctx.Err() == nil {
				s.log.WithError(err).Warn("checking for silent agents failed; retrying")
			}
		case <-ticker.C:
			if err := s.renew(ctx); err != nil && ctx.Err() == nil {
				s.log.WithError(err).Warn("recording the presence of agents failed; retrying")
			}
		}
	}
}

// noteSilent notifies of the pools whose agents have gone offline by silence since the last check.
func (s *Service) noteSilent(ctx context.Context, checked time.Time) (now time.Time, err error) {
	var list []store.PoolRef
	err = s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if now = tx.Now(); checked.IsZero() {
			return nil
		}
		list, err = tx.SilentPools(checked, now, Silence)
		return err
	})
	if err != nil {
		return checked, fmt.Errorf("listing silent agents: %w", err)
	}
	if len(list) == 0 {
		return now, nil
	}
	err = s.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
		for _, pool := range list {
			changed(tx, pool.OrgID, pool.ID)
		}
		return nil
	})
	if err != nil {
		return checked, fmt.Errorf("notifying of silent agents: %w", err)
	}
	return now, nil
}

// renewal is a sign of life to write.
type renewal struct {
	session
	sign     // by this machine's clock
	every    time.Duration
	rowUntil time.Time // LiveUntil of the row; zero if another session has the row
}

// renew writes the signs of life that are due.
func (s *Service) renew(ctx context.Context) error {
	// A session that ends meanwhile must know which row was written last.
	s.presence.renewing.Lock()
	defer s.presence.renewing.Unlock()
	for {
		due := s.presence.due(perRenewal)
		if len(due) == 0 {
			return nil
		}
		err := s.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
			now, err := tx.LeaseTime()
			if err != nil {
				return err
			}
			here := time.Now()
			rows := make([]store.PoolAgent, len(due))
			for i, r := range due {
				rows[i] = store.PoolAgent{
					PoolID: r.pool, AgentID: r.agent, SessionID: r.id, Every: r.every,
					LiveUntil: now.Add(r.until.Sub(here)), LastSeenAt: now.Add(r.at.Sub(here)),
				}
			}
			renewed, err := tx.RenewAgents(rows)
			if err != nil {
				return err
			}
			for i, row := range rows {
				if due[i].rowUntil = (time.Time{}); slices.Contains(renewed, row) {
					due[i].rowUntil = row.LiveUntil
				}
			}
			return nil
		})
		if err == nil {
			err = s.db.Write(ctx, scope.Free, func(tx *store.Tx) error { return tx.SeePools(tx.Now(), poolsOf(due)...) })
		}
		if err != nil {
			return fmt.Errorf("renewing the presence of %d agents: %w", len(due), err)
		}
		s.presence.renewed(due)
	}
}

// poolsOf returns the pools of agents, in order.
func poolsOf(list []renewal) (ids []string) {
	for _, r := range list {
		ids = append(ids, r.pool)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// due returns up to limit signs of life to write.
func (p *presence) due(limit int) []renewal {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []renewal
	for key, sign := range p.unwritten {
		if len(out) == limit {
			break
		}
		a := p.agents[key]
		if a == nil {
			delete(p.unwritten, key)
			continue
		}
		out = append(out, renewal{session: a.session(), sign: sign, every: max(a.Interval, a.Hold)})
	}
	return out
}

// renewed records that signs of life were written.
func (p *presence) renewed(list []renewal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range list {
		a := p.agents[r.agentKey]
		if p.unwritten[r.agentKey] == r.sign {
			delete(p.unwritten, r.agentKey)
		}
		if a == nil || a.SessionID != r.id {
			continue
		}
		a.rowUntil = r.rowUntil
		if a.written = r.at; r.rowUntil.IsZero() {
			a.written = time.Time{} // the next poll finds out why the row is not the session's
		}
	}
}
