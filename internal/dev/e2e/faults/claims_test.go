package faults

import "net/http"

// claimSpoiler spoils responses that hand out a job. No rule can match such a call, because only
// the response to a held poll shows whether it hands out a job.
type claimSpoiler struct {
	which func(nth int) bool // of all claims, counted from 1
	spoil func(w http.ResponseWriter, a answer)

	seen, spoilt int
}

func (p *faultProxy) spoilClaims(which func(nth int) bool, spoil func(w http.ResponseWriter, a answer)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims = &claimSpoiler{which: which, spoil: spoil}
}

func (p *faultProxy) spoiltClaims() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claims.spoilt
}

func (p *faultProxy) spoilt(w http.ResponseWriter, a answer) bool {
	p.mu.Lock()
	c := p.claims
	if c != nil {
		c.seen++
	}
	if c == nil || !c.which(c.seen) {
		p.mu.Unlock()
		return false
	}
	c.spoilt++
	p.mu.Unlock()
	c.spoil(w, a)
	return true
}

func lose(http.ResponseWriter, answer) { panic(http.ErrAbortHandler) }
