package forges

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/attempts"
	"workflowagent/internal/server/vcs"
)

// post sends the beginning of a delivery that announces size bytes, and returns the status of the
// response.
func post(t *testing.T, address, body string, size int) int {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, body)
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// serve serves a receiver, with limits that a test reaches.
func serve(t *testing.T, h *routes, of receiver) string {
	t.Helper()
	handle := h.deliveryHandler(of)
	s := httptest.NewServer(web.CutStalled(time.Minute, 1)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := handle(w, r); err != nil {
			status, _ := web.Classify(err)
			w.WriteHeader(status)
		}
	})))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func accepting() receiver {
	return receiver{
		limit: maxSmall, integration: func(*http.Request) string { return "i" }, expect: func(context.Context, string) error { return nil },
		accept: func(context.Context, string, vcs.Delivery) (dispatch.Outcome, error) { return dispatch.Outcome{}, nil },
	}
}

func newRoutes(p pace) *routes {
	return &routes{admission: newAdmission(), patient: p, failures: attempts.New(maxFailures), slow: attempts.New(maxSlow)}
}

// TestSlowBodies checks that a client that sends a body slowly does not keep the deliveries of others
// waiting.
func TestSlowBodies(t *testing.T) {
	address := serve(t, newRoutes(pace{50 * time.Millisecond, 64 << 10}), accepting())
	if status := post(t, address, "{", 100); status != http.StatusBadRequest {
		t.Fatalf("status %d", status)
	}
}

// TestPaceAfterFailures checks that slow and wrong deliveries make the server wait less for bodies, and
// do nothing else: an authentic delivery from the same address, as behind a proxy, is accepted.
func TestPaceAfterFailures(t *testing.T) {
	unverified := fault.New(fault.KindUnauthenticated, "unverified")
	slow := bodyError(os.ErrDeadlineExceeded)
	now := time.Unix(1_000_000_020, 0)
	for name, tt := range map[string]struct {
		fail              func(h *routes)
		attacked, another pace
	}{
		"no failures":     {func(*routes) {}, patient, patient},
		"wrong":           {func(h *routes) { repeat(maxFailures, func() { h.count("i", 0, unverified, now) }) }, strict, patient},
		"slow":            {func(h *routes) { repeat(2, func() { h.count("i", maxRead, slow, now) }) }, strict, patient},
		"slow, authentic": {func(h *routes) { repeat(2, func() { h.count("i", maxRead, nil, now) }) }, strict, patient},
		"slow, to many":   {func(h *routes) { repeat(10, func() { h.count(identity.NewID(), maxRead, slow, now) }) }, strict, strict},
	} {
		h := newRoutes(patient)
		tt.fail(h)
		if got := h.pace("i", now); got != tt.attacked {
			t.Errorf("%s: the pace is %v, want %v", name, got, tt.attacked)
		}
		if got := h.pace("another", now); got != tt.another {
			t.Errorf("%s: the pace of another integration is %v, want %v", name, got, tt.another)
		}
		if got := h.pace("i", now.Add(time.Minute)); got != patient {
			t.Errorf("%s: the pace in the next minute is %v", name, got)
		}
	}
}

func repeat(n int, do func()) {
	for range n {
		do()
	}
}

func TestFailuresOf(t *testing.T) {
	unknown := fault.New(fault.KindUnauthenticated, "unknown")
	for _, tt := range []struct {
		took        time.Duration
		err         error
		slow, wrong int
	}{
		{900 * time.Millisecond, nil, 0, 0},
		{9 * time.Second, nil, 9 * perSecond, 0},
		{0, unknown, 0, 1},
		{2 * time.Second, bodyError(os.ErrDeadlineExceeded), 2*perSecond + 1, 0},
		{0, fault.New(fault.KindUnavailable, "busy"), 0, 0},
	} {
		if slow, wrong := failuresOf(tt.took, tt.err); slow != tt.slow || wrong != tt.wrong {
			t.Errorf("%v, %v: %d and %d failures, want %d and %d", tt.took, tt.err, slow, wrong, tt.slow, tt.wrong)
		}
	}
}

