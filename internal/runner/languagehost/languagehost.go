// Package languagehost is a language host of the pulumi CLI for policy packs that are programs: a
// pack with "runtime: executable" has nothing to install, and the CLI runs the program in the
// pack's directory. So packs need neither Node.js nor Python.
//
// The CLI and its plugins speak gRPC. The host serves the few calls with net/http, because package
// grpc would add megabytes to the runner.
package languagehost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// Runtime is the runtime of packs that are programs.
const Runtime = "executable"

// Program is the name under which the CLI looks for the host.
const Program = "pulumi-language-" + Runtime

const (
	// stopTime bounds the time that a pack has to exit after it was interrupted. The CLI kills the
	// host after 5 seconds.
	stopTime = 3 * time.Second
	// headerTime bounds the time in which a client sends the header of a call.
	headerTime = time.Minute
)

// Serve serves the calls of the CLI until ctx is done or stdin, which the CLI keeps open, ends. It
// prints the port on stdout, as the CLI expects.
func Serve(ctx context.Context, stdin *os.File, stdout io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for the pulumi CLI: %w", err)
	}
	server := &http.Server{
		Handler:           host{},
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: headerTime,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() { stopped <- stop(server) })
	if _, err := fmt.Fprintln(stdout, listener.Addr().(*net.TCPAddr).Port); err != nil {
		return errors.Join(fmt.Errorf("reporting the port to the pulumi CLI: %w", err), listener.Close())
	}
	if info, err := stdin.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			cancel() // a killed CLI sends no signal
		}()
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the pulumi CLI: %w", err)
	}
	return <-stopped
}

// stop ends the server after the packs, which end with its context.
func stop(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime+time.Second)
	defer cancel()
	if server.Shutdown(ctx) == nil {
		return nil
	}
	return server.Close()
}
