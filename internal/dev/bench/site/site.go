// Package site starts what the benches measure: one or several servers with their database, and
// proxies between them and their clients.
package site

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/jsoncall"
)

const (
	stopPatience = 15 * time.Second
	restPatience = 2 * time.Minute
)

// Options configure a [Site].
type Options struct {
	Postgres bool     // PostgreSQL that syncs its writes, instead of SQLite
	Servers  int      // that share the database; 0 = 1
	Args     []string // of the servers
	// Accepted is called with the path and the body of each request that a server accepted, before the client gets
	// the answer.
	Accepted func(path string, body io.Reader)
}

// Site is a group of servers that share a database.
type Site struct {
	URL, Token, Organization string // with several servers, URL passes consecutive calls of a stack to different ones
	Servers                  []*lab.Server
	Database                 *Database    // nil = SQLite
	HTTP                     *http.Client // keeps all of its connections open

	release []func()
}

// Start starts a site. The caller must close it.
func Start(ctx context.Context, run *figures.Run, o Options) (_ *Site, err error) {
	dir, err := run.NewDir()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.MaxIdleConns = 1<<14, 0
	transport.IdleConnTimeout = 5 * time.Minute
	transport.Proxy = nil
	// Responses stay compressed, because the client's decompression time is not the server's.
	transport.DisableCompression = true
	s := &Site{HTTP: &http.Client{Transport: transport, Timeout: 5 * time.Minute}}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	var dsn string
	if o.Postgres {
		if s.Database, err = startDatabase(ctx, dir, run.PostgresSettings); err != nil {
			return nil, err
		}
		dsn = s.Database.dsn
		s.release = append(s.release, s.Database.close)
	}
	ports, urls := make([]int, max(o.Servers, 1)), make([]string, max(o.Servers, 1))
	for i := range ports {
		if ports[i], err = child.FreePort("127.0.0.1"); err != nil {
			return nil, err
		}
		urls[i] = "http://127.0.0.1:" + strconv.Itoa(ports[i])
	}
	s.URL = urls[0]
	args := o.Args
	if len(ports) > 1 || o.Accepted != nil {
		front, err := startFront(urls, o.Accepted)
		if err != nil {
			return nil, err
		}
		s.release = append(s.release, front.Close)
		s.URL = front.URL
		args = append(slices.Clone(args), "--external-url", s.URL)
	}
	for i, port := range ports {
		server, err := s.startServer(ctx, run, filepath.Join(dir, strconv.Itoa(i)), lab.ServerOptions{Port: port, Database: dsn, Args: args})
		if err != nil {
			return nil, err
		}
		s.Servers = append(s.Servers, server)
	}
	s.Token, s.Organization = s.Servers[0].Token, s.Servers[0].Organization
	return s, nil
}

// startServer starts a server with the keys of the first one.
func (s *Site) startServer(ctx context.Context, run *figures.Run, dir string, o lab.ServerOptions) (*lab.Server, error) {
	data := filepath.Join(dir, "server")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fmt.Errorf("creating a directory for a server: %w", err)
	}
	if len(s.Servers) > 0 {
		for _, name := range []string{"admin-token", "master-key"} {
			key, err := os.ReadFile(filepath.Join(s.Servers[0].DataDir, name))
			if err == nil {
				err = os.WriteFile(filepath.Join(data, name), key, 0o600)
			}
			if err != nil {
				return nil, fmt.Errorf("copying the keys of a server: %w", err)
			}
		}
	}
	o.Binary, o.Dir, o.Env = run.Program("workflow-server"), dir, os.Environ()
	return lab.StartServer(ctx, o)
}

// Close stops the servers and removes the database.
func (s *Site) Close() {
	for _, server := range s.Servers {
		_ = server.Process.Stop(syscall.SIGTERM, stopPatience)
	}
	s.HTTP.CloseIdleConnections()
	for _, release := range slices.Backward(s.release) {
		release()
	}
}

// Send makes a call with the administrator's token and returns the response, which succeeded. The
// caller must close its body.
func (s *Site) Send(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, body)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	if req.Header.Get("Authorization") == "" {
		req.Header.Set("Authorization", "token "+s.Token)
	}
	resp, err := s.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return resp, nil
}

// Call makes a call with a body in JSON, and decodes the response into out unless it is nil.
func (s *Site) Call(ctx context.Context, method, path string, in, out any) error {
	return jsoncall.Do(ctx, s.HTTP, method, s.URL+path, map[string]string{"Authorization": "token " + s.Token}, in, out)
}

// Pool creates the organization's default pool of agents.
func (s *Site) Pool(ctx context.Context) (id, token string, err error) {
	if id, token, err = s.Servers[0].Pool(ctx, "bench"); err != nil {
		return "", "", err
	}
	return id, token, s.Call(ctx, http.MethodPatch, "/api/orgs/"+s.Organization, map[string]string{"setDefaultAgentPoolID": id}, nil)
}

// Project is the project of all stacks.
const Project = "bench"

// StackPath returns the path of a stack's routes.
func (s *Site) StackPath(stack string) string {
	return "/api/stacks/" + s.Organization + "/" + Project + "/" + stack
}

// NewStack creates a stack.
func (s *Site) NewStack(ctx context.Context, stack string) error {
	return s.Call(ctx, http.MethodPost, "/api/stacks/"+s.Organization+"/"+Project, map[string]string{"stackName": stack}, nil)
}

// Enqueue starts a job of a stack that runs shell text as its pre-run command. pulumi is a stub.
func (s *Site) Enqueue(ctx context.Context, stack, command string, variables map[string]string) (deployment string, err error) {
	var d struct{ ID string }
	err = s.Call(ctx, http.MethodPost, s.StackPath(stack)+"/deployments", map[string]any{
		"operation": "update",
		"operationContext": map[string]any{
			"preRunCommands": []string{command}, "environmentVariables": variables,
			"options": map[string]any{"skipInstallDependencies": true},
		},
	}, &d)
	return d.ID, err
}

// CPU returns the CPU time of the servers.
func (s *Site) CPU() (sum time.Duration, err error) {
	for _, server := range s.Servers {
		used, err := figures.FineCPU(server.Process.Pid())
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// Rested waits until the servers have finished their background work, and returns their CPU seconds.
func (s *Site) Rested(ctx context.Context) (float64, error) {
	const interval, idle = 200 * time.Millisecond, 0.005
	ctx, cancel := context.WithTimeoutCause(ctx, restPatience, fmt.Errorf("the server still works after %s", restPatience))
	defer cancel()
	before := math.Inf(-1)
	err := child.Poll(ctx, interval, func() (bool, error) {
		used, err := s.CPU()
		done := used.Seconds()-before < idle
		before = used.Seconds()
		return done, err
	})
	return before, err
}

// Timed returns the duration of a call in seconds, and the CPU seconds that the servers used for it.
func (s *Site) Timed(ctx context.Context, do func() error) (took, used float64, err error) {
	before, err := s.Rested(ctx)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return 0, 0, err
	}
	took = time.Since(began).Seconds()
	after, err := s.Rested(ctx)
	return took, after - before, err
}

// Memory returns the memory of the server that uses most, in MB: now, and the highest since its start.
func (s *Site) Memory() (now, peak float64, err error) {
	for _, server := range s.Servers {
		size, err := figures.Memory(server.Process.Pid())
		if err != nil {
			return 0, 0, err
		}
		now, peak = max(now, figures.Megabytes(size.Now)), max(peak, figures.Megabytes(size.Peak))
	}
	return now, peak, nil
}
