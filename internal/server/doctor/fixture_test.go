package doctor

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/checkup"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/dev/testcert"
	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server"
	"workflowagent/internal/server/config"
)

// company is an authority that this process trusts like the system's.
var company *testcert.Authority

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) { // processes that the doctor starts get no variables
	case wire.Program:
		_ = json.NewEncoder(os.Stdout).Encode(wire.Hello{Protocol: wire.Protocol, Version: "v1", Sandbox: true})
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	case outdated:
		_ = json.NewEncoder(os.Stdout).Encode(wire.Hello{Protocol: wire.Protocol - 1, Version: "v0"})
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	dir, err := os.MkdirTemp("", "doctor-")
	if err == nil {
		company, err = testcert.NewAuthority("The Company")
	}
	file := filepath.Join(dir, "ca.pem")
	if err == nil {
		err = os.WriteFile(file, company.PEM(), 0o600)
	}
	if err == nil {
		err = os.Setenv("SSL_CERT_FILE", file) // before the first use of the system's authorities
	}
	code := 1
	if err == nil {
		code = storetest.Main(m)
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// outdated is the name of an evaluator of an earlier version.
const outdated = "workflow-esc-outdated"

// evaluator makes this program the evaluator, under a name that decides what it does.
func (s *site) evaluator(name string) {
	s.t.Helper()
	s.options.Evaluator = filepath.Join(s.dir, name)
	must.OK(s.t, os.Symlink(must.Get(os.Executable())(s.t), s.options.Evaluator))
}

// site is a server and what is in front of it. Tests break parts of it.
type site struct {
	t       *testing.T
	dir     string
	listen  string
	flags   map[string]string
	environ []string
	options Options
}

// password is in the addresses of databases. It must not show.
const password = "hunter2-of-the-database"

func newSite(t *testing.T) *site {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	must.OK(t, os.Mkdir(data, 0o700))
	listen := net.JoinHostPort("127.0.0.1", strconv.Itoa(must.Get(child.FreePort("127.0.0.1"))(t)))
	s := &site{
		t: t, dir: dir, listen: listen, flags: map[string]string{"listen": listen, "data_dir": data},
		options: Options{
			Version: "v1", Limit: time.Minute, Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
			Disk: func(string) (int64, int64, error) { return 100 << 30, 50 << 30, nil },
		},
	}
	s.evaluator(wire.Program)
	return s
}

func (s *site) data() string { return s.flags["data_dir"] }

func (s *site) set(key, value string) { s.flags[key] = value }

func (s *site) load() (config.Config, error) {
	return config.Load(config.LoadOptions{Flags: maps.Clone(s.flags), Environ: s.environ, Cwd: s.dir})
}

// start starts the server, and stops it at a call of stop or when the test finishes. A running server ends as soon as it
// sees that a newer program has changed its database.
func (s *site) start() (stop func()) {
	s.t.Helper()
	return s.startWith(nil)
}

// startWith starts a server with further settings, which the doctor does not know.
func (s *site) startWith(flags map[string]string) (stop func()) {
	s.t.Helper()
	_, stop = s.serve(flags)
	return stop
}

// startReloading starts a server that reads its configuration again with load.
func (s *site) startReloading(load func() (config.Config, error)) {
	s.t.Helper()
	running, _ := s.serve(nil)
	ctx, cancel := context.WithCancel(s.t.Context())
	signals, done := make(chan os.Signal), make(chan struct{})
	go func() {
		defer close(done)
		running.ReloadOn(ctx, signals, load)
	}()
	signals <- syscall.SIGHUP // received when the server knows load
	s.t.Cleanup(func() {
		cancel()
		<-done
	})
}

func (s *site) serve(flags map[string]string) (running *server.Server, stop func()) {
	s.t.Helper()
	all := maps.Clone(s.flags)
	maps.Copy(all, flags)
	c := must.Get(config.Load(config.LoadOptions{Flags: all, Cwd: s.dir}))(s.t)
	running = must.Get(server.New(s.t.Context(), c, "v1", storetest.Log(), io.Discard))(s.t)
	running.Only()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	go func() { done <- running.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("the server: %v", err)
		}
	})
	s.t.Cleanup(stop)
	return running, stop
}

