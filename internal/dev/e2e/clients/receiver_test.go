package clients

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

type receivedKey struct{}

// receiver starts a receiver of webhooks, which rejects requests without a valid signature.
func receiver(ts *testscript.TestScript, neg bool, args []string) {
	got, ok := ts.Value(receivedKey{}).(chan [2]string)
	if !ok || len(args) != 1 {
		ts.Fatalf("usage: receiver SECRET")
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mac := hmac.New(sha256.New, []byte(args[0]))
		mac.Write(body)
		if err != nil || r.Header.Get("Pulumi-Webhook-Signature") != hex.EncodeToString(mac.Sum(nil)) {
			http.Error(w, "the signature is invalid", http.StatusUnauthorized)
			return
		}
		got <- [2]string{r.Header.Get("Pulumi-Webhook-Kind"), string(body)}
		io.WriteString(w, "received")
	}))
	ts.Defer(s.Close)
	ts.Setenv("RECEIVER", s.URL)
}

// received writes the body of the next request to standard output.
func received(ts *testscript.TestScript, neg bool, args []string) {
	got, ok := ts.Value(receivedKey{}).(chan [2]string)
	if !ok || len(args) != 1 {
		ts.Fatalf("usage: received KIND")
	}
	select {
	case next := <-got:
		if next[0] != args[0] {
			ts.Fatalf("received %s, want %s: %s", next[0], args[0], next[1])
		}
		fmt.Fprintln(ts.Stdout(), next[1])
	case <-time.After(5 * time.Minute):
		ts.Fatalf("received nothing, want %s", args[0])
	}
}
