package forgetest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
)

// GitHubSite is a fake GitHub Enterprise Server.
type GitHubSite struct {
	*site
	app *rsa.PrivateKey // nil to be used with an access token
	// Scopes are the requests for tokens of the installation.
	Scopes []map[string]any
	// Read are the ids of the deliveries that were read.
	Read       []string
	registered registration
	checks     map[string]map[string]any
}

// GitHubToken starts a fake GitHub that is used with an access token.
func GitHubToken(t *testing.T) World { return newGitHub(t, nil) }

// GitHubApp starts a fake GitHub that is used as a GitHub App.
func GitHubApp(t *testing.T) World {
	t.Helper()
	key := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	return newGitHub(t, key)
}

func newGitHub(t *testing.T, app *rsa.PrivateKey) *GitHubSite {
	t.Helper()
	g := &GitHubSite{app: app, checks: map[string]map[string]any{}}
	g.site = newSite(t, "acme", "/OWNER/NAME.git", g.api)
	return g
}

// Connection implements [World].
func (g *GitHubSite) Connection() vcs.Connection {
	c := vcs.Connection{Reach: outbound.Reach{Anywhere: true}, BaseURL: g.server.URL}
	if g.app == nil {
		c.Credential.Password = Token
		return c
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(g.app)})
	c.App = &vcs.App{ID: AppID, Installation: Installation, PrivateKey: string(key)}
	return c
}

// Hooks implements [World]. The webhook of an app belongs to its registration.
func (g *GitHubSite) Hooks(_ *testing.T, address string) int {
	if g.app != nil {
		return 1
	}
	return g.hooksWith(address, "config", "url")
}

// Reports implements [World].
func (g *GitHubSite) Reports(t *testing.T, commit string) map[string]string {
	if g.app == nil {
		return g.site.Reports(t, commit)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	states := map[string]string{}
	latest := map[string]int64{}
	for _, c := range g.checks {
		name, id := text(c, "name"), c["id"].(int64)
		if c["head_sha"] == commit && id > latest[name] {
			latest[name] = id
			states[name] = strings.TrimSuffix(text(c, "status")+" "+text(c, "conclusion"), " ")
		}
	}
	return states
}

func (g *GitHubSite) authorized(r *http.Request) bool {
	given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if r.URL.Path != "/api/v3/app" && !strings.HasPrefix(r.URL.Path, "/api/v3/app/") {
		return given == Token
	}
	parsed, err := jwt.ParseSigned(given, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil || g.app == nil {
		return false
	}
	var claims jwt.Claims
	if parsed.Claims(g.app.Public(), &claims) != nil || claims.Issuer != AppID {
		return false
	}
	// The forge refuses tokens from the future, and those of more than 10 minutes.
	lifetime := claims.Expiry.Time().Sub(claims.IssuedAt.Time())
	return claims.IssuedAt.Time().Before(time.Now()) && claims.Expiry.Time().After(time.Now()) && lifetime <= 10*time.Minute
}

func (g *GitHubSite) api(s *site) http.Handler {
	g.site = s
	mux := http.NewServeMux()
	handle := guarded(mux, g.authorized, map[string]any{"message": "Bad credentials"}, s.isName)
	const repo = "/api/v3/repos/{owner}/{name}"
	shared := routes{s, handle, func(w http.ResponseWriter) { answer(w, 404, map[string]any{"message": "Not Found"}) }}
	handle("POST /api/v3/app/installations/88/access_tokens", func(w http.ResponseWriter, r *http.Request) {
		scope := read(r)
		g.Scopes = append(g.Scopes, scope)
		issued := Token
		if scope != nil {
			issued = fmt.Sprintf("ghs_narrow_%d", len(g.Scopes))
		}
		answer(w, 201, map[string]any{"token": issued, "expires_at": time.Now().Add(time.Hour)})
	})
	handle("GET /api/v3/installation/repositories", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"total_count": 1, "repositories": []any{nil, g.repository()}})
	})
	handle("GET /api/v3/user/repos", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, []any{g.repository()}) })
	handle("GET /api/v3/user", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, githubUser(Deployer)) })
	handle("GET "+repo, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, g.repository()) })
	handle("GET "+repo+"/compare/{spec}", g.compare)
	handle("GET "+repo+"/pulls", g.list)
	shared.pull(repo+"/pulls", g.pullRequest)
	handle("GET "+repo+"/pulls/{number}/files", func(w http.ResponseWriter, r *http.Request) {
		p := s.pull(r.PathValue("number"))
		answer(w, 200, page(w, r, g.files(s.run("merge-base", p.base, p.head), p.head)))
	})
	handle("GET "+repo+"/collaborators/{user}/permission", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("user")
		if s.permission(name) == "" {
			answer(w, 404, map[string]any{"message": "is not a user"})
			return
		}
		answer(w, 200, map[string]any{"permission": s.permission(name), "user": githubUser(name)})
	})
	g.registering(mux, handle)
	g.reporting(handle, repo)
	shared.comments(thread{
		list: repo + "/issues/{number}/comments", item: repo + "/issues/comments", change: "PATCH", form: g.comment, text: body, send: sendPage,
	})
	handle("GET "+repo+"/hooks", func(w http.ResponseWriter, r *http.Request) { answer(w, 200, page(w, r, s.hooks)) })
	shared.hooks(repo+"/hooks", "PATCH", func(h map[string]any) { h["id"] = s.next() })
	return mux
}

