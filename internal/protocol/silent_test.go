package protocol_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/protocol"
)

// pipes is a network of connections in memory. It is the listener of its only server.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once

	mu   sync.Mutex
	open []*pipe
}

// pipe is a client's end of a connection. After silent is closed, it accepts what the client sends, and
// delivers nothing, like a connection of which a gateway has lost the other end.
type pipe struct {
	net.Conn
	silent chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes {
	return &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.accepted <- server:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c := &pipe{Conn: client, silent: make(chan struct{}), closed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, c)
	return c, nil
}

// silence makes all present connections silent. New ones work.
func (p *pipes) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		close(c.silent)
	}
	p.open = nil
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (*pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (c *pipe) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.silent:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *pipe) Write(b []byte) (int, error) {
	select {
	case <-c.silent:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

func (c *pipe) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestSilentConnectionIsReplaced checks that polls reach the server again after a gateway has lost a
// connection without closing it. With HTTP/2, a call that ends because of its timeout leaves the
// connection to the calls that follow.
func TestSilentConnectionIsReplaced(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			network := newPipes()
			var protocols http.Protocols
			protocols.SetHTTP1(!http2)
			protocols.SetUnencryptedHTTP2(http2)
			server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusNoContent)
			})}
			go server.Serve(network)
			defer server.Close()
			transport, err := protocol.NewTransport(nil)
			if err != nil {
				t.Fatal(err)
			}
			transport.Proxy, transport.DialContext, transport.Protocols = nil, network.dial, &protocols
			c, err := protocol.NewClient(protocol.Options{BaseURL: "http://server.test", HTTPClient: &http.Client{Transport: transport}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			poll := func() error {
				_, err := c.Poll(t.Context(), secret, protocol.PollRequest{AgentID: "a"})
				return err
			}
			if err := poll(); err != nil {
				t.Fatal(err)
			}
			network.silence()
			silent := time.Now()
			for err = poll(); err != nil && time.Since(silent) < 10*time.Minute; err = poll() {
				time.Sleep(time.Second)
			}
			if err != nil || time.Since(silent) > 3*time.Minute {
				t.Errorf("HTTP/2 %v: after %v: %v", http2, time.Since(silent), err)
			}
		})
	}
}