// front is a proxy in front of a server.
type front struct {
	to      string              // host and port of the server
	from    string              // the proxy's own address
	rewrite func(*http.Request) // of requests
	modify  func(*http.Response)
	answer  http.Handler // instead of the server, for the paths in paths
	paths   string       // the prefix of the paths; "" means none
	cert    *tls.Certificate
}

// with puts a proxy in front of the server, and sets the external URL to that of the proxy.
func (s *site) with(f front) {
	s.t.Helper()
	s.set("external_url", s.front(f))
}

func (s *site) front(f front) string {
	s.t.Helper()
	if f.to == "" {
		f.to = s.listen
	}
	dialer := &net.Dialer{}
	if f.from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(f.from)}
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", f.to
			r.Out.Host = r.In.Host
			for _, name := range []string{"X-Forwarded-For", "Forwarded"} {
				if values := r.In.Header.Values(name); len(values) > 0 {
					r.Out.Header[name] = values
				}
			}
			if f.rewrite != nil {
				f.rewrite(r.Out)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if f.modify != nil {
				f.modify(r)
			}
			return nil
		},
		Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
		ErrorLog:  discardLog(), FlushInterval: -1,
	}
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.answer != nil && strings.HasPrefix(r.URL.Path, f.paths) {
			f.answer.ServeHTTP(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	front.Config.ErrorLog = discardLog()
	if f.cert != nil {
		front.TLS = &tls.Config{Certificates: []tls.Certificate{*f.cert}}
		front.StartTLS()
	} else {
		front.Start()
	}
	s.t.Cleanup(front.Close)
	return front.URL
}

// appends appends the client's address to X-Forwarded-For, as proxies should.
func appends(r *http.Request) {
	r.Header.Add("X-Forwarded-For", "127.0.0.1")
}

// certificate returns a certificate for this machine.
func (s *site) certificate(a *testcert.Authority, template x509.Certificate, hosts ...string) *tls.Certificate {
	s.t.Helper()
	c := must.Get(a.Issue(&template, append(hosts, "127.0.0.1")...))(s.t)
	return &c
}

// examine runs the doctor.
func (s *site) examine(only ...string) checkup.Report {
	s.t.Helper()
	o := s.options
	o.Only = only
	if o.ConfigErr == nil {
		o.Config = must.Get(s.load())(s.t)
	}
	var text bytes.Buffer
	o.Done = func(r checkup.Result) { checkup.Print(&text, r, false) }
	report, err := Run(s.t.Context(), o)
	must.OK(s.t, err)
	s.t.Log("\n" + text.String())
	data := must.Get(json.Marshal(report))(s.t)
	if strings.Contains(text.String()+string(data), password) {
		s.t.Error("a password shows")
	}
	for _, r := range report.Checks {
		if bad := r.Status == checkup.StatusFail || r.Status == checkup.StatusWarn; bad != (r.Advice != "") || bad != (r.Finding != "") {
			s.t.Errorf("%s: %s with the finding %q and the advice %q", r.Name, r.Status, r.Finding, r.Advice)
		}
	}
	return report
}

// want checks the result of a check, whose text contains words.
func (s *site) want(report checkup.Report, name string, status checkup.Status, words ...string) {
	s.t.Helper()
	i := slices.IndexFunc(report.Checks, func(r checkup.Result) bool { return r.Name == name })
	if i < 0 {
		s.t.Errorf("the report lacks the check %s", name)
		return
	}
	r := report.Checks[i]
	if r.Status != status {
		s.t.Errorf("%s: %s (%s), want %s", name, r.Status, r.Found, status)
	}
	text := r.Found + "\n" + strings.Join(r.Details, "\n") + "\n" + r.Advice
	for _, word := range words {
		if !strings.Contains(text, word) {
			s.t.Errorf("%s lacks %q: %s", name, word, text)
		}
	}
}