func (g *GitHubSite) reporting(handle func(string, http.HandlerFunc), repo string) {
	handle("POST "+repo+"/statuses/{commit}", func(w http.ResponseWriter, r *http.Request) {
		body := read(r)
		if len([]rune(text(body, "description"))) > 140 {
			answer(w, 422, map[string]any{"message": "description is too long (maximum is 140 characters)"})
			return
		}
		g.reports = append(g.reports, &report{id: g.next(), commit: r.PathValue("commit"), context: text(body, "context"), state: text(body, "state")})
		answer(w, 201, map[string]any{"id": g.serial})
	})
	handle("POST "+repo+"/check-runs", func(w http.ResponseWriter, r *http.Request) {
		c := read(r)
		c["id"] = g.next()
		g.checks[fmt.Sprint(c["id"])] = c
		answer(w, 201, c)
	})
	handle("GET "+repo+"/check-runs/{id}", func(w http.ResponseWriter, r *http.Request) { answer(w, 200, g.checks[r.PathValue("id")]) })
	handle("PATCH "+repo+"/check-runs/{id}", func(w http.ResponseWriter, r *http.Request) {
		c := g.checks[r.PathValue("id")]
		maps.Copy(c, read(r))
		answer(w, 200, c)
	})
}

func githubUser(name string) map[string]any {
	return map[string]any{"id": accounts[name], "login": name, "type": "User"}
}

func (g *GitHubSite) comment(c *comment) map[string]any {
	out := map[string]any{"id": c.id, "body": c.body, "user": githubUser(c.author), "performed_via_github_app": nil}
	if g.app != nil && c.author == Deployer {
		out["performed_via_github_app"] = map[string]any{"id": 77}
	}
	return out
}

func (g *GitHubSite) repository() map[string]any {
	return map[string]any{"id": g.id, "name": g.name, "full_name": g.owner + "/" + g.name, "default_branch": "main"}
}

func (g *GitHubSite) files(from, to string) []any {
	files := []any{}
	for _, c := range g.changes(from, to) {
		f := map[string]any{"filename": c.name, "status": "modified"}
		if c.old != "" {
			f["status"], f["previous_filename"] = "renamed", c.old
		}
		files = append(files, f)
	}
	return files
}

func (g *GitHubSite) compare(w http.ResponseWriter, r *http.Request) {
	from, to, _ := strings.Cut(r.PathValue("spec"), "...")
	if !g.exists(from) || !g.exists(to) {
		answer(w, 404, map[string]any{"message": "Not Found"})
		return
	}
	ahead, behind := g.count(to, from), g.count(from, to)
	status := "diverged"
	switch {
	case ahead == 0 && behind == 0:
		status = "identical"
	case behind == 0:
		status = "ahead"
	case ahead == 0:
		status = "behind"
	}
	answer(w, 200, map[string]any{"status": status, "ahead_by": ahead, "behind_by": behind, "files": g.files(g.run("merge-base", from, to), to)})
}

func (g *GitHubSite) pullRequest(p *pull) map[string]any {
	head := map[string]any{"ref": p.source, "sha": p.head, "repo": g.repository()}
	if p.fork {
		// The fork has the same owner.
		head["repo"] = map[string]any{"id": 4712, "full_name": g.owner + "/fork"}
	}
	if p.forkGone {
		head["repo"] = nil
	}
	labels := []any{}
	for _, l := range p.labels {
		labels = append(labels, map[string]any{"name": l})
	}
	out := map[string]any{
		"number": p.number, "title": p.title, "state": "closed", "merged_at": nil, "draft": p.draft, "labels": labels,
		"html_url": g.server.URL + "/pull", "user": githubUser(Writer), "updated_at": stamp(p.updated),
		"head": head, "base": map[string]any{"ref": p.base, "sha": g.run("rev-parse", p.base), "repo": g.repository()},
	}
	switch p.state {
	case vcs.PullOpen:
		out["state"] = "open"
	case vcs.PullMerged:
		out["merged_at"] = stamp(p.updated)
	}
	return out
}

func (g *GitHubSite) list(w http.ResponseWriter, r *http.Request) {
	tag := `W/"` + stamp(g.clock) + `"`
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("ETag", tag)
	answer(w, 200, page(w, r, g.recent(r.URL.Query().Get("state") == "all", g.pullRequest)))
}
