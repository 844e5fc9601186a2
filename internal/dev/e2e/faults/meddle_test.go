package faults

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

func is(calls ...call) func(request) bool {
	return func(q request) bool { return slices.Contains(calls, q.call) }
}

func beat(phase string) func(request) bool {
	return func(q request) bool { return q.call == callHeartbeat && q.phase == phase }
}

func runnerLog(q request) bool { return q.call == callLog && q.step > 0 && len(q.body) > 0 }

// pulumiEnded matches the report that the pulumi step has ended, which precedes the result.
func pulumiEnded(q request) bool {
	return q.call == callStep && q.step == pulumiStep && q.status != "running"
}

// Holding a call tells the test that the job has reached a phase, and keeps it there.

// hold keeps a call from the server until the rule is lifted, and then passes it on if the client
// still waits.
func hold(p *faultProxy, w http.ResponseWriter, r *http.Request, q request, rl *rule) {
	select {
	case <-rl.lifted:
		p.pass(w, r, q)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// holdAndLose keeps a call from the server until the rule is lifted, and then closes the connection.
func holdAndLose(_ *faultProxy, _ http.ResponseWriter, r *http.Request, _ request, rl *rule) {
	select {
	case <-rl.lifted:
	case <-r.Context().Done():
	}
	panic(http.ErrAbortHandler)
}

// holdAnswer lets the server process the call and holds the response; when the rule is lifted it
// closes the connection. See [faultProxy.afterAnswer].
func holdAnswer(p *faultProxy, _ http.ResponseWriter, r *http.Request, q request, rl *rule) {
	p.whole(r, q)
	rl.meet()
	select {
	case <-rl.lifted:
	case <-r.Context().Done():
	}
	panic(http.ErrAbortHandler)
}

// dropAnswer lets the server process the call and closes the connection.
func dropAnswer(p *faultProxy, _ http.ResponseWriter, r *http.Request, q request, _ *rule) {
	p.whole(r, q)
	panic(http.ErrAbortHandler)
}

// dropRequest closes the connection before the server receives the call.
func dropRequest(*faultProxy, http.ResponseWriter, *http.Request, request, *rule) {
	panic(http.ErrAbortHandler)
}

// delay passes the call on late.
func delay(d time.Duration) meddle {
	return func(p *faultProxy, w http.ResponseWriter, r *http.Request, q request, _ *rule) {
		select {
		case <-time.After(d):
			p.pass(w, r, q)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// twice sends the call twice at once.
func twice(p *faultProxy, w http.ResponseWriter, r *http.Request, q request, _ *rule) {
	var copies sync.WaitGroup
	copies.Go(func() {
		a, err := p.ask(r, bytes.NewReader(q.body), int64(len(q.body)))
		p.seen(r, q, a, err)
	})
	defer copies.Wait()
	p.pass(w, r, q)
}

// tearRequest sends the server half of the body and closes both connections.
func tearRequest(p *faultProxy, _ http.ResponseWriter, r *http.Request, q request, _ *rule) {
	half := io.MultiReader(bytes.NewReader(q.body[:len(q.body)/2]), torn{})
	_, _ = p.ask(r, half, int64(len(q.body))) // fails intentionally
	panic(http.ErrAbortHandler)
}

type torn struct{}

func (torn) Read([]byte) (int, error) { return 0, errTorn }

// tearAnswer sends the client half of the response's body and closes its connection.
func tearAnswer(p *faultProxy, w http.ResponseWriter, r *http.Request, q request, _ *rule) {
	a := p.whole(r, q)
	a.head(w, len(a.body))
	_, _ = w.Write(a.body[:len(a.body)/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// truncateAnswer sends the client half of the response as if it were complete.
func truncateAnswer(p *faultProxy, w http.ResponseWriter, r *http.Request, q request, _ *rule) {
	a := p.whole(r, q)
	half := a.body[:len(a.body)/2]
	a.head(w, len(half))
	_, _ = w.Write(half)
}

// refuse responds in place of the server; after, if not 0, is the Retry-After in seconds.
func refuse(code, after int) meddle {
	return func(_ *faultProxy, w http.ResponseWriter, _ *http.Request, _ request, _ *rule) {
		if after > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(after))
		}
		http.Error(w, "out of order", code)
	}
}

// trickle passes a call on slowly: the body in small pieces, the response a byte at a time.
func trickle(p *faultProxy, w http.ResponseWriter, r *http.Request, q request, _ *rule) {
	a, err := p.ask(r, &slowly{data: q.body, piece: max(len(q.body)/20, 1), ctx: r}, int64(len(q.body)))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	a.head(w, len(a.body))
	answer := &slowly{data: a.body, piece: max(len(a.body)/20, 1), ctx: r}
	buffer := make([]byte, 64<<10)
	for {
		n, err := answer.Read(buffer)
		if _, werr := w.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
	}
}

type slowly struct {
	data  []byte
	piece int
	ctx   *http.Request
}

func (s *slowly) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	select {
	case <-time.After(50 * time.Millisecond):
	case <-s.ctx.Context().Done():
		return 0, errTorn
	}
	n := copy(p, s.data[:min(s.piece, len(s.data))])
	s.data = s.data[n:]
	return n, nil
}
