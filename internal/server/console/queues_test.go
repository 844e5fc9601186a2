package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server"
)

// visitor is a browser without script that has signed in to a real server.
type visitor struct {
	t      *testing.T
	url    string
	token  string // access token for the API
	cookie string
}

func visit(t *testing.T) *visitor {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	cfg, err := server.LoadConfig("", map[string]string{"listen": "127.0.0.1:0", "data_dir": dir, "organization": "acme"}, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(t.Context(), cfg, "v1.2.0", storetest.Log(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stopping the server: %v", err)
		}
	})
	text, err := os.ReadFile(filepath.Join(dir, "admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	v := &visitor{t: t, url: s.URL(), token: strings.TrimSpace(string(text))}
	_, header, _ := v.send(http.MethodPost, "/-/login", url.Values{"token": {v.token}, "next": {"/acme"}})
	for _, c := range header.Values("Set-Cookie") {
		if name, _, _ := strings.Cut(c, ";"); strings.Contains(name, "session=") {
			v.cookie = name
		}
	}
	if v.cookie == "" {
		t.Fatal("signing in set no session")
	}
	return v
}

func (v *visitor) do(req *http.Request) (int, http.Header, string) {
	v.t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(body)
}

// send requests a page, with a form for POST.
func (v *visitor) send(method, path string, form url.Values) (int, http.Header, string) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, v.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("Cookie", v.cookie)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", v.url)
	}
	return v.do(req)
}

// page returns the text of a page without its tags.
func (v *visitor) page(path string) string {
	v.t.Helper()
	code, _, body := v.send(http.MethodGet, path, nil)
	if code != http.StatusOK {
		v.t.Fatalf("GET %s: status %d: %s", path, code, plain(body))
	}
	return plain(body)
}

var tags = regexp.MustCompile(`(?s)<[^>]*>`)

func plain(body string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(body, " "))), " ")
}

func (v *visitor) post(path string, form url.Values, want int) string {
	v.t.Helper()
	code, _, body := v.send(http.MethodPost, path, form)
	if code != want {
		v.t.Fatalf("POST %s: status %d, want %d: %s", path, code, want, plain(body))
	}
	return body
}

// api calls the API with the visitor's token, or an agent's.
func (v *visitor) api(method, path, token, body string, header ...string) map[string]any {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, v.url+path, bytes.NewBufferString(body))
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("Authorization", "token "+token)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	code, _, text := v.do(req)
	if code >= http.StatusBadRequest {
		v.t.Fatalf("%s %s: status %d: %s", method, path, code, text)
	}
	var out map[string]any
	if text != "" && json.Unmarshal([]byte(text), &out) != nil {
		return nil
	}
	return out
}

func (v *visitor) stack(name string) {
	v.t.Helper()
	v.api(http.MethodPost, "/api/stacks/acme/web", v.token, fmt.Sprintf(`{"stackName":%q}`, name))
	v.api(http.MethodPost, "/api/stacks/acme/web/"+name+"/deployments/settings", v.token, `{}`)
}

func (v *visitor) deploy(stack string) string {
	v.t.Helper()
	out := v.api(http.MethodPost, "/api/stacks/acme/web/"+stack+"/deployments", v.token, `{"operation":"update"}`)
	id, _ := out["id"].(string)
	if id == "" {
		v.t.Fatalf("creating a deployment returned %v", out)
	}
	return id
}

func (v *visitor) contains(what, text string, wants ...string) {
	v.t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			v.t.Errorf("%s does not contain %q:\n%s", what, want, text)
		}
	}
}

var (
	poolLink  = regexp.MustCompile(`/acme/-/pools/([0-9a-f-]{36})`)
	poolToken = regexp.MustCompile(`<code>(pul-[^<]+)</code>`)
)

