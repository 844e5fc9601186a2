package health

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func listenLocal(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// TestUntil checks that an open request receives its response after the context is canceled, and
// that the port is then closed.
func TestUntil(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	listener := listenLocal(t)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stop()
		_, _ = io.WriteString(w, "answer")
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Until(ctx, server, listener, func(err error) { t.Errorf("the server failed: %v", err) })
	}()
	url := "http://" + listener.Addr().String()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || string(body) != "answer" {
		t.Errorf("got %q, %v", body, err)
	}
	<-ended
	if _, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String()); err == nil {
		t.Error("the server still listens")
	}
}

// TestUntilFails checks that Until reports a server failure and still waits for the context.
func TestUntilFails(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	listener := listenLocal(t)
	listener.Close()
	said := ""
	Until(ctx, &http.Server{}, listener, func(err error) {
		said = err.Error()
		stop()
	})
	if !strings.Contains(said, "closed") {
		t.Errorf("the reason is %q, want a closed listener", said)
	}
}
