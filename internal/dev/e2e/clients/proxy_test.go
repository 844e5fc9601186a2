package clients

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/testcert"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// serveTLS serves target over TLS as host and returns its address. It calls seen for every request.
func serveTLS(t *testing.T, ca *testcert.Authority, host, target string, seen func(*http.Request)) string {
	t.Helper()
	certificate := must.Get(ca.Issue(&x509.Certificate{}, host))(t)
	base := must.Get(url.Parse(target))(t)
	back := httputil.NewSingleHostReverseProxy(base)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen(r)
		back.ServeHTTP(w, r)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// connectProxy is a proxy that requires a password, resolves private host names, and refuses all
// other hosts.
type connectProxy struct {
	password string
	hosts    map[string]string // host:port to address

	mu      sync.Mutex
	refused []string
	users   map[string]bool // hosts whose requests had the right password
}

func (p *connectProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := parseBasic(r.Header.Get("Proxy-Authorization"))
	address := p.hosts[r.Host]
	p.mu.Lock()
	switch {
	case user == "":
		// Some clients send credentials only on request.
	case password != p.password || r.Method != http.MethodConnect || address == "":
		p.refused = append(p.refused, r.Method+" "+r.Host+" as "+user)
		address = ""
	default:
		p.users[r.Host] = true
	}
	p.mu.Unlock()
	if password != p.password {
		w.Header().Set("Proxy-Authenticate", `Basic realm="proxy"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if address == "" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	far, err := new(net.Dialer).DialContext(r.Context(), "tcp", address)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer near.Close()
	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(far, buffered) // the end of one direction closes the tunnel
		far.Close()
		near.Close()
	})
	_, _ = io.Copy(near, far)
	near.Close()
	far.Close()
	both.Wait()
}

// parseBasic parses the value of a Proxy-Authorization header, as net/http does for Authorization.
func parseBasic(header string) (user, password string, ok bool) {
	r := &http.Request{Header: http.Header{"Authorization": {header}}}
	return r.BasicAuth()
}

// program returns the name in a User-Agent, without the version.
func program(r *http.Request) string {
	name, _, _ := strings.Cut(r.UserAgent(), "/")
	return name
}

const proxyPassword = "s3cret-of-the-proxy"

// behindProxy runs a deployment in a network where only the proxy can resolve the host names of the
// server and the repository. Their certificates are from a private authority. listen is the proxy's
// address.
func behindProxy(t *testing.T, w *harness.Site, target, image, listen string, settings map[string]string, env ...string) {
	t.Helper()
	ctx := t.Context()
	ca := must.Get(testcert.NewAuthority("Private CA of the test"))(t)
	caFile := filepath.Join(w.Dir, "company-ca.pem")
	harness.Write(t, caFile, ca.PEM(), 0o600)
	var mu sync.Mutex
	programs := map[string]bool{}
	seen := func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		programs[program(r)] = true
	}
	proxy := &connectProxy{password: proxyPassword, users: map[string]bool{}, hosts: map[string]string{
		"workflow.test:443": serveTLS(t, ca, "workflow.test", w.Server.URL, seen),
		"git.test:443":      serveTLS(t, ca, "git.test", w.Git.URL, seen),
	}}
	listener := must.Get(new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(listen, "0")))(t)
	front := &httptest.Server{Listener: listener, Config: &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}}
	front.Start()
	t.Cleanup(front.Close)
	t.Cleanup(w.Close) // before the connection to the server closes

	proxyURL := "http://agent:" + proxyPassword + "@" + listener.Addr().String()
	w.AgentURL = "https://workflow.test"
	settings = maps.Clone(settings)
	settings["ca_certificate_file"] = caFile
	env = append(env, "HTTPS_PROXY="+proxyURL, "http_proxy="+proxyURL)
	must.Get(w.StartAgent(ctx, target, settings, env...))(t)
	repo := w.Repo(ctx, t)
	there := must.Get(url.Parse(repo.URL))(t)
	repoURL := "https://git.test" + there.Path
	s := w.NewStack(ctx, t, "box", "dev", image, nil)
	d := s.Finish(ctx, t, s.Deploy(ctx, t, "update", repoURL,
		"echo the proxy is $HTTPS_PROXY and $https_proxy",
		"git ls-remote "+repoURL+" >/dev/null && echo users git works",
		`case ",$no_proxy," in *,127.0.0.1,*) echo loopback is direct;; esac`,
		`echo bundle has $(grep -c BEGIN "$SSL_CERT_FILE") authorities, the system $(cat /etc/ssl/certs/ca-certificates.crt /dev/null 2>/dev/null | grep -c BEGIN)`,
	))
	log := s.Log(ctx, t, d)
	if d.Status != "succeeded" {
		t.Fatalf("ended as %+v; refused by the proxy: %q; its log:\n%s", d, proxy.refused, log)
	}
	for _, want := range []string{"users git works", "loopback is direct", "the proxy is http://agent:[secret]@"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	bundleHasAll(t, log)
	agentLog := harness.Read(t, w.Agents[len(w.Agents)-1].LogFile)
	for where, text := range map[string]string{"deployment's log": log, "agent's log": string(agentLog)} {
		if strings.Contains(text, proxyPassword) {
			t.Errorf("the proxy's password is in the %s:\n%s", where, text)
		}
	}
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	if len(proxy.users) != 2 || len(proxy.refused) > 0 {
		t.Errorf("the proxy was used for %v and refused %q", slices.Sorted(maps.Keys(proxy.users)), proxy.refused)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"customer-managed-workflow-agent", "git", "pulumi-cli"} {
		if !programs[want] {
			t.Errorf("%s did not come through the proxy, only %v did", want, slices.Sorted(maps.Keys(programs)))
		}
	}
}

func bundleHasAll(t *testing.T, log string) {
	t.Helper()
	for line := range strings.Lines(log) {
		words := strings.Fields(line)
		if len(words) < 7 || words[0] != "bundle" {
			continue
		}
		got, ok := new(big.Int).SetString(words[2], 10)
		system, okSystem := new(big.Int).SetString(words[6], 10)
		if !ok || !okSystem || got.Int64() != system.Int64()+1 {
			t.Errorf("the job says: %s", line)
		}
		return
	}
	t.Errorf("the job did not count its authorities:\n%s", log)
}

// proxied contains server arguments for an external URL whose host name only the proxy can resolve.
var proxied = []string{"--external-url", "https://workflow.test"}

func TestClientsBehindAProxy(t *testing.T) {
	w := harness.StartSite(t, "", proxied...)
	behindProxy(t, w, "process", "", "127.0.0.1", map[string]string{})
}

func TestEngineBehindAProxy(t *testing.T) {
	w, engine, image := harness.StartEngineSite(t, harness.OnLoopback, proxied...)
	behindProxy(t, w, "docker", image, engine.BridgeIP.String(), map[string]string{"pull_image": "false"}, "DOCKER_HOST="+engine.Host)
	harness.Leftovers(t.Context(), t, engine) // before the agent is stopped with its proxy
}
