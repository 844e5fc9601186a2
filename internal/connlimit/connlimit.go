// Package connlimit limits the open connections of a server. At the limit, a new connection takes the
// place of the one that has been idle for the longest time. If none is idle, the new one is closed.
package connlimit

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// Small is the limit for servers with few clients, such as an agent's health port. Idle is how long
// their connections may be idle.
const (
	Small = 64
	Idle  = 10 * time.Second
)

// Limiter limits the connections of one or more listeners. It is safe for concurrent use.
type Limiter struct {
	most int
	// idle is 0 if an HTTP server reports which connections are idle. Otherwise, a connection is idle
	// if it has transferred nothing for that time.
	idle time.Duration

	mu    sync.Mutex
	open  int
	waits list.List // of *conn: those that are idle, or may be; the oldest first
}

// HTTP limits a server's connections. It calls the server's ConnState function, if any, as well.
func HTTP(server *http.Server, most int) *Limiter {
	l := &Limiter{most: most}
	next := server.ConnState
	server.ConnState = func(c net.Conn, state http.ConnState) {
		l.state(c, state)
		if next != nil {
			next(c, state)
		}
	}
	return l
}

// Streams returns a limiter for connections whose protocol is not known. A connection that has
// transferred nothing for the time idle can be closed.
func Streams(most int, idle time.Duration) *Limiter { return &Limiter{most: most, idle: idle} }

// Listener returns a listener whose connections are limited.
func (l *Limiter) Listener(listener net.Listener) net.Listener {
	return &limited{listener, l}
}

type limited struct {
	net.Listener
	limiter *Limiter
}

// Accept implements [net.Listener].
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := l.limiter.admit(c); admitted != nil {
			return admitted, nil
		}
		_ = c.Close() // nothing was sent
	}
}

func (l *Limiter) admit(c net.Conn) net.Conn {
	l.mu.Lock()
	var evicted *conn
	if l.open >= l.most {
		if evicted = l.oldest(); evicted == nil {
			l.mu.Unlock()
			return nil
		}
		l.forget(evicted)
	}
	l.open++
	admitted := &conn{Conn: c, limiter: l, touched: time.Now()}
	admitted.place = l.waits.PushBack(admitted)
	l.mu.Unlock()
	if evicted != nil {
		_ = evicted.Conn.Close() // its reader receives the error
	}
	return admitted
}

// oldest returns the connection that has been idle for the longest time, or nil.
func (l *Limiter) oldest() *conn {
	front := l.waits.Front()
	if front == nil {
		return nil
	}
	c := front.Value.(*conn) //nolint:forcetypeassert // the list has no others
	if l.idle > 0 && time.Since(c.touched) < l.idle {
		return nil
	}
	return c
}

// forget removes a connection from the count.
func (l *Limiter) forget(c *conn) {
	if c.gone {
		return
	}
	c.gone = true
	l.open--
	l.rest(c, false)
}

// rest moves a connection to the end of the idle ones, or removes it from them.
func (l *Limiter) rest(c *conn, idle bool) {
	if c.place != nil {
		l.waits.Remove(c.place)
		c.place = nil
	}
	if idle && !c.gone {
		c.touched = time.Now()
		c.place = l.waits.PushBack(c)
	}
}

// state follows the states that an HTTP server reports. A connection without a request is idle.
func (l *Limiter) state(nc net.Conn, state http.ConnState) {
	if secure, ok := nc.(*tls.Conn); ok {
		nc = secure.NetConn()
	}
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		l.rest(c, true)
	case http.StateActive, http.StateHijacked:
		l.rest(c, false)
	case http.StateClosed:
		l.forget(c)
	}
}

// conn is a connection that counts.
type conn struct {
	net.Conn
	limiter *Limiter

	// The limiter's mu guards the following fields.
	place   *list.Element // in waits, or nil
	touched time.Time
	gone    bool
}

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.used(n)
	return n, err
}

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.used(n)
	return n, err
}

func (c *conn) used(n int) {
	if n <= 0 || c.limiter.idle == 0 {
		return
	}
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.limiter.rest(c, true)
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.limiter.mu.Lock()
	c.limiter.forget(c)
	c.limiter.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite closes the sending direction, as proxies need it.
func (c *conn) CloseWrite() error {
	inner := c.Conn
	if wrapped, ok := inner.(interface{ Raw() net.Conn }); ok { // the PROXY protocol's
		inner = wrapped.Raw()
	}
	if half, ok := inner.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
