// Package pgproxy is a proxy in front of PostgreSQL that loses or holds back the answers to COMMIT, so
// that tests can check what a server does when it does not learn whether its change was stored. It can
// also lose the database without closing connections, and make the database look like a standby.
package pgproxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// Fault is what a proxy does with a COMMIT.
type Fault int

// The faults.
const (
	// None passes everything on.
	None Fault = iota
	// Cut closes the connection instead of passing on the answer. The change is stored.
	Cut
	// Late holds the answer back until the client has closed the connection. The change is stored.
	Late
	// Drop closes the connection instead of passing on the COMMIT. The change is not stored.
	Drop
	// Vanish is like Cut, and closes all new connections from then on.
	Vanish
	// Hang is like Cut, and answers on no new connection from then on.
	Hang
)

// Proxy is a running proxy.
type Proxy struct {
	dsn     string
	backend string
	skip    string
	ln      net.Listener
	wg      sync.WaitGroup

	mu     sync.Mutex
	fault  Fault
	hits   int
	hide   bool
	down   bool
	hang   bool
	frozen int // number of the connections that were made before [Proxy.Freeze]
	made   int
	behind bool
	pooled bool
	open   map[net.Conn]bool
	closed bool
}

// Start starts a proxy for the database at dsn, whose address must have sslmode=disable. The proxy
// leaves the transactions alone that have a statement which contains skip, unless skip is "". It stops
// when the test finishes.
func Start(t testing.TB, dsn, skip string) *Proxy {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal("parsing the address of a database failed")
	}
	var listen net.ListenConfig
	ln, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening for a database proxy: %v", err)
	}
	p := &Proxy{backend: u.Host, skip: skip, ln: ln, open: map[net.Conn]bool{}}
	u.Host = ln.Addr().String()
	p.dsn = u.String()
	p.wg.Go(p.serve)
	t.Cleanup(p.stop)
	return p
}

// DSN returns the address of the database behind the proxy.
func (p *Proxy) DSN() string { return p.dsn }

// Set sets what the proxy does with each COMMIT from now on, and returns how many it has met with the
// fault that was set before.
func (p *Proxy) Set(f Fault) (hits int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hits = p.hits
	p.fault, p.hits = f, 0
	return hits
}

// Hide sets whether the proxy closes connections on which a client asks what became of a transaction.
func (p *Proxy) Hide(hide bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hide = hide
}

// Freeze makes all present connections silent. They remain open, and new ones work.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = p.made
}

// Lag makes the database say on new connections that it is a standby, and that all transactions are in
// the future.
func (p *Proxy) Lag() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.behind = true
}

// Pool makes all connections say that they have the same session, as behind a pooler.
func (p *Proxy) Pool() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pooled = true
}

// disguise replaces parts of a statement by others of the same length.
func (p *Proxy) disguise(body []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for was, now := range map[string]string{
		"pg_is_in_recovery()":            "(true)             ",
		"pg_xact_status($1::text::xid8)": "pg_xact_status((9||$1)::xid8) ",
		"pg_backend_pid()":               "42              ",
	} {
		if pool := was == "pg_backend_pid()"; pool && !p.pooled || !pool && !p.behind {
			continue
		}
		if i := bytes.Index(body, []byte(was)); i >= 0 {
			copy(body[i:], now)
		}
	}
}

func (p *Proxy) hides(statement string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hide && (strings.Contains(statement, "pg_xact_status") || strings.Contains(statement, "txid_status"))
}

// hit returns the fault for a COMMIT.
func (p *Proxy) hit(statements string, kinds ...Fault) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range kinds {
		if f == p.fault && (p.skip == "" || !strings.Contains(statements, p.skip)) {
			p.hits++
			p.down = p.down || f == Vanish
			p.hang = p.hang || f == Hang
			return f
		}
	}
	return None
}

func (p *Proxy) serve() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.connect(client) })
	}
}

// track registers a connection that stop closes. It returns false if the proxy has stopped.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[c] = true
	return !p.closed && !p.down
}

