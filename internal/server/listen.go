package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	stdlog "log" //nolint:depguard // of net/http
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/mholt/acmez/v3"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/connlimit"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/acme"
	"workflowagent/internal/server/certfile"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/sys/boundedfile"
)

// strictTransport tells browsers to use only https for a year (RFC 6797).
const strictTransport = "max-age=31536000"

// maxAuthorities is the largest size of acme_ca_file in bytes.
const maxAuthorities = 1 << 20

// certificates provides the certificates of TLS connections.
type certificates interface {
	Get(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Leaves returns the current certificates without their chains.
	Leaves() []*x509.Certificate
}

// listen listens on host:port, or on a unix socket. It replaces the socket of a server that has ended.
func listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	path, isUnix := strings.CutPrefix(address, config.UnixPrefix)
	if !isUnix {
		l, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listening on %s: %w", address, err)
		}
		return l, nil
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("listening on %s: another server is using it", address)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listening on %s: removing the socket of an earlier server: %w", address, err)
		}
	}
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(fmt.Errorf("listening on %s: %w", address, err), l.Close())
	}
	return namelessListener{l}, nil
}

// namelessListener hides the names that clients give their end of a unix socket, because a name can look like an IP
// address.
type namelessListener struct{ net.Listener }

func (l namelessListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return nameless{c}, nil
}

type nameless struct{ net.Conn }

func (nameless) RemoteAddr() net.Addr { return &net.UnixAddr{Name: "@", Net: "unix"} }

// CloseWrite closes the sending direction, as [http.Server] needs it.
func (n nameless) CloseWrite() error {
	if half, ok := n.Conn.(*net.UnixConn); ok {
		return half.CloseWrite()
	}
	return n.Close()
}

// openNetwork listens and prepares what clients connect to. It sets the external URL if the configuration has none.
func (s *Server) openNetwork(ctx context.Context) error {
	var err error
	if s.listener, err = listen(ctx, s.cfg.Listen); err != nil {
		return err
	}
	if s.cfg.ExternalURL == "" {
		if s.cfg.ExternalURL, err = urlOf(s.listener.Addr(), s.cfg.TLS()); err != nil {
			return err
		}
		s.urlNotice = loopbackNotice(s.cfg.ExternalURL)
	}
	if s.cfg.TLSCert != "" {
		pair, err := certfile.Load(s.cfg.TLSCert, s.cfg.TLSKey, s.logOf("tls"))
		if err != nil {
			return err
		}
		s.certificate = pair
	}
	if !s.cfg.TLS() {
		s.warnOfPlainText()
	}
	if s.cfg.RedirectListen != "" {
		s.redirects, err = listen(ctx, s.cfg.RedirectListen)
	}
	return err
}

// loopbackNotice warns those who create stacks of a URL that the operator has not chosen, if only this machine reaches it.
func loopbackNotice(address string) string {
	if !onLoopback(address) {
		return ""
	}
	return "Stacks store the URL of the server, " + address + ", which only this machine reaches. " +
		"Before you create stacks to keep, set external_url to the URL that clients use (workflow-server configure)."
}

// warnOfPlainText logs a warning if clients on other machines connect without TLS.
func (s *Server) warnOfPlainText() {
	u, err := url.Parse(s.cfg.ExternalURL)
	if err == nil && u.Scheme == "http" && !protocol.IsLoopback(u.Host) {
		s.log.Warn("the external URL begins with http, so access tokens and secrets cross the network in plain text: " +
			"set tls_cert_file and tls_key_file or acme_agree_to_terms, or let a proxy terminate TLS and set external_url to its https URL")
	} else if address := s.plainAddress(); address != "" {
		s.log.Warnf("the server accepts connections without TLS on %s, so others in the network can read and change what clients send there: "+
			"let it listen on loopback or a unix socket, or set tls_cert_file and tls_key_file, or acme_agree_to_terms", address)
	}
}

// plainAddress returns the address on which other machines can connect without TLS, or "".
func (s *Server) plainAddress() string {
	tcp, ok := s.listener.Addr().(*net.TCPAddr)
	if !ok || s.cfg.TLS() || tcp.IP.IsLoopback() || s.container && onLoopback(s.cfg.ExternalURL) {
		return ""
	}
	return tcp.String()
}

// inContainer reports whether this process runs in a container of Docker or Podman. Its addresses are in a network of
// its engine: what others reach are the published ports, of which the external URL is one.
func inContainer() bool {
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Lstat(mark); err == nil {
			return true
		}
	}
	return false
}

func onLoopback(address string) bool {
	u, err := url.Parse(address)
	return err == nil && protocol.IsLoopback(u.Host)
}

