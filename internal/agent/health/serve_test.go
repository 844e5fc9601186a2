package health

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
)

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) await(t *testing.T, text string, served <-chan struct{}) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(l.String(), text); {
		if time.Now().After(deadline) {
			t.Fatalf("%q was not logged in 20 s", text)
		}
		select {
		case <-served:
			t.Fatalf("the server gave up before it logged %q", text)
		case <-time.After(time.Millisecond):
		}
	}
}

func newLog() (*logrus.Entry, *logBuffer) {
	logger, out := logrus.New(), &logBuffer{}
	logger.SetOutput(out)
	logger.SetLevel(logrus.DebugLevel)
	return logrus.NewEntry(logger), out
}

func start(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

func wait(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s did not happen in 20 s", what)
	}
}

func TestServeIsOff(t *testing.T) {
	for _, addr := range []string{"", "127.0.0.1:0", ":0"} {
		log, _ := newLog()
		wait(t, start(func() { Serve(t.Context(), addr, nil, log) }), "the return with addr "+addr)
	}
}

func TestServeEndsGracefully(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	entered, release := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		_, _ = io.WriteString(w, "done")
	})
	log, _ := newLog()
	served := start(func() { serveOn(ctx, listener, "", handler, log) })

	var answer []byte
	var getErr error
	got := start(func() {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+"/healthz", nil)
		if err != nil {
			getErr = err
			return
		}
		response, err := (&http.Client{Timeout: 20 * time.Second}).Do(request)
		if err != nil {
			getErr = err
			return
		}
		defer func() { _ = response.Body.Close() }()
		answer, getErr = io.ReadAll(response.Body)
	})
	wait(t, entered, "the request")
	cancel()
	select {
	case <-served:
		t.Error("the server ended before its open request")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	wait(t, got, "the answer")
	wait(t, served, "the end of the server")
	if getErr != nil || string(answer) != "done" {
		t.Errorf("got %q, %v", answer, getErr)
	}
}

func TestTakenPortIsAWarning(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	addr := taken.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	log, out := newLog()
	served := start(func() { Serve(ctx, addr, http.NotFoundHandler(), log) })
	out.await(t, "level=warning", served)
	if text := out.String(); !strings.Contains(text, addr) || !strings.Contains(text, "http_server_port") {
		t.Errorf("the warning does not help: %s", text)
	}
	cancel()
	wait(t, served, "the return")
}

func TestListenTriesAgain(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := taken.Addr().String()
	synctest.Test(t, func(t *testing.T) {
		log, out := newLog()
		var listener net.Listener
		begin := time.Now()
		listened := start(func() { listener = listen(t.Context(), addr, log) })
		synctest.Wait()
		if err := taken.Close(); err != nil {
			t.Fatal(err)
		}
		<-listened
		if listener == nil {
			t.Fatal("no listener")
		}
		defer func() { _ = listener.Close() }()
		if waited := time.Since(begin); waited < listenRetry.First/2 || waited > listenRetry.First {
			t.Errorf("waited %s", waited)
		}
		if n := strings.Count(out.String(), "level=warning"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, out)
		}
	})
}

func TestServerThatBreaksIsAWarning(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	log, out := newLog()
	served := start(func() { serveOn(ctx, listener, "", http.NotFoundHandler(), log) })
	out.await(t, "has stopped", served)
	cancel()
	wait(t, served, "the return")
}