// TestSteadyBodies checks that a body that arrives at the minimum rate is read after the time for its
// first part.
func TestSteadyBodies(t *testing.T) {
	b := &timely{Reader: strings.NewReader(strings.Repeat("x", 4*64<<10)), conn: http.NewResponseController(httptest.NewRecorder()), began: time.Now(), pace: patient}
	buffer := make([]byte, 64<<10)
	for want := patient.grace; want < maxRead; want += time.Second {
		if got := b.deadline().Sub(b.began); got != want {
			t.Errorf("after %d bytes: the deadline is %v, want %v", b.bytes, got, want)
		}
		if n, _ := b.Read(buffer); n == 0 {
			break
		}
	}
	if b.bytes = 100 << 20; b.deadline().Sub(b.began) != maxRead {
		t.Error("a large body has more time than forges wait")
	}
}

// TestUnknownIntegration checks that the body of a delivery to an unknown integration is not waited
// for.
func TestUnknownIntegration(t *testing.T) {
	of := accepting()
	of.expect = func(context.Context, string) error { return fault.New(fault.KindUnauthenticated, "unknown") }
	if status := post(t, serve(t, newRoutes(pace{time.Hour, 1}), of), "", 100); status != http.StatusUnauthorized {
		t.Errorf("status %d", status)
	}
}

func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAdmission()
		var taken []func()
		take := func(integration, address string) bool {
			release, err := p.acquire(t.Context(), integration, address)
			if err != nil {
				if fault.KindOf(err) != fault.KindUnavailable {
					t.Errorf("the error is %v", err)
				}
				return false
			}
			taken = append(taken, release)
			return true
		}
		for n := range forStrangers {
			if !take(fmt.Sprint("of an attacker ", n), fmt.Sprintf("192.0.2.%d", n)) {
				t.Fatal("a free slot was refused")
			}
		}
		if take("of an attacker", "192.0.2.100") {
			t.Error("strangers use all slots")
		}
		p.remember("198.51.100.1", time.Now())
		for range maxBodies - forStrangers {
			if !take("busy", "198.51.100.1") {
				t.Error("a known network gets no slot")
			}
		}
		taken[0]()
		if take("busy", "198.51.100.1") {
			t.Error("an integration uses more than its share")
		}
		if !take("quiet", "198.51.100.1") {
			t.Error("a busy integration keeps another one out")
		}
		if take("quiet", "198.51.100.1") {
			t.Error("there are more slots than allowed")
		}
		for _, release := range taken[1:] {
			release()
		}
		if len(p.shares) != 0 || len(p.all) != 0 || len(p.strangers) != 0 {
			t.Errorf("slots are in use: %d, %d, %v", len(p.all), len(p.strangers), p.shares)
		}
		time.Sleep(knownFor)
		if p.isKnown("198.51.100.1", time.Now()) {
			t.Error("a network remains known without an end")
		}
	})
}

// TestFloodOfStrangers sends many deliveries to one integration. They must not delay those from the network of the
// forge, to this integration or to another one.
func TestFloodOfStrangers(t *testing.T) {
	const forge = "198.51.100.1"
	synctest.Test(t, func(t *testing.T) {
		p := newAdmission()
		p.remember(forge, time.Now())
		var flood sync.WaitGroup
		for n := range 200 {
			flood.Go(func() {
				if release, err := p.acquire(t.Context(), "i", fmt.Sprintf("192.0.2.%d", n)); err == nil {
					time.Sleep(maxRead)
					release()
				}
			})
		}
		synctest.Wait()
		for _, integration := range []string{"i", "another"} {
			began := time.Now()
			release, err := p.acquire(t.Context(), integration, forge)
			if err != nil || time.Since(began) != 0 {
				t.Fatalf("a delivery of the forge to %s: %v after %v", integration, err, time.Since(began))
			}
			release()
		}
		if release, err := p.acquire(t.Context(), "another", "203.0.113.1"); err != nil {
			t.Errorf("the first delivery to another integration: %v", err)
		} else {
			release()
		}
		flood.Wait()
	})
}

// TestSlotBecomesFree checks that a delivery that waits gets the slot of another one.
func TestSlotBecomesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newAdmission()
		var first func()
		for range strangersEach {
			release, err := p.acquire(t.Context(), "i", "")
			if err != nil {
				t.Fatal(err)
			}
			first = release
		}
		got := make(chan error)
		go func() {
			_, err := p.acquire(t.Context(), "i", "")
			got <- err
		}()
		synctest.Wait()
		first()
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}
