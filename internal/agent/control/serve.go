package control

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/health"
	"workflowagent/internal/agent/status"
)

// Agent is the agent that the control socket exposes.
type Agent struct {
	Report func() status.Report
	Drain  func()          // returns immediately
	Over   <-chan struct{} // closed when the agent has finished
}

// Serve serves requests on listener until ctx is canceled. It then waits a few seconds for open
// requests, closes the listener and returns.
func Serve(ctx context.Context, listener net.Listener, agent Agent, log *logrus.Entry) {
	server := &http.Server{
		Handler:           handler(agent),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		// There is no WriteTimeout, because a request that waits for a drain can wait as long as
		// the jobs run.
	}
	health.Until(ctx, server, listener, func(err error) {
		log.WithError(err).Warn("the control socket has stopped: the commands status and drain do not reach this agent until it is restarted")
	})
}

// handler serves GET /status and POST /drain. With wait=true, the response to a drain is sent when
// the agent has stopped, and contains the last report.
func handler(agent Agent) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, r status.Report) {
		w.Header().Set("Content-Type", "application/json")
		//nolint:errcheck,errchkjson // A client that went away gets nothing; the error has no recipient.
		json.NewEncoder(w).Encode(r)
	}
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, agent.Report()) })
	mux.HandleFunc("POST /drain", func(w http.ResponseWriter, r *http.Request) {
		agent.Drain()
		report := agent.Report()
		if r.URL.Query().Get("wait") == "true" {
			select {
			case <-agent.Over:
			case <-r.Context().Done():
				return
			}
			report = agent.Report()
			report.Over = true
			report.Judge()
		}
		answer(w, report)
	})
	return mux
}
