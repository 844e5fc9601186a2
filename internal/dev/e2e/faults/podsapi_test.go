package faults

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab/cluster"
	"workflowagent/internal/dev/must"
)

// apiProxy is a proxy between the agent and the cluster's API server, with the administrator's
// rights.
type apiProxy struct {
	*endpoint
	kubeconfig string

	reverse *httputil.ReverseProxy
	target  *url.URL

	mu    sync.Mutex
	holds []*apiHold
	watch time.Duration // how long a watch lasts; 0 is unlimited
	skew  time.Duration // of the times in responses
}

// apiCall is a call of the cluster's API.
type apiCall struct {
	method, resource string
	dryRun, watch    bool
}

func (c apiCall) String() string {
	switch {
	case c.dryRun:
		return "check " + c.resource
	case c.watch:
		return "WATCH " + c.resource
	}
	return c.method + " " + c.resource
}

// apiHold holds the first call of a kind: before the API server receives it, or before the agent
// receives the response.
type apiHold struct {
	call   string
	after  bool
	met    chan struct{}
	lifted chan struct{}
	taken  bool
}

func startAPIProxy(t *testing.T, c *cluster.Cluster, dir string) *apiProxy {
	t.Helper()
	config := must.Get(clientcmd.BuildConfigFromFlags("", c.Admin()))(t)
	transport := must.Get(rest.TransportFor(config))(t)
	target := must.Get(url.Parse(c.URL))(t)
	p := &apiProxy{target: target, kubeconfig: filepath.Join(dir, "kubeconfig")}
	p.reverse = &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ModifyResponse: p.shift,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Accept-Encoding") // the transport sets its own, and decodes
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.endpoint = openEndpoint(t, "127.0.0.1", p)
	t.Cleanup(func() {
		p.lift()
		p.cut()
	})
	harness.Write(t, p.kubeconfig, encoded(t, map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": []map[string]any{{"name": "test", "cluster": map[string]any{"server": p.url()}}},
		"contexts": []map[string]any{{"name": "test", "context": map[string]any{"cluster": "test", "user": ""}}},
	}), 0o600)
	return p
}

func (p *apiProxy) hold(call string, after bool) *apiHold {
	h := &apiHold{call: call, after: after, met: make(chan struct{}), lifted: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h
}

func (h *apiHold) await(t *testing.T) {
	t.Helper()
	select {
	case <-h.met:
	case <-time.After(patience):
		t.Fatalf("the agent did not call %s", h.call)
	}
}

// lift ends all holds and releases their calls.
func (p *apiProxy) lift() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.holds {
		close(h.lifted)
	}
	p.holds = nil
}

// met returns the hold that the call meets, or nil.
func (p *apiProxy) met(c apiCall) *apiHold {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.holds {
		if h.call == c.String() && !h.taken {
			h.taken = true
			return h
		}
	}
	return nil
}

func (p *apiProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body) // otherwise the server does not notice the client's end
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	c := recogniseAPI(r)
	switch h := p.met(c); {
	case h == nil:
	case h.after:
		p.discard(r)
		close(h.met)
		h.wait(r.Context())
		panic(http.ErrAbortHandler)
	default:
		close(h.met)
		if h.wait(r.Context()) != nil {
			panic(http.ErrAbortHandler)
		}
	}
	p.mu.Lock()
	limit := p.watch
	p.mu.Unlock()
	if c.watch && limit > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		r = r.WithContext(ctx)
	}
	p.reverse.ServeHTTP(w, r)
}

func (h *apiHold) wait(ctx context.Context) error {
	select {
	case <-h.lifted:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// discard passes a call on and discards the response.
func (p *apiProxy) discard(r *http.Request) {
	out := r.Clone(r.Context())
	out.RequestURI, out.Host = "", ""
	out.URL.Scheme, out.URL.Host = p.target.Scheme, p.target.Host
	resp, err := p.reverse.Transport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = resp.Body.Close()
}

// recogniseAPI recognises a call by its path and parameters.
func recogniseAPI(r *http.Request) apiCall {
	c := apiCall{method: r.Method, dryRun: r.URL.Query().Has("dryRun"), watch: r.URL.Query().Has("watch")}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) > 4 && parts[2] == "namespaces" {
		c.resource = parts[4]
	}
	if len(parts) > 6 {
		c.resource += "/" + parts[6]
	}
	return c
}

var timestamp = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"`)

// shift makes the cluster's clock look wrong.
func (p *apiProxy) shift(r *http.Response) error {
	p.mu.Lock()
	skew := p.skew
	p.mu.Unlock()
	if skew == 0 || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		return nil
	}
	r.Header.Del("Content-Length")
	r.ContentLength = -1
	r.Body = &shifted{Closer: r.Body, lines: bufio.NewReader(r.Body), by: skew}
	return nil
}

// shifted changes all times in lines of JSON.
type shifted struct {
	io.Closer
	lines *bufio.Reader
	by    time.Duration
	line  []byte
}

func (s *shifted) Read(to []byte) (int, error) {
	if len(s.line) == 0 {
		line, err := s.lines.ReadBytes('\n')
		if len(line) == 0 {
			return 0, err
		}
		s.line = timestamp.ReplaceAllFunc(line, func(quoted []byte) []byte {
			when, err := time.Parse(`"`+time.RFC3339+`"`, string(quoted))
			if err != nil {
				return quoted
			}
			return []byte(when.Add(s.by).Format(`"` + time.RFC3339 + `"`))
		})
	}
	n := copy(to, s.line)
	s.line = s.line[n:]
	return n, nil
}
