package protocol_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/protocol"
)

func TestIdentityToken(t *testing.T) {
	status, body := http.StatusOK, `{"token":"a.b.c","expiresAt":"2026-01-02T03:04:05Z"}`
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.URL.Path != "/api/workflow/jobs/j/oidc-token" || string(sent) != `{"audience":"vault"}` {
			t.Errorf("got %s %s %s", r.Method, r.URL.Path, sent)
		}
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
	request := func() (protocol.IdentityToken, error) { return c.Job("j", secret).IdentityToken(t.Context(), "vault") }
	token, err := request()
	if want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); err != nil || token.Token != "a.b.c" || !token.ExpiresAt.Equal(want) {
		t.Fatalf("got %+v, %v", token, err)
	}
	for _, body = range []string{
		"", "{}", `{"token":"a.b.c"}`, `{"expiresAt":"2026-01-02T03:04:05Z"}`, "<html>",
		`{"token":"a\nb","expiresAt":"2026-01-02T03:04:05Z"}`, `{"token":"` + strings.Repeat("a", 33<<10) + `","expiresAt":"2026-01-02T03:04:05Z"}`,
	} {
		if token, err := request(); err == nil {
			t.Errorf("accepted %.60q as %+v", body, token)
		}
	}
	status, body = http.StatusTooManyRequests, `{"code":429,"message":"Too Many Requests: wait"}`
	if _, err := request(); protocol.StatusCode(err) != http.StatusTooManyRequests || protocol.Permanent(err) {
		t.Errorf("got %v", err)
	}
	status, body = http.StatusGone, `{"code":410,"message":"Gone"}`
	if _, err := request(); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("got %v", err)
	}
}
