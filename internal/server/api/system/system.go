// Package system serves information about the server itself (health, metrics, capabilities, the keys
// of identity tokens), the schemas of configuration files, and the agent's releases.
package system

import (
	"crypto/subtle"
	"fmt"
	"html"
	"net/http"
	"regexp"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
)

// Server describes the server itself.
type Server struct {
	Metrics *prometheus.Registry
	// MetricsToken returns the bearer token of /metrics. If it is empty, or the function is nil, no
	// caller may read them: behind a proxy, all callers appear to be on this machine.
	MetricsToken func() string
	// Ready returns an error while the server is not ready; nil means always ready.
	Ready func(r *http.Request) error
	// Releases is a directory with a mirror of the agent's releases; "" means none.
	Releases string
}

type serverRoutes struct {
	Server
	externalURL string
}

// Register adds the routes about the server itself.
func Register(rt *web.Router, server Server, externalURL string) {
	s := &serverRoutes{server, externalURL}
	if server.Releases != "" {
		newReleases(server.Releases).register(rt)
	}
	rt.Public(http.MethodGet, "/", s.root)
	rt.Public(http.MethodGet, "/healthz", s.healthz)
	rt.Public(http.MethodGet, "/readyz", s.readyz)
	rt.Public(http.MethodGet, "/metrics", s.metrics)
	registerSchemas(rt)
	rt.Public(http.MethodGet, "/api/capabilities", s.capabilities)
	rt.Public(http.MethodGet, "/api/cli/version", s.cliVersion)
}

func (s *serverRoutes) root(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	fmt.Fprintf(w, "<!DOCTYPE html>\n<title>workflow-server</title>\n"+
		"<p>This server serves the Pulumi Cloud API; to use it, run <code>pulumi login %s</code> "+
		"(<a href=\"https://www.pulumi.com/docs/iac/cli/commands/pulumi_login/\">documentation</a>).\n", html.EscapeString(s.externalURL))
	return nil
}

func (s *serverRoutes) healthz(w http.ResponseWriter, r *http.Request) error {
	return web.WriteJSON(w, r, http.StatusOK, map[string]string{"status": "ok"})
}

func (s *serverRoutes) readyz(w http.ResponseWriter, r *http.Request) error {
	if s.Ready != nil {
		if err := s.Ready(r); err != nil {
			return fault.Wrap(fault.KindUnavailable, err, "the server is not ready; the cause is in its log")
		}
	}
	return web.WriteJSON(w, r, http.StatusOK, map[string]string{"status": "ready"})
}

// metrics responds with the metrics to callers with the metrics token.
func (s *serverRoutes) metrics(w http.ResponseWriter, r *http.Request) error {
	token := ""
	if s.MetricsToken != nil {
		token = s.MetricsToken()
	}
	if token == "" {
		return fault.Forbidden("reading the metrics requires a token, and this server has none; set metrics_token")
	}
	if subtle.ConstantTimeCompare([]byte(web.Bearer(r, "Bearer")), []byte(token)) == 0 {
		return fault.Forbidden("reading the metrics requires the metrics token")
	}
	promhttp.HandlerFor(s.Server.Metrics, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

type capability struct {
	Capability    string         `json:"capability"`
	Version       int            `json:"version,omitempty"`
	Configuration map[string]any `json:"configuration,omitempty"`
}

// capabilities responds with the optional calls that the server implements. Clients use a listed
// call without a fallback, so the list must be exact.
func (s *serverRoutes) capabilities(w http.ResponseWriter, r *http.Request) error {
	return web.WriteJSON(w, r, http.StatusOK, map[string]any{"capabilities": []capability{
		{Capability: "batch-encrypt"},
		{Capability: "begin-update", Version: 1},
		{Capability: "stack-outputs", Version: 1},
		{Capability: "stack-policy-packs", Version: 1},
		{Capability: "deployment-schema-version", Version: 1, Configuration: map[string]any{"version": 4}},
	}})
}

var cliAgentPattern = regexp.MustCompile(`^pulumi-cli/\d+ \(v?(\d+\.\d+\.\d+[0-9A-Za-z.+-]*)`)

// cliVersion responds with the caller's own version. This server does not know the CLI's releases,
// and a newer version would make the CLI prompt its users to upgrade.
func (s *serverRoutes) cliVersion(w http.ResponseWriter, r *http.Request) error {
	version := "3.0.0"
	if m := cliAgentPattern.FindStringSubmatch(r.UserAgent()); m != nil {
		version = m[1]
	}
	return web.WriteJSON(w, r, http.StatusOK, map[string]string{
		"latestVersion": version, "oldestWithoutWarning": "3.0.0", "latestDevVersion": version,
	})
}
