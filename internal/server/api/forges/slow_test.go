package forges

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/vcs"
)

// TestSlowBodies checks that a client that sends a body slowly does not keep the deliveries of others
// waiting, and that its network is refused after some attempts.
func TestSlowBodies(t *testing.T) {
	h := &routes{bodies: make(chan struct{}, 1), maxRead: 50 * time.Millisecond}
	handle := h.receive(maxSmall, func(*http.Request, vcs.Delivery) (dispatch.Outcome, error) { return dispatch.Outcome{}, nil })
	s := httptest.NewServer(web.CutStalled(time.Minute, 1)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := handle(w, r); err != nil {
			status, _ := web.Classify(err)
			w.WriteHeader(status)
		}
	})))
	defer s.Close()
	for n := range maxFailures/slow + 1 {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		size, want := 100, http.StatusBadRequest
		if n == maxFailures/slow {
			size, want = 1, http.StatusTooManyRequests
		}
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", size)
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("attempt %d: %v", n, err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("attempt %d: status %d, want %d", n, res.StatusCode, want)
		}
		conn.Close()
	}
}
