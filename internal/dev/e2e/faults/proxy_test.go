package faults

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
)

// faultProxy is a proxy between the server and its agents and runners. It recognises each call by
// path and body and applies its rules, independently of the product.
type faultProxy struct {
	*endpoint
	URL string

	target string
	client *http.Transport
	seen   func(*http.Request, request, answer, error) // of each call to the server, or nil

	mu     sync.Mutex
	rules  []*rule
	claims *claimSpoiler
	tokens map[string]bool // of jobs
	job    string          // path of the newest job's calls
}

// rule changes matching calls until it is lifted.
type rule struct {
	proxy  *faultProxy
	match  func(request) bool
	meddle meddle
	left   int  // remaining calls; negative: unlimited
	late   bool // the meddle itself counts the hit, once the server has responded
	hits   int
	lifted chan struct{}
}

type meddle func(p *faultProxy, w http.ResponseWriter, r *http.Request, q request, rl *rule)

func startProxy(t *testing.T, host, target string) *faultProxy {
	t.Helper()
	p := &faultProxy{
		target: target, client: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16}, tokens: map[string]bool{},
	}
	p.endpoint = openEndpoint(t, host, p)
	p.URL = p.url()
	t.Cleanup(func() {
		p.liftAll()
		p.cut()
		p.client.CloseIdleConnections()
	})
	return p
}

// on adds a rule for the next n matching calls, or all with a negative n.
func (p *faultProxy) on(match func(request) bool, n int, m meddle) *rule {
	return p.add(&rule{match: match, meddle: m, left: n})
}

// afterAnswer adds a rule for the next n matching calls: the server processes them, and their
// responses are lost. A call counts once the server has responded.
func (p *faultProxy) afterAnswer(match func(request) bool, n int) *rule {
	return p.add(&rule{match: match, meddle: holdAnswer, left: n, late: true})
}

func (p *faultProxy) add(rl *rule) *rule {
	rl.proxy, rl.lifted = p, make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, rl)
	return rl
}

func (rl *rule) meet() {
	rl.proxy.mu.Lock()
	defer rl.proxy.mu.Unlock()
	rl.hits++
}

func (rl *rule) await(t *testing.T) {
	t.Helper()
	rl.awaitHits(t, 1)
}

func (rl *rule) awaitHits(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := harness.Until(ctx, func() (bool, error) { return rl.count() >= n, nil })
	if err != nil {
		t.Fatalf("%d of %d expected calls arrived: %v", rl.count(), n, err)
	}
}

func (rl *rule) count() int {
	rl.proxy.mu.Lock()
	defer rl.proxy.mu.Unlock()
	return rl.hits
}

// lift ends the rule and releases the calls that it holds.
func (rl *rule) lift() {
	p := rl.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.rules, rl); i >= 0 {
		p.rules = slices.Delete(p.rules, i, i+1)
	}
	select {
	case <-rl.lifted:
	default:
		close(rl.lifted)
	}
}

func (p *faultProxy) liftAll() {
	p.mu.Lock()
	rules := slices.Clone(p.rules)
	p.mu.Unlock()
	for _, rl := range rules {
		rl.lift()
	}
}

// ServeHTTP passes a call on, or applies the first matching rule.
func (p *faultProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	q := recognise(r, body)
	p.learn(r, q)
	if rl := p.rule(q); rl != nil {
		if !rl.late {
			rl.meet()
		}
		rl.meddle(p, w, r, q, rl)
		return
	}
	p.pass(w, r, q)
}

func (p *faultProxy) learn(r *http.Request, q request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "token ")
	if !ok || q.call == callPoll || q.call == callStatus {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens[token] = true
	if q.call == callDefinition {
		p.job = r.URL.Path
	}
}

func (p *faultProxy) jobTokens() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.tokens))
}

func (p *faultProxy) rule(q request) *rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, rl := range p.rules {
		if rl.left == 0 || !rl.match(q) {
			continue
		}
		rl.left--
		return rl
	}
	return nil
}

type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (p *faultProxy) ask(r *http.Request, body io.Reader, length int64) (answer, error) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, p.target+r.URL.RequestURI(), body)
	if err != nil {
		return answer{}, err
	}
	out.Header = r.Header.Clone()
	out.ContentLength = length
	resp, err := p.client.RoundTrip(out)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	return answer{resp.StatusCode, resp.Header, data}, nil
}

// whole is ask with the call's own body; if the server does not answer, it closes the client's
// connection.
func (p *faultProxy) whole(r *http.Request, q request) answer {
	a, err := p.ask(r, bytes.NewReader(q.body), int64(len(q.body)))
	if p.seen != nil {
		p.seen(r, q, a, err)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return a
}

func (p *faultProxy) pass(w http.ResponseWriter, r *http.Request, q request) {
	a := p.whole(r, q)
	if q.call == callPoll && a.code == http.StatusOK && p.spoilt(w, a) {
		return
	}
	a.head(w, len(a.body))
	_, _ = w.Write(a.body) // the client may have disconnected
}

// head writes the response's status and header, for a body of n bytes.
func (a answer) head(w http.ResponseWriter, n int) {
	maps.Copy(w.Header(), a.header)
	if a.code != http.StatusNoContent {
		w.Header().Set("Content-Length", strconv.Itoa(n))
	}
	w.WriteHeader(a.code)
}

var errTorn = errors.New("the connection is cut here")
