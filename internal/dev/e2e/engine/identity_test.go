package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// shortLived is a proxy between agents and a server that makes identity tokens 30 seconds old and
// their lifetime 40 seconds long. Runners take both from the claims; only clouds check signatures,
// which the proxy makes invalid.
type shortLived struct {
	URL    string
	target *url.URL // the server's; set before the first request

	mu     sync.Mutex
	issued []string // SHA-256 of the tokens that runners have requested
}

func newShortLived(t *testing.T) *shortLived {
	t.Helper()
	p := &shortLived{}
	front := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(p.target)
			r.Out.Header.Del("Accept-Encoding") // the proxy changes bodies
		},
		ModifyResponse: p.shorten,
	})
	t.Cleanup(front.Close)
	p.URL = front.URL
	return p
}

func (p *shortLived) shorten(r *http.Response) error {
	member := ""
	switch path := r.Request.URL.Path; {
	case r.StatusCode != http.StatusOK:
	case path == "/api/deployments/poll":
		member = "oidcToken"
	case strings.HasSuffix(path, "/oidc-token"):
		member = "token"
	}
	if member == "" {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var object map[string]json.RawMessage
	var token string
	if err := json.Unmarshal(body, &object); err != nil {
		return err
	}
	if err := json.Unmarshal(object[member], &token); err != nil {
		return err
	}
	if token, err = aged(token); err != nil {
		return err
	}
	if member == "token" {
		sum := sha256.Sum256([]byte(token))
		p.mu.Lock()
		p.issued = append(p.issued, hex.EncodeToString(sum[:]))
		p.mu.Unlock()
	}
	object[member] = json.RawMessage(strconv.Quote(token))
	if body, err = json.Marshal(object); err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// aged returns a token with other times.
func aged(token string) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", fmt.Errorf("%d parts of a token", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", err
	}
	var claims map[string]any
	if err := json.Unmarshal(payload, &claims); err != nil {
		return "", err
	}
	issued := time.Now().Add(-30 * time.Second)
	claims["iat"], claims["exp"] = issued.Unix(), issued.Add(40*time.Second).Unix()
	if payload, err = json.Marshal(claims); err != nil {
		return "", err
	}
	parts[1] = base64.RawURLEncoding.EncodeToString(payload)
	return strings.Join(parts, "."), nil
}

// TestEngineRenewsIdentityToken waits in a container until the file with the identity token has
// changed twice.
func TestEngineRenewsIdentityToken(t *testing.T) {
	ctx := t.Context()
	proxy := newShortLived(t) // closed after the agents have stopped
	w, engine, image := harness.StartEngineSite(t, harness.OnLoopback)
	var err error
	if proxy.target, err = url.Parse(w.Server.URL); err != nil {
		t.Fatal(err)
	}
	w.AgentURL = proxy.URL
	must.Get(w.StartAgent(ctx, "docker", map[string]string{"pull_image": "false"}, "DOCKER_HOST="+engine.Host))(t)
	s := w.NewStack(ctx, t, "box", "dev", image, nil)
	d := s.Finish(ctx, t, s.Deploy(ctx, t, "update", w.Repo(ctx, t).URL, `
last=$PULUMI_OIDC_TOKEN
for change in 1 2; do
	until now=$(cat "$PULUMI_OIDC_TOKEN_FILE") && [ "$now" != "$last" ]; do sleep 0.2; done
	last=$now
	echo "renewed: $(printf %s "$now" | sha256sum)"
done
[ "$(cat /mnt/pulumi/pulumi.oidc)" = "$last" ] && echo the official path has it too
`))
	log := s.Log(ctx, t, d)
	if d.Status != "succeeded" || !strings.Contains(log, "the official path has it too") {
		t.Fatalf("ended as %+v:\n%s", d, log)
	}
	var seen []string
	for _, match := range regexp.MustCompile(`renewed: ([0-9a-f]{64})`).FindAllStringSubmatch(log, -1) {
		seen = append(seen, match[1])
	}
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	// The first tokens can have been replaced before the command began.
	if len(seen) != 2 || slices.Index(proxy.issued, seen[0]) < 0 || slices.Index(proxy.issued, seen[1]) <= slices.Index(proxy.issued, seen[0]) {
		t.Errorf("the file had the tokens %v, and the server has issued %v:\n%s", seen, proxy.issued, log)
	}
}
