package connlimit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// clientOf is set in the processes that open connections: the number, the address of a server that
// holds requests, and the address of a server with few clients.
const clientOf = "CONNLIMIT_TEST_CLIENT"

func TestMain(m *testing.M) {
	if task := os.Getenv(clientOf); task != "" {
		client(strings.Fields(task))
		return
	}
	os.Exit(m.Run())
}

func client(task []string) {
	count, err := strconv.Atoi(task[0])
	if err != nil {
		panic(err)
	}
	Files()
	var open []net.Conn
	for i := range 2 * count {
		c, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", task[1+i%2])
		if err != nil {
			panic(err)
		}
		if i%2 == 0 {
			if _, err := io.WriteString(c, "GET /held HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				panic(err)
			}
		}
		open = append(open, c)
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, c := range open {
		_ = c.Close()
	}
}

// TestManyConnectionsFromTwoProcesses opens 5 000 connections to a large server, which holds all of
// them, and 5 000 to a small one, which must keep few of them. Both must still answer.
func TestManyConnectionsFromTwoProcesses(t *testing.T) {
	const each = 2500
	if _, files, _ := Files(); files < 2*each+1000 {
		t.Skipf("this machine permits only %d open files", files)
	}
	var held atomic.Int64
	release := make(chan struct{})
	serve := func(most int) (string, *Limiter) {
		server := &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/held" {
				held.Add(1)
				<-release
			}
		})}
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		limiter := HTTP(server, most)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = server.Serve(limiter.Listener(listener))
		}()
		t.Cleanup(func() {
			_ = server.Close()
			<-done
		})
		return listener.Addr().String(), limiter
	}
	large, largeLimiter := serve(2*each + 10)
	small, smallLimiter := serve(Small)
	t.Cleanup(func() { close(release) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %s", clientOf, each, large, small))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "open\n" {
			t.Fatalf("the client printed %q: %v", line, err)
		}
	}
	for held.Load() < 2*each {
		time.Sleep(10 * time.Millisecond)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	for _, address := range []string{large, small} {
		for range 100 { // each leaves an idle connection, as a stranger would
			c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatalf("a request while strangers have all connections: %v", err)
		}
		_ = resp.Body.Close()
	}
	for limiter, most := range map[*Limiter]int{largeLimiter: 2*each + 10, smallLimiter: Small} {
		limiter.mu.Lock()
		if limiter.open > most {
			t.Errorf("%d connections are open, at most %d are allowed", limiter.open, most)
		}
		limiter.mu.Unlock()
	}
}

func TestBusyStreamsAreNotCutOff(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := Streams(1, time.Hour).Listener(listener)
	defer limited.Close()
	accepted := make(chan net.Conn, 2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := limited.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	dial()
	first := <-accepted
	second := dial()
	if _, err := second.Read(make([]byte, 1)); err == nil {
		t.Error("a second connection is open")
	}
	if _, err := first.Write([]byte("x")); err != nil {
		t.Errorf("the first connection was cut off: %v", err)
	}
	_ = first.Close()
	dial()
	_ = (<-accepted).Close()
	_ = limited.Close()
	<-done
}

func TestConnectionsFor(t *testing.T) {
	for files, want := range map[uint64]int{1024: leastServer, 20_000: 19_000, 1 << 40: mostServer} {
		if got := connectionsFor(files); got != want {
			t.Errorf("with %d files: %d, want %d", files, got, want)
		}
	}
}
