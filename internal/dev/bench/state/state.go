// Package state measures the state backend. It runs the stock CLI with our server and with three
// baselines: a stub that acknowledges everything at once, the CLI's own file backend, and the
// engine without checkpoints.
package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/lab"
)

const (
	stopPatience = 15 * time.Second
	restPatience = 2 * time.Minute
)

// Bench configures and runs the measurements.
type Bench struct {
	Dir    string // directory for everything except programs
	Server string // path of workflow-server
	Stub   string // path of minbackend
	Rounds int
	Quick  bool
	Say    func(format string, args ...any)
	// Add adds a row to the report.
	Add func(figure, unit string, product, yardstick []float64, g figures.Goal)
	// Skip adds a row for a figure that could not be measured.
	Skip func(figure, why string)
}

// pick returns the load for a full run, or for a quick one.
func pick[T any](b *Bench, full, quick T) T {
	if b.Quick {
		return quick
	}
	return full
}

func (b *Bench) newDir() (string, error) {
	dir, err := os.MkdirTemp(b.Dir, "s")
	if err != nil {
		return "", fmt.Errorf("creating a directory for a measurement: %w", err)
	}
	return dir, nil
}

// product is a running workflow-server, or several that share a database.
type product struct {
	*lab.Server // the first one; its URL is the clients'
	http        *http.Client
	replicas    []*lab.Server // all servers
	release     []func()
}

func newProduct() *product {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	transport.Proxy = nil
	// Responses stay compressed, because the client's decompression time is not the server's.
	transport.DisableCompression = true
	return &product{http: &http.Client{Transport: transport, Timeout: 5 * time.Minute}}
}

func (b *Bench) startProduct(ctx context.Context) (*product, error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	server, err := lab.StartServer(ctx, lab.ServerOptions{Binary: b.Server, Dir: dir, Env: os.Environ()})
	if err != nil {
		return nil, err
	}
	p := newProduct()
	p.Server, p.replicas = server, []*lab.Server{server}
	return p, nil
}

func (p *product) close() {
	for _, s := range p.replicas {
		_ = s.Process.Stop(syscall.SIGTERM, stopPatience)
	}
	p.http.CloseIdleConnections()
	for _, release := range slices.Backward(p.release) {
		release()
	}
}

// cpu returns the CPU seconds that the servers have used.
func (p *product) cpu() (float64, error) {
	var sum time.Duration
	for _, s := range p.replicas {
		used, err := figures.FineCPU(s.Process.Pid())
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum.Seconds(), nil
}

// rested waits until the server has finished its background work, and returns the CPU seconds that
// the server has used.
func (p *product) rested(ctx context.Context) (float64, error) {
	const interval, idle = 200 * time.Millisecond, 0.005
	ctx, cancel := context.WithTimeoutCause(ctx, restPatience, fmt.Errorf("the server still works after %s", restPatience))
	defer cancel()
	before := math.Inf(-1)
	err := lab.Poll(ctx, interval, func() (bool, error) {
		now, err := p.cpu()
		done := now-before < idle
		before = now
		return done, err
	})
	return before, err
}

// peak returns the highest memory use of a server since its start, in MB.
func (p *product) peak() (float64, error) {
	highest := int64(0)
	for _, s := range p.replicas {
		peak, err := figures.Memory(s.Process.Pid(), "VmHWM")
		if err != nil {
			return 0, err
		}
		highest = max(highest, peak)
	}
	return float64(highest) / 1e6, nil
}

// path returns the path of a stack's routes.
func (p *product) path(stack string) string {
	return "/api/stacks/" + p.Organization + "/" + project + "/" + stack
}

func (p *product) newStack(ctx context.Context, name string) error {
	return p.Call(ctx, http.MethodPost, "/api/stacks/"+p.Organization+"/"+project, map[string]string{"stackName": name}, nil)
}

// send makes one API call and returns the response, whose status is 200. The caller must close the
// response's body.
func (p *product) send(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.URL+path, body)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Authorization", "token "+p.Token)
	resp, err := p.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return resp, nil
}

// read returns the body of a GET response.
func (p *product) read(ctx context.Context, path string) ([]byte, error) {
	resp, err := p.send(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	return body, nil
}

// stub is a running minbackend.
type stub struct {
	url     string
	process *lab.Process
	release func() // nil without a proxy
}

func (b *Bench) startStub(ctx context.Context) (*stub, error) {
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	port, err := lab.FreePort("127.0.0.1")
	if err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	s := &stub{url: "http://" + addr}
	if s.process, err = lab.StartProcess(ctx, b.Stub, []string{addr}, os.Environ(), filepath.Join(dir, "stub.log")); err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("minbackend did not start"))
	defer cancel()
	err = lab.Poll(ready, 5*time.Millisecond, func() (bool, error) {
		return request(ready, http.MethodGet, s.url+"/api/user", nil) == nil, nil
	})
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stub) close() {
	_ = s.process.Stop(syscall.SIGTERM, stopPatience)
	if s.release != nil {
		s.release()
	}
}

// request sends a request without credentials. It returns an error unless the response's status is
// 200.
func request(ctx context.Context, method, url string, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return nil
}
