package identity

import (
	"sync"
	"time"
)

// runnerAge is the time for which the principal of a runner's token remains valid. Nobody can revoke
// such a token: it expires a day after its job's end, and each call also checks the job.
const runnerAge = 20 * time.Second

// runners remembers the principals of runners, because each runner delivers log several times per
// second.
type runners struct {
	mu     sync.Mutex
	byHash map[string]knownRunner
	swept  time.Time
}

type knownRunner struct {
	Principal
	until time.Time
}

func (r *runners) get(hash []byte) (Principal, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.byHash[string(hash)]
	return known.Principal, ok && time.Now().Before(known.until)
}

// add remembers the principal of a token that was read at a time.
func (r *runners) add(hash []byte, p Principal, read time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.swept) > runnerAge {
		r.swept = time.Now()
		for h, known := range r.byHash {
			if r.swept.After(known.until) {
				delete(r.byHash, h)
			}
		}
	}
	if r.byHash == nil {
		r.byHash = map[string]knownRunner{}
	}
	r.byHash[string(hash)] = knownRunner{p, read.Add(runnerAge)}
}
