package forgetest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Installation is the id of the fake's GitHub App on the account that owns its repository, and AppID
// that of the app.
const (
	AppID        = "77"
	Installation = "88"
)

// registration is a GitHub App of the fake.
type registration struct {
	manifest  map[string]any
	owner     string
	code      string // works once
	installed bool
	attempts  []map[string]any // to hand over deliveries, the oldest first
}

// GitHubWithoutApp starts a fake GitHub where an app can be registered.
func GitHubWithoutApp(t *testing.T) *GitHubSite { return newGitHub(t, nil) }

// Install installs the registered app on the account that owns it.
func (g *GitHubSite) Install() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.registered.installed = true
}

// BaseURL is the address of the fake.
func (g *GitHubSite) BaseURL() string { return g.server.URL }

// Attempt records an attempt of the fake to hand over a delivery of an event to an installation, and
// the status that it got.
func (g *GitHubSite) Attempt(guid, event, installation string, status int, at time.Time, payload string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, _ := strconv.ParseInt(installation, 10, 64)
	g.registered.attempts = append(g.registered.attempts, map[string]any{
		"id": g.next(), "guid": guid, "delivered_at": stamp(at), "redelivery": false, "duration": 0.1, "status": http.StatusText(status), "status_code": status,
		"event": event, "action": nil, "installation_id": n, "repository_id": g.id,
		// The content type is that of the delivery, but the list contains the JSON of the form.
		"request": map[string]any{
			"headers": map[string]string{"X-GitHub-Delivery": guid, "X-GitHub-Event": event, "content-type": "application/x-www-form-urlencoded"}, "payload": json.RawMessage(payload),
		},
	})
}

// needed are the permissions without which the forge refuses to send an event.
var needed = map[string]string{
	"push": "contents", "pull_request": "pull_requests", "check_run": "checks", "check_suite": "checks", "merge_group": "merge_queues", "repository": "metadata",
}

// registering adds the pages and the API with which apps are registered.
func (g *GitHubSite) registering(mux *http.ServeMux, handle func(string, http.HandlerFunc)) {
	register := func(w http.ResponseWriter, r *http.Request) {
		var m map[string]any
		if err := json.Unmarshal([]byte(r.FormValue("manifest")), &m); err != nil || text(m, "name") == "" || text(m, "url") == "" || len(text(m, "name")) > 34 {
			answer(w, http.StatusUnprocessableEntity, map[string]any{"message": "the manifest is not valid"})
			return
		}
		permissions, _ := m["default_permissions"].(map[string]any)
		events, _ := m["default_events"].([]any)
		hook, _ := m["hook_attributes"].(map[string]any)
		if slices.ContainsFunc(events, func(e any) bool { return permissions[needed[fmt.Sprint(e)]] == nil }) || text(hook, "url") == "" {
			answer(w, http.StatusUnprocessableEntity, map[string]any{"message": "default events unsupported"})
			return
		}
		owner := r.PathValue("owner")
		if owner == "" {
			owner = Deployer
		}
		g.registered = registration{manifest: m, owner: owner, code: rand.Text()}
		http.Redirect(w, r, text(m, "redirect_url")+"?"+url.Values{"code": {g.registered.code}, "state": {r.URL.Query().Get("state")}}.Encode(), http.StatusFound)
	}
	mux.HandleFunc("POST /settings/apps/new", register)
	mux.HandleFunc("POST /organizations/{owner}/settings/apps/new", register)
	mux.HandleFunc("POST /api/v3/app-manifests/{code}/conversions", func(w http.ResponseWriter, r *http.Request) {
		if g.registered.code == "" || r.PathValue("code") != g.registered.code {
			answer(w, http.StatusNotFound, map[string]any{"message": "Not Found"})
			return
		}
		g.registered.code = ""
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			answer(w, http.StatusInternalServerError, map[string]any{"message": err.Error()})
			return
		}
		g.app = key
		made := g.describe()
		made["client_id"], made["client_secret"], made["webhook_secret"] = "Iv1.0", rand.Text(), rand.Text()+rand.Text()
		made["pem"] = string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
		answer(w, http.StatusCreated, made)
	})
	handle("GET /api/v3/app", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, g.describe()) })
	handle("GET /api/v3/app/installations", func(w http.ResponseWriter, r *http.Request) {
		list := []any{map[string]any{"id": 87, "account": map[string]any{"login": "other"}, "app_id": 77}}
		if g.registered.installed {
			list = append(list, map[string]any{"id": 88, "account": map[string]any{"login": strings.ToUpper(g.registered.owner)}, "app_id": 77})
		}
		answer(w, 200, page(w, r, list))
	})
	handle("GET /api/v3/app/hook/deliveries", func(w http.ResponseWriter, r *http.Request) {
		list := []any{}
		for _, a := range slices.Backward(g.registered.attempts) {
			summary := map[string]any{}
			for name, value := range a {
				if name != "request" {
					summary[name] = value
				}
			}
			list = append(list, summary)
		}
		answer(w, 200, page(w, r, list))
	})
	handle("GET /api/v3/app/hook/deliveries/{id}", func(w http.ResponseWriter, r *http.Request) {
		g.Read = append(g.Read, r.PathValue("id"))
		for _, a := range g.registered.attempts {
			if fmt.Sprint(a["id"]) == r.PathValue("id") {
				answer(w, 200, a)
				return
			}
		}
		answer(w, http.StatusNotFound, map[string]any{"message": "Not Found"})
	})
}

// describe returns the registered app.
func (g *GitHubSite) describe() map[string]any {
	return map[string]any{
		"id": 77, "slug": "pulumi-app", "node_id": "A_77", "name": text(g.registered.manifest, "name"), "html_url": g.server.URL + "/github-apps/pulumi-app",
		"owner": map[string]any{"login": g.registered.owner, "id": 5}, "permissions": g.registered.manifest["default_permissions"], "events": g.registered.manifest["default_events"],
	}
}
