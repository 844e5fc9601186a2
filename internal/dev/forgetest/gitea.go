package forgetest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/server/vcs"
)

type giteaSite struct{ *site }

// Gitea starts a fake Gitea.
func Gitea(t *testing.T) World {
	g := &giteaSite{}
	g.site = newSite(t, "acme", "/OWNER/NAME.git", g.api)
	return g
}

func (g *giteaSite) Hooks(_ *testing.T, address string) int {
	return g.hooksWith(address, "config", "url")
}

func (g *giteaSite) api(s *site) http.Handler {
	g.site = s
	mux := http.NewServeMux()
	handle := guarded(mux, sends("token "+Token), map[string]any{"message": "token is required"}, s.isName)
	const repo = "/api/v1/repos/{owner}/{name}"
	shared := routes{s, handle, func(w http.ResponseWriter) { answer(w, 404, map[string]any{"message": "not found"}) }}
	handle("GET "+repo, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, g.repository()) })
	handle("GET /api/v1/user/repos", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, []any{nil, g.repository()}) })
	handle("GET /api/v1/user", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, giteaUser(Deployer)) })
	handle("GET "+repo+"/compare/{spec}", g.compare)
	handle("GET "+repo+"/pulls", g.list)
	shared.pull(repo+"/pulls", g.pullRequest)
	handle("GET "+repo+"/pulls/{number}/files", func(w http.ResponseWriter, r *http.Request) {
		p := s.pull(r.PathValue("number"))
		files := []any{}
		for _, c := range s.changes(s.run("merge-base", p.base, p.head), p.head) {
			files = append(files, map[string]any{"filename": c.name, "previous_filename": c.old, "status": "changed"})
		}
		answer(w, 200, page(w, r, files))
	})
	handle("GET "+repo+"/collaborators/{user}/permission", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("user")
		if s.permission(name) == "" {
			answer(w, 404, map[string]any{"message": "user does not exist"})
			return
		}
		answer(w, 200, map[string]any{"permission": s.permission(name), "role_name": s.permission(name), "user": giteaUser(name)})
	})
	handle("POST "+repo+"/statuses/{commit}", func(w http.ResponseWriter, r *http.Request) {
		body := read(r)
		s.reports = append(s.reports, &report{id: s.next(), commit: r.PathValue("commit"), context: text(body, "context"), state: text(body, "state")})
		answer(w, 201, map[string]any{"id": s.serial, "status": text(body, "state")})
	})
	shared.comments(thread{
		list: repo + "/issues/{number}/comments", item: repo + "/issues/comments", change: "PATCH", form: giteaComment, text: body,
		send: func(w http.ResponseWriter, _ *http.Request, list []any) { answer(w, 200, list) },
	})
	handle("GET "+repo+"/hooks", func(w http.ResponseWriter, r *http.Request) { answer(w, 200, page(w, r, s.hooks)) })
	shared.hooks(repo+"/hooks", "PATCH", func(h map[string]any) { h["id"] = s.next() })
	return mux
}

func giteaUser(name string) map[string]any {
	return map[string]any{"id": accounts[name], "login": name}
}

func giteaComment(c *comment) map[string]any {
	return map[string]any{"id": c.id, "body": c.body, "user": giteaUser(c.author)}
}

func (g *giteaSite) repository() map[string]any {
	return map[string]any{"id": g.id, "name": g.name, "full_name": g.owner + "/" + g.name, "default_branch": "main", "clone_url": "https://elsewhere.example.com/x.git"}
}

func (g *giteaSite) compare(w http.ResponseWriter, r *http.Request) {
	from, to, _ := strings.Cut(r.PathValue("spec"), "...")
	if !g.exists(from) || !g.exists(to) {
		answer(w, 404, map[string]any{"message": "not found"})
		return
	}
	commits := []any{}
	for commit := range strings.FieldsSeq(g.run("rev-list", to, "^"+from)) {
		files := []any{}
		// The forge lists both names of a renamed file, as two files.
		for _, c := range g.changes(commit+"^", commit) {
			files = append(files, map[string]any{"filename": c.name, "status": "modified"})
			if c.old != "" {
				files = append(files, map[string]any{"filename": c.old, "status": "removed"})
			}
		}
		commits = append(commits, map[string]any{"sha": commit, "files": files})
	}
	answer(w, 200, map[string]any{"total_commits": len(commits), "commits": commits})
}

func (g *giteaSite) pullRequest(p *pull) map[string]any {
	head := map[string]any{"label": p.source, "ref": p.source, "sha": p.head, "repo": g.repository()}
	if p.offered { // by a push to refs/for
		head["label"], head["ref"] = "", fmt.Sprintf("refs/pull/%d/head", p.number)
	}
	if p.fork {
		head["repo"] = map[string]any{"id": 4712, "full_name": "acme/fork"}
	}
	if p.forkGone {
		head["repo"] = nil
	}
	labels := []any{}
	for _, l := range p.labels {
		labels = append(labels, map[string]any{"name": l})
	}
	state := "closed"
	if p.state == vcs.PullOpen {
		state = "open"
	}
	return map[string]any{
		"number": p.number, "title": p.title, "state": state, "merged": p.state == vcs.PullMerged, "draft": p.draft, "labels": labels,
		"html_url": g.server.URL + "/pull", "user": giteaUser(Writer), "updated_at": stamp(p.updated),
		"head": head, "base": map[string]any{"ref": p.base, "sha": g.run("rev-parse", p.base), "repo": g.repository()},
	}
}

func (g *giteaSite) list(w http.ResponseWriter, r *http.Request) {
	answer(w, 200, page(w, r, g.recent(r.URL.Query().Get("state") == "all", g.pullRequest)))
}
