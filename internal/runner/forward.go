package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"workflowagent/internal/connlimit"
	"workflowagent/internal/protocol"
)

// forwardDial bounds the time to connect to the server's address.
const forwardDial = 10 * time.Second

// forward makes the launch's loopback URL reach the server from a container with its own network:
// it listens on the URL's port inside the container and forwards connections to the server's
// address. So jobs use the same URL as all other clients, which stacks store. stop ends all
// connections. Without a server address, forward does nothing.
func forward(ctx context.Context, launch *protocol.Launch) (stop func(), err error) {
	if launch.ServerAddress == "" {
		return func() {}, nil
	}
	at, err := forwardedAddress(launch.ServiceURL)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("forwarding the server's URL %s: %w", launch.ServiceURL, err)
	}
	// A client that waits for the server's answer is not cut off, unless others need its place.
	listener = connlimit.Streams(connlimit.Small, connlimit.Idle).Listener(listener)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // the listener was closed
			}
			all.Go(func() { connect(ctx, client, launch.ServerAddress) })
		}
	})
	return func() {
		cancel()
		listener.Close()
		all.Wait()
	}, nil
}

// forwardedAddress returns the address on loopback to which clients of a URL connect.
func forwardedAddress(serviceURL string) (string, error) {
	u, err := url.Parse(serviceURL)
	if err != nil || !protocol.IsLoopback(u.Host) {
		return "", errors.New("forwarding the server's URL: it is not on loopback")
	}
	host, port := u.Hostname(), u.Port()
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, cmp.Or(port, map[string]string{"http": "80", "https": "443"}[u.Scheme])), nil
}

// connect copies in both directions between a client and a server until both have finished or ctx
// is canceled. A failure is only visible to the client, as a closed connection.
func connect(ctx context.Context, client net.Conn, address string) {
	defer client.Close()
	server, err := (&net.Dialer{Timeout: forwardDial}).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	abort := context.AfterFunc(ctx, func() {
		client.Close()
		server.Close()
	})
	defer abort()
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			if half, ok := pair[0].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
}