func (p *Proxy) forget(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

func (p *Proxy) stop() {
	_ = p.ln.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) connect(client net.Conn) {
	defer p.forget(client)
	var dialer net.Dialer
	server, err := dialer.DialContext(context.Background(), "tcp", p.backend)
	if err != nil {
		return
	}
	defer p.forget(server)
	if !p.track(client) || !p.track(server) {
		return
	}
	p.mu.Lock()
	p.made++
	number, hang := p.made, p.hang
	p.mu.Unlock()
	if hang {
		_, _ = io.Copy(io.Discard, client) // until the client or the proxy closes it
		return
	}
	s := &session{proxy: p, number: number, client: client, server: server, prepared: map[string]string{}, gone: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(s.gone)
		s.requests()
		_ = server.Close()
	}()
	s.answers()
	_ = client.Close()
	_ = server.Close()
	<-ended
}

// session is a proxied connection.
type session struct {
	proxy          *Proxy
	number         int // from 1
	client, server net.Conn
	prepared       map[string]string // from names of statements to their texts
	gone           chan struct{}     // closed when the client has closed the connection

	mu         sync.Mutex
	statements strings.Builder // texts of the statements since the last COMMIT
}

var (
	errFault = errors.New("a fault ends the connection")
	errLost  = errors.New("a fault loses a message")
)

func (s *session) frozen() bool {
	s.proxy.mu.Lock()
	defer s.proxy.mu.Unlock()
	return s.number <= s.proxy.frozen
}

// requests passes on what the client sends.
func (s *session) requests() {
	if err := copyMessage(s.server, s.client, false, nil); err != nil { // the start of the connection
		return
	}
	for {
		if err := copyMessage(s.server, s.client, true, s.request); err != nil {
			return
		}
	}
}

// request examines a message of the client.
func (s *session) request(kind byte, body []byte) error {
	if s.frozen() {
		return errLost
	}
	if kind == 'P' || kind == 'Q' {
		s.proxy.disguise(body)
	}
	parts := strings.SplitN(string(body), "\x00", 3)
	var text string
	switch {
	case kind == 'P' && len(parts) == 3: // Parse: name, statement
		s.prepared[parts[0]] = parts[1]
		if s.proxy.hides(parts[1]) {
			_ = s.client.Close()
			return errFault
		}
		return nil
	case kind == 'B' && len(parts) == 3: // Bind: portal, name
		text = s.prepared[parts[1]]
	case kind == 'Q': // Query: statements
		text = parts[0]
	default:
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.EqualFold(text, "COMMIT") && s.proxy.hit(s.statements.String(), Drop) != None {
		_ = s.client.Close()
		return errFault
	}
	s.statements.WriteString(text)
	return nil
}

// answers passes on what the server sends.
func (s *session) answers() {
	for {
		if err := copyMessage(s.client, s.server, true, s.answer); err != nil {
			return
		}
	}
}

// answer examines a message of the server.
func (s *session) answer(kind byte, body []byte) error {
	if s.frozen() {
		return errLost
	}
	if kind != 'C' || string(body) != "COMMIT\x00" { // CommandComplete
		return nil
	}
	s.mu.Lock()
	statements := s.statements.String()
	s.statements.Reset()
	s.mu.Unlock()
	switch s.proxy.hit(statements, Cut, Vanish, Hang, Late) {
	case Cut, Vanish, Hang:
		return errFault
	case Late:
		<-s.gone
		return errFault
	default:
		return nil
	}
}

// copyMessage passes on one message, unless examine returns an error.
func copyMessage(to io.Writer, from io.Reader, typed bool, examine func(kind byte, body []byte) error) error {
	size := 4
	if typed {
		size++
	}
	head := make([]byte, size)
	if _, err := io.ReadFull(from, head); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head[len(head)-4:])
	if length < 4 || length > 1<<30 {
		return errors.New("a message has an impossible length")
	}
	message := append(head, make([]byte, length-4)...)
	if _, err := io.ReadFull(from, message[len(head):]); err != nil {
		return err
	}
	if examine != nil {
		err := examine(head[0], message[len(head):])
		if errors.Is(err, errLost) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	_, err := to.Write(message)
	return err
}
