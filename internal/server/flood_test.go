package server

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
)

// TestWebhookFloodThroughProxy floods an integration through a trusted proxy: with bodies that never arrive, with wrong
// signatures, and with a forged address of the forge. The forge's deliveries, through the same proxy, are accepted.
func TestWebhookFloodThroughProxy(t *testing.T) {
	const forge, attackers = "198.51.100.1", 60
	dir := t.TempDir()
	c := must.Get(configWith(t, dir, map[string]string{
		"client_address": "x-forwarded-for", "trusted_proxies": "127.0.0.1", "outbound_networks": "127.0.0.0/8",
	}))(t)
	s := must.Get(New(t.Context(), c, "v1", storetest.Log(), io.Discard))(t)
	s.Only()
	stop := run(t, s)
	defer func() { must.OK(t, stop()) }()
	admin := "token " + strings.TrimSpace(string(must.Get(os.ReadFile(filepath.Join(dir, "admin-token")))(t)))
	send := func(path, body string, header map[string]string) (int, []byte) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+path, strings.NewReader(body)))(t)
		for name, value := range header {
			req.Header.Set(name, value)
		}
		res := must.Get(http.DefaultClient.Do(req))(t)
		defer res.Body.Close()
		return res.StatusCode, must.Get(io.ReadAll(res.Body))(t)
	}
	status, text := send("/api/console/orgs/acme/integrations/custom", `{"name": "lab", "baseUrl": "http://127.0.0.1:1"}`, map[string]string{"Authorization": admin})
	var made struct{ ID, WebhookSecret string }
	if err := json.Unmarshal(text, &made); status != http.StatusCreated || err != nil {
		t.Fatalf("%d %s", status, text)
	}
	delivery := `{"event": "push", "branch": "main", "commit": "` + strings.Repeat("a", 40) + `", "repoUrl": "http://127.0.0.1:1/team/infra"}`
	deliver := func(secret, from string) int {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(delivery))
		status, _ := send("/workflow/generic-vcs", delivery, map[string]string{
			"X-Generic-VCS-Integration-ID": made.ID, "X-Generic-VCS-Signature": "v1=" + hex.EncodeToString(mac.Sum(nil)), "X-Forwarded-For": from,
		})
		return status
	}
	if status := deliver(made.WebhookSecret, forge); status != http.StatusAccepted {
		t.Fatalf("before the flood: %d", status)
	}

	ctx, end := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	for n := range attackers {
		from := fmt.Sprintf("%s, 192.0.2.%d", forge, n) // the proxy has appended the true address
		flood.Go(func() { slowDeliveries(ctx, s.listener.Addr().String(), made.ID, from) })
	}
	await(t, "waiting until strangers wait for slots", func(context.Context) bool {
		began := time.Now()
		status := deliver("wrong", "203.0.113.7")
		if status == http.StatusAccepted {
			t.Error("a wrong signature is accepted")
		}
		return status == http.StatusServiceUnavailable || time.Since(began) > time.Second
	})
	for range 3 {
		began := time.Now()
		// Those that share slots with the flood wait for 5 s and are refused, and this one waits for none.
		if status := deliver(made.WebhookSecret, forge); status != http.StatusAccepted || time.Since(began) > 4*time.Second {
			t.Errorf("during the flood, a delivery of the forge gets %d after %v", status, time.Since(began))
		}
	}
	end()
	flood.Wait()
}

// slowDeliveries sends deliveries without bodies, one after another.
func slowDeliveries(ctx context.Context, address, integration, from string) {
	for ctx.Err() == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return
		}
		after := context.AfterFunc(ctx, func() { _ = conn.Close() })
		fmt.Fprintf(conn, "POST /workflow/generic-vcs HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: %s\r\nX-Generic-VCS-Integration-ID: %s\r\nContent-Length: 1000\r\n\r\n{", from, integration)
		_, _ = io.Copy(io.Discard, conn)
		after()
		_ = conn.Close()
	}
}

// TestFloodOfWrongTokens sends many wrong tokens from the address of a user. None of them gets 429, on which the CLI
// gives up, and the user's token works.
func TestFloodOfWrongTokens(t *testing.T) {
	dir := t.TempDir()
	s := must.Get(New(t.Context(), testConfig(t, dir), "v1", storetest.Log(), io.Discard))(t)
	s.Only()
	stop := run(t, s)
	defer func() { must.OK(t, stop()) }()
	admin := string(bytes.TrimSpace(must.Get(os.ReadFile(filepath.Join(dir, "admin-token")))(t)))
	var flood sync.WaitGroup
	for range 8 {
		flood.Go(func() {
			for n := range 100 {
				if status := get(t, s.URL()+"/api/user", fmt.Sprint("pul-", n)); status != http.StatusUnauthorized && status != http.StatusServiceUnavailable {
					t.Errorf("a wrong token gets %d", status)
				}
			}
		})
	}
	flood.Wait()
	if status := get(t, s.URL()+"/api/user", admin); status != http.StatusOK {
		t.Errorf("a right token gets %d", status)
	}
}
