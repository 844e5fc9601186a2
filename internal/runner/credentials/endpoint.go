package credentials

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"workflowagent/internal/connlimit"
	"workflowagent/internal/redact"
)

// tokenEndpoint gives identity tokens to the job's steps, as GitHub's runners do. It listens only on
// a loopback address, and requires a random bearer token.
type tokenEndpoint struct {
	url    string
	bearer string
	server *http.Server
	done   chan struct{}
}

// serveTokens starts the endpoint. [Keeper.Close] ends it.
func (k *Keeper) serveTokens() (*tokenEndpoint, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // takes no time
	if err != nil {
		return nil, fmt.Errorf("offering identity tokens to the job's steps: %w", err)
	}
	e := &tokenEndpoint{
		// Some clients append "&audience=…".
		url:    "http://" + listener.Addr().String() + "/token?version=1",
		bearer: rand.Text(),
		done:   make(chan struct{}),
	}
	if err := k.opts.Mask(redact.Secret{Name: "ARM_OIDC_REQUEST_TOKEN", Value: e.bearer}); err != nil {
		_ = listener.Close()
		return nil, err
	}
	e.server = &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { k.answer(e.bearer, w, r) }),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: connlimit.Idle, MaxHeaderBytes: 16 << 10,
	}
	limited := connlimit.HTTP(e.server, connlimit.Small).Listener(listener)
	go func() {
		defer close(e.done)
		_ = e.server.Serve(limited) // returns when the endpoint is closed
	}()
	k.mu.Lock()
	k.local = e
	k.mu.Unlock()
	return e, nil
}

// answer responds with the current token. It ignores the audience that a client requests, because
// the token's audience is the one that the trust policies of the organization name.
func (k *Keeper) answer(bearer string, w http.ResponseWriter, r *http.Request) {
	if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+bearer)) != 1 {
		http.Error(w, "the bearer token is missing or wrong", http.StatusUnauthorized)
		return
	}
	if r.Method != http.MethodGet || r.URL.Path != "/token" {
		http.NotFound(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), stepTimeout)
	defer cancel()
	t, err := k.freshToken(ctx)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"value": t.text}) // the client has gone
}

func (e *tokenEndpoint) close() {
	_ = e.server.Close() // closes connections, which only the job's processes had
	<-e.done
}
