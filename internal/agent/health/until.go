package health

import (
	"context"
	"errors"
	"io"
	stdlog "log" //nolint:depguard // the type that http.Server requires; the logger discards everything
	"net"
	"net/http"
	"time"
)

const shutdownTime = 3 * time.Second

// Until serves requests on listener until ctx is canceled. It then waits a few seconds for open
// requests, closes the listener and returns. If the server stops earlier, Until calls failed with
// the reason and still waits for ctx. It discards the server's log, which clients could fill with
// invalid requests.
func Until(ctx context.Context, server *http.Server, listener net.Listener, failed func(error)) {
	server.ErrorLog = stdlog.New(io.Discard, "", 0)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		if err := server.Shutdown(deadline); err != nil {
			//nolint:errcheck // The listener is closed already; this cuts the connections left.
			server.Close()
		}
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		failed(err)
		<-ctx.Done()
	}
	<-stopped
}
