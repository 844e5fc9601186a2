package health

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/connlimit"
	"workflowagent/internal/retry"
)

var listenRetry = retry.Policy{First: 5 * time.Second, Max: time.Minute}

// Serve serves handler on addr (host:port) until ctx is canceled. It then waits a few seconds for
// open requests. An addr without a host means all addresses, as in [net.Listen]. An empty addr or
// port 0 disables the server. If listening fails, Serve logs a warning and retries, because another
// process may be about to release the port.
func Serve(ctx context.Context, addr string, handler http.Handler, log *logrus.Entry) {
	if _, port, err := net.SplitHostPort(addr); addr == "" || (err == nil && port == "0") {
		log.Debug("the health server is disabled")
		return
	}
	listener := listen(ctx, addr, log)
	if listener == nil {
		return
	}
	serveOn(ctx, listener, addr, handler, log)
}

func listen(ctx context.Context, addr string, log *logrus.Entry) net.Listener {
	var config net.ListenConfig
	for failures := 0; ; failures++ {
		listener, err := config.Listen(ctx, "tcp", addr)
		if err == nil {
			return listener
		}
		if ctx.Err() != nil {
			return nil
		}
		log.WithError(err).Warnf("starting the health server on %s failed; the agent works without it and retries: "+
			"stop the process that uses the port, or set http_server_port to another port, or to 0 for no server", addr)
		if listenRetry.Wait(ctx, failures, nil) != nil {
			return nil
		}
	}
}

func serveOn(ctx context.Context, listener net.Listener, addr string, handler http.Handler, log *logrus.Entry) {
	server := &http.Server{
		Handler:           onlyKnownHosts(listener.Addr(), addr, handler),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       connlimit.Idle,
		MaxHeaderBytes:    16 << 10,
	}
	listener = connlimit.HTTP(server, connlimit.Small).Listener(listener)
	log.Infof("the health server listens on http://%s/healthz", listener.Addr())
	Until(ctx, server, listener, func(err error) {
		log.WithError(err).Warn("the health server has stopped; the agent works without it until the agent is restarted")
	})
}
