// Command issuer is a real OpenID provider for tests: the provider of github.com/zitadel/oidc,
// which is independent of the product, with people and clients that tests define. It is a separate
// module, so that none of it can be linked into the product.
package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/zitadel/oidc/v3/pkg/op"
)

func main() {
	dir := flag.String("dir", "", "directory for the file with the issuer's address")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "issuer:", err)
		os.Exit(1)
	}
}

// ready is the content of the file issuer.json.
type ready struct {
	URL string `json:"url"`
	CA  string `json:"ca"` // PEM
}

func run(ctx context.Context, dir string) error {
	certificate, ca, err := newCertificate()
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	url := "https://" + listener.Addr().String()
	handler, err := newHandler(url)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	if err := announce(dir, ready{URL: url, CA: string(ca)}); err != nil {
		return errors.Join(err, server.Close())
	}
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		return server.Shutdown(closing)
	}
}

// announce writes the issuer's address in one rename, so that no reader sees a partial file.
func announce(dir string, r ready) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	draft := filepath.Join(dir, "issuer.json.draft")
	if err := os.WriteFile(draft, data, 0o600); err != nil {
		return err
	}
	return os.Rename(draft, filepath.Join(dir, "issuer.json"))
}

// newHandler serves the provider, the login page, and further calls for tests below /lab/.
func newHandler(url string) (http.Handler, error) {
	storage, err := newStorage()
	if err != nil {
		return nil, err
	}
	config := &op.Config{CodeMethodS256: true, AuthMethodPost: true}
	rand.Read(config.CryptoKey[:])
	provider, err := op.NewProvider(config, storage, op.StaticIssuer(url), op.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	if err != nil {
		return nil, err
	}
	back := op.AuthCallbackURL(provider)
	mux := http.NewServeMux()
	mux.Handle("/", provider)
	mux.HandleFunc("GET "+loginPath, func(w http.ResponseWriter, r *http.Request) {
		id := r.URL.Query().Get("request")
		if err := storage.login(id); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		http.Redirect(w, r, back(op.ContextWithIssuer(r.Context(), url), id), http.StatusFound)
	})
	mux.HandleFunc("POST /lab/people", func(w http.ResponseWriter, r *http.Request) {
		var p person
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&p); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		storage.add(p)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /lab/rotate", func(w http.ResponseWriter, _ *http.Request) {
		if err := storage.rotate(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux, nil
}
