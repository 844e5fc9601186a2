package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/jsoncall"
)

// Server is a running workflow-server.
type Server struct {
	URL          string // URL for clients and jobs
	Token        string // the admin's token
	Organization string
	DataDir      string
	LogFile      string
	Process      *child.Process

	roots *x509.CertPool // of its certificate, or nil
}

// ServerOptions configures a [Server]. Only Binary and Dir are required.
type ServerOptions struct {
	Binary   string // path of workflow-server
	Dir      string // holds the data directory and the log
	Host     string // listen address; "" = 127.0.0.1
	Port     int    // 0 = a free port
	Database string // "" = the default, SQLite in the data directory
	// Certificate lets the server terminate TLS; nil means plain HTTP.
	Certificate *ServerCertificate
	Env         []string
	Args        []string
}

// ServerCertificate is the certificate of a [Server].
type ServerCertificate struct {
	CertFile, KeyFile string
	Roots             *x509.CertPool // the authority that issued it
}

const serverReady = 3 * time.Minute

// StartServer starts a workflow-server and waits until it is ready. The server runs until
// Process.Stop is called or ctx is done.
func StartServer(ctx context.Context, o ServerOptions) (*Server, error) {
	host := o.Host
	if host == "" {
		host = "127.0.0.1"
	}
	port := o.Port
	if port == 0 {
		var err error
		if port, err = child.FreePort(host); err != nil {
			return nil, err
		}
	}
	addr := net.JoinHostPort(host, fmt.Sprint(port))
	s := &Server{
		URL:     "http://" + addr,
		DataDir: filepath.Join(o.Dir, "server"),
		LogFile: filepath.Join(o.Dir, "server.log"),
	}
	if c := o.Certificate; c != nil {
		s.URL, s.roots = "https://"+addr, c.Roots
		o.Args = append(slices.Clone(o.Args), "--tls-cert-file", c.CertFile, "--tls-key-file", c.KeyFile)
	}
	args := []string{"serve", "--listen", addr, "--data-dir", s.DataDir, "--external-url", s.URL, "--outbound-networks", "127.0.0.0/8"}
	if i := slices.Index(o.Args, "--database"); i >= 0 {
		o.Database, o.Args = o.Args[i+1], slices.Delete(slices.Clone(o.Args), i, i+2)
	}
	if o.Database != "" { // its password is refused as an argument
		if o.Env == nil {
			o.Env = os.Environ()
		}
		o.Env = append(slices.Clone(o.Env), "WORKFLOW_SERVER_DATABASE="+o.Database)
	}
	p, err := child.Start(ctx, o.Binary, append(args, o.Args...), o.Env, s.LogFile)
	if err != nil {
		return nil, fmt.Errorf("starting the server: %w", err)
	}
	s.Process = p
	if err := s.waitReady(ctx); err != nil {
		_ = p.Stop(syscall.SIGTERM, child.Patience)
		return nil, err
	}
	token, err := os.ReadFile(filepath.Join(s.DataDir, "admin-token"))
	if err != nil {
		_ = p.Stop(syscall.SIGTERM, child.Patience)
		return nil, fmt.Errorf("reading the server's admin token: %w", err)
	}
	s.Token = strings.TrimSpace(string(token))
	var user struct {
		Organizations []struct {
			GitHubLogin string `json:"githubLogin"`
		} `json:"organizations"`
	}
	if err := s.Call(ctx, http.MethodGet, "/api/user", nil, &user); err != nil || len(user.Organizations) == 0 {
		_ = p.Stop(syscall.SIGTERM, child.Patience)
		return nil, fmt.Errorf("reading the server's organization: %w", errors.Join(err, errors.New("no organization")))
	}
	s.Organization = user.Organizations[0].GitHubLogin
	return s, nil
}

func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serverReady)
	defer cancel()
	client := s.client(5 * time.Second)
	err := child.Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		select {
		case <-s.Process.Done():
			return false, fmt.Errorf("the server exited before it was ready (%w); last lines of its log:\n%s", s.Process.Err(), child.Tail(s.LogFile, 20))
		default:
			return jsoncall.Do(ctx, client, http.MethodGet, s.URL+"/readyz", nil, nil, nil) == nil, nil
		}
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("the server was not ready within %s; last lines of its log:\n%s", serverReady, child.Tail(s.LogFile, 20))
	}
	return err
}

// client returns a client that trusts the server's authority.
func (s *Server) client(timeout time.Duration) *http.Client {
	client := &http.Client{Timeout: timeout}
	if s.roots != nil {
		client.Transport = &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12}}
	}
	return client
}

// Call sends an API request as the admin. Unless they are nil, it encodes in as the JSON body, and
// decodes the response into out. A status other than 2xx is an error.
func (s *Server) Call(ctx context.Context, method, path string, in, out any) error {
	return s.CallAs(ctx, "token "+s.Token, method, path, in, out)
}

// CallAs is [Server.Call] with a caller's own Authorization header.
func (s *Server) CallAs(ctx context.Context, authorization, method, path string, in, out any) error {
	return jsoncall.Do(ctx, s.client(time.Minute), method, s.URL+path, map[string]string{"Authorization": authorization}, in, out)
}

// Pool creates an agent pool and returns its ID and token.
func (s *Server) Pool(ctx context.Context, name string) (id, token string, err error) {
	var out struct {
		ID         string `json:"id"`
		TokenValue string `json:"tokenValue"`
	}
	in := map[string]string{"name": name, "description": ""}
	if err := s.Call(ctx, http.MethodPost, "/api/orgs/"+s.Organization+"/agent-pools", in, &out); err != nil {
		return "", "", fmt.Errorf("creating an agent pool: %w", err)
	}
	return out.ID, out.TokenValue, nil
}

// AgentOptions configures an [Agent].
type AgentOptions struct {
	Binary     string // path of customer-managed-workflow-agent
	Dir        string // holds the state directory, the configuration and the log
	ServiceURL string
	Token      string
	Target     string            // docker or process
	Settings   map[string]string // additional PULUMI_AGENT_… settings by key, e.g. "max_concurrent_jobs"
	Env        []string          // complete environment; the settings are added to it
	Args       []string          // additional arguments for its run command
}

// Agent is a running agent.
type Agent struct {
	LogFile string
	Process *child.Process
	program string
	env     []string
}

// Run runs another command of the agent's program with the settings of the agent, and returns its output.
func (a *Agent) Run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := child.Command(ctx, a.program, args...)
	cmd.Env = a.env
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running the agent's %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// StartAgent starts an agent that is configured by its environment. It returns once the process has
// started, which can be before the agent is online.
func StartAgent(ctx context.Context, o AgentOptions) (*Agent, error) {
	state := filepath.Join(o.Dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fmt.Errorf("starting the agent: %w", err)
	}
	settings := map[string]string{
		"token":            o.Token,
		"service_url":      o.ServiceURL,
		"deploy_target":    o.Target,
		"state_directory":  state,
		"http_server_port": "0",
		"polling_interval": "2s",
	}
	maps.Copy(settings, o.Settings)
	env := append([]string{}, o.Env...)
	for key, value := range settings {
		env = append(env, "PULUMI_AGENT_"+strings.ToUpper(key)+"="+value)
	}
	a := &Agent{LogFile: filepath.Join(o.Dir, "agent.log"), program: o.Binary, env: env}
	p, err := child.Start(ctx, o.Binary, append([]string{"run"}, o.Args...), env, a.LogFile)
	if err != nil {
		return nil, fmt.Errorf("starting the agent: %w", err)
	}
	a.Process = p
	return a, nil
}