// prepareHTTP sets the server for requests. It counts connections where the HTTP server can tell which are idle.
func (s *Server) prepareHTTP() {
	handler := s.cfg.Trust().Handler(s.handler)
	if s.certificate != nil {
		handler = withHeader(handler, "Strict-Transport-Security", strictTransport)
	}
	s.http = &http.Server{
		Handler:           onlyPaths(handler),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		// It would read a body without a deadline.
		DisableGeneralOptionsHandler: true,
		MaxHeaderBytes:               64 << 10,
		ErrorLog:                     stdlog.New(httpErrors{s.logOf("http")}, "", 0),
		// Deadlines of HTTP/2 end streams, not connections whose client reads nothing.
		HTTP2: &http.HTTP2Config{WriteByteTimeout: time.Minute, SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, MaxConcurrentStreams: 100},
	}
	if s.certificate != nil {
		s.http.TLSConfig = &tls.Config{GetCertificate: s.certificate.Get, MinVersion: tls.VersionTLS12}
	}
	if s.acme != nil {
		s.http.TLSConfig.NextProtos = []string{acmez.ACMETLS1Protocol} // in addition to those of HTTP
	}
	most, files, enough := connlimit.Files()
	if !enough {
		s.log.Warnf("the server can open only %d files, which is too few for %d connections: raise the limit of open files (LimitNOFILE in systemd, ulimit -n)", files, most)
	}
	s.connections = connlimit.HTTP(s.http, most)
	s.listener = s.connections.Listener(s.cfg.Trust().Listener(s.listener, s.logOf("http")))
	if s.redirects != nil {
		s.redirect = &http.Server{
			Handler:     onlyPaths(s.answerChallenges(redirect(s.cfg))),
			ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 10 * time.Second,
			MaxHeaderBytes: 16 << 10, ErrorLog: s.http.ErrorLog, DisableGeneralOptionsHandler: true,
		}
		s.redirects = connlimit.HTTP(s.redirect, max(connlimit.Small, most/10)).Listener(s.redirects)
	}
}

// httpErrors logs the errors of HTTP servers. Clients cause those of handshakes and of HTTP/2, except panics.
type httpErrors struct{ log *logrus.Entry }

func (e httpErrors) Write(line []byte) (int, error) {
	level := logrus.ErrorLevel
	if bytes.Contains(line, []byte("TLS handshake error")) || bytes.Contains(line, []byte("http2: ")) && !bytes.Contains(line, []byte("panic")) {
		level = logrus.DebugLevel
	}
	e.log.Log(level, strings.TrimSpace(string(line)))
	return len(line), nil
}

func withHeader(next http.Handler, name, value string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(name, value)
		next.ServeHTTP(w, r)
	})
}

// onlyPaths refuses requests whose target is no path, such as "*" or another server's URL. It does not wait for their
// bodies.
func onlyPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Opaque == "" && strings.HasPrefix(r.URL.Path, "/") {
			next.ServeHTTP(w, r)
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // HTTP/2 needs none
		w.Header().Set("Connection", "close")
		http.Error(w, "The target of the request must be a path.", http.StatusBadRequest)
	})
}

// redirect sends browsers to https. It does not forward other requests, because their client should learn that it
// has sent its token in plain text.
func redirect(cfg config.Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := cfg.ExternalURL
		asked := url.URL{Host: r.Host}
		if console, err := url.Parse(string(cfg.Console())); err == nil && strings.EqualFold(asked.Hostname(), console.Hostname()) {
			to = string(cfg.Console())
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Authorization") != "" {
			http.Error(w, "This port only redirects browsers. Use "+to, http.StatusBadRequest)
			return
		}
		http.Redirect(w, r, to+r.URL.RequestURI(), http.StatusPermanentRedirect) //nolint:gosec // to has a host
	})
}

// answerChallenges answers the requests of the ACME authority on port 80.
func (s *Server) answerChallenges(next http.Handler) http.Handler {
	if s.acme == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := url.URL{Host: r.Host}
		if answer, ok := s.acme.Answer(r.Context(), asked.Hostname(), r.URL.Path); ok {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, answer) //nolint:gosec // plain text of the authority, which asks again after an error
			return
		}
		next.ServeHTTP(w, r)
	})
}

// newACME returns the certificates from an ACME authority.
func (s *Server) newACME(ctx context.Context, secrets *keyring.Ring) (*acme.Service, error) {
	client, err := outbound.Trusting("")
	if s.cfg.ACMECAFile != "" {
		client, err = trusting(s.cfg.ACMECAFile)
	}
	if err != nil {
		return nil, err
	}
	return acme.New(ctx, s.db, acme.Options{
		Log: s.logOf("tls"), Secrets: secrets, Client: client, Names: s.cfg.CertificateNames(), Directory: s.cfg.ACMEDirectory,
		Email: s.cfg.ACMEEmail, KeyID: s.cfg.ACMEKeyID, Key: s.cfg.ACMEKey.Reveal(), HTTP: s.cfg.RedirectListen != "",
	})
}

// trusting returns a client that trusts the authorities in a file, in addition to the system's.
func trusting(file string) (*outbound.Client, error) {
	text, err := boundedfile.Read(file, maxAuthorities)
	if err != nil {
		return nil, fmt.Errorf("reading acme_ca_file: %w", err)
	}
	client, err := outbound.Trusting(string(text))
	if err != nil {
		return nil, fmt.Errorf("reading acme_ca_file %s: %w", file, err)
	}
	return client, nil
}

// serve serves a listener until the server stops.
func serve(server *http.Server, l net.Listener, secure bool) error {
	var err error
	if secure {
		err = server.ServeTLS(l, "", "")
	} else {
		err = server.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving on %s: %w", l.Addr(), err)
}

// shutDown lets the requests of a server finish until ctx is done.
func (s *Server) shutDown(ctx context.Context, server *http.Server) {
	if err := server.Shutdown(ctx); err != nil {
		s.log.WithError(err).Warn("some requests did not finish in time and were cut off")
		_ = server.Close() // its error is that of a listener that is closed already
	}
}