// TestQueuesAndPools follows an operator: an empty organization, a pool, queued deployments with their
// reasons, an agent that takes one, pauses and cancels.
func TestQueuesAndPools(t *testing.T) {
	v := visit(t)
	v.contains("the empty home", v.page("/acme"), "Three steps to the first deployment", "pulumi login "+v.url)
	v.contains("the empty list", v.page("/acme/-/deployments"), "No deployment has finished yet.", "0 of 150 running")
	v.contains("the list without pools", v.page("/acme/-/pools"), "No agent pool exists yet")

	v.stack("dev")
	v.stack("prod")
	first := v.deploy("dev")
	v.contains("the queue without a pool", v.page("/acme/-/deployments"), "No agent pool exists in the organization.", "Create a pool")

	v.contains("the form with an error", plain(v.post("/acme/-/pools", url.Values{"name": {" "}}, http.StatusUnprocessableEntity)), "must not be empty.")
	made := v.post("/acme/-/pools", url.Values{"name": {"eu"}}, http.StatusOK)
	pool := "/acme/-/pools/" + poolLink.FindStringSubmatch(made)[1]
	token := poolToken.FindStringSubmatch(made)[1]
	v.contains("a new pool", v.page(pool), "Waiting for the first agent", "default", "1 queued", "configure --service-url "+v.url, "No agent of the pool")
	for _, way := range []string{"deb", "rpm", "homebrew", "docker", "kubernetes"} {
		v.contains("the way "+way, v.page(pool+"?install="+way), v.url)
	}
	if text := v.page(pool); strings.Contains(text, token) {
		t.Error("the token is shown again")
	}

	// An agent takes the first deployment; the others wait behind it or for the agent.
	agent := []string{"X-Workflow-Agent-Id", "a1", "X-Workflow-Agent-Hostname", "build-1"}
	if claim := v.api(http.MethodGet, "/api/deployments/poll", token, "", agent...); claim["deploymentID"] != first {
		t.Fatalf("the poll returned %v, want deployment %s", claim, first)
	}
	second := v.deploy("dev")
	v.contains("the active list", v.page("/acme/-/deployments"), "web/dev #1", "claimed", "1 of 150 running", "in eu")
	v.contains("the queue", v.page("/acme/-/deployments?show=queued"), "Waiting for deployment #1 of the stack, which is running (update by admin, since", "2nd of its stack")
	v.contains("the stack's queue", v.page("/acme/web/dev/deployments?show=queued"), "Waiting for deployment #1", "Pause the stack")
	v.contains("the pool with an agent", v.page(pool), "1 of 1 online", "busy", "web/dev #1")
	v.contains("the home", v.page("/acme"), "Running now", "web/dev #1", "Queue", "My stacks")
	details := v.api(http.MethodGet, "/api/stacks/acme/web/dev/deployments/"+second, v.token, "")
	why, _ := details["queue"].(map[string]any)
	if why["reason"] != "earlier-deployment" || !strings.Contains(fmt.Sprint(why["text"]), "Waiting for deployment #1") || fmt.Sprint(why["ahead"]) != "1" {
		t.Errorf("the API explains the second deployment with %v", why)
	}

	v.post("/acme/-/deployments/pause", nil, http.StatusSeeOther)
	v.contains("the paused queue", v.page("/acme/-/deployments?show=queued"), "All deployments are paused by admin", "Deployments of the organization are paused by admin since", "Resume all deployments")
	v.post("/acme/-/deployments/resume", nil, http.StatusSeeOther)
	v.post("/acme/-/deployments/cancel", url.Values{"id": {second, "unknown"}}, http.StatusSeeOther)
	v.contains("the finished list", v.page("/acme/-/deployments?show=finished"), "web/dev #2", "cancelled", "Cancelled by admin.")
	if text := v.page("/acme/-/deployments?show=finished&status=failed"); strings.Contains(text, "web/dev #2") {
		t.Errorf("the filter by status selects a cancelled deployment: %s", text)
	}
	v.contains("mine", v.page("/acme/-/deployments?show=finished&mine=on&operation=update&initiator=api"), "web/dev #2")

	// Tokens: one more, and both revoked; then the pool cannot hand anything out.
	v.contains("a further token", v.post(pool+"/tokens", url.Values{"description": {"second host"}}, http.StatusOK), "shows this token only now")
	_, _, body := v.send(http.MethodGet, pool, nil)
	for _, m := range regexp.MustCompile(`action="(`+regexp.QuoteMeta(pool)+`/tokens/[^"]+/revoke)"`).FindAllStringSubmatch(body, -1) {
		v.post(m[1], nil, http.StatusSeeOther)
	}
	v.contains("the pool without tokens", v.page(pool), "The pool has no token, so no agent can connect.")

	v.contains("the deletion without a name", plain(v.post(pool+"/delete", url.Values{"confirm": {"x"}}, http.StatusUnprocessableEntity)), "This is not the name of the pool.")
	v.contains("the deletion of a busy pool", plain(v.post(pool+"/delete", url.Values{"confirm": {"eu"}}, http.StatusUnprocessableEntity)), "Agent pool is in use")
	v.post(pool+"/delete", url.Values{"confirm": {"eu"}, "force": {"on"}}, http.StatusSeeOther)
	v.contains("the server's page", v.page("/-/server"), "The server is ready.", "v1.2.0", "SQLite, ", "deployments")
}

// TestQueuesNeedASession checks that the pages are closed to visitors who have not signed in, and that
// actions do not follow GET.
func TestQueuesNeedASession(t *testing.T) {
	v := visit(t)
	v.cookie = ""
	for _, path := range []string{"/acme", "/acme/-/deployments", "/acme/-/pools", "/-/server", "/acme/web/dev/deployments"} {
		if code, header, _ := v.send(http.MethodGet, path, nil); code != http.StatusSeeOther || !strings.HasPrefix(header.Get("Location"), "/-/login") {
			t.Errorf("GET %s: status %d to %q, want a redirect to the sign-in", path, code, header.Get("Location"))
		}
	}
	for _, path := range []string{"/acme/-/deployments/pause", "/acme/-/pools", "/acme/-/deployments/cancel"} {
		if code, _, _ := v.send(http.MethodPost, path, nil); code != http.StatusUnauthorized && code != http.StatusSeeOther {
			t.Errorf("POST %s: status %d, want a refusal", path, code)
		}
	}
}
