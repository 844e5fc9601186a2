package identity

import (
	"context"
	"sync"
	"time"
)

// machineAge is the time for which the principal of a runner's token remains valid. Such a token
// cannot be revoked: it expires a day after its job's end, and each call also checks the job. The
// principal of a pool's token remains valid for as long, but only for calls that check the token
// again.
const machineAge = 20 * time.Second

// machines remembers the principals of runners, because each runner delivers log several times per
// second, and of pools, whose agents all poll with the same token.
type machines struct {
	mu     sync.Mutex
	byHash map[string]knownMachine
	swept  time.Time
}

type knownMachine struct {
	*Principal
	until time.Time
}

// AuthenticatePoll is like [Service.Authenticate], but for the token of a pool, too, the answer can be up
// to machineAge old. The caller must check the token again with [CheckPoll]. Requests share the
// principal, so the caller must not change it.
func (s *Service) AuthenticatePoll(ctx context.Context, text string) (*Principal, error) {
	if p, ok := s.machines.get(HashToken(text)); ok {
		return p, nil
	}
	return s.authenticate(ctx, text)
}

func (m *machines) get(hash []byte) (*Principal, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.byHash[string(hash)]
	return known.Principal, ok && time.Now().Before(known.until)
}

// add remembers the principal of a token that was read at a time.
func (m *machines) add(hash []byte, p *Principal, read time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.swept) > machineAge {
		m.swept = time.Now()
		for h, known := range m.byHash {
			if m.swept.After(known.until) {
				delete(m.byHash, h)
			}
		}
	}
	if m.byHash == nil {
		m.byHash = map[string]knownMachine{}
	}
	m.byHash[string(hash)] = knownMachine{p, read.Add(machineAge)}
}
