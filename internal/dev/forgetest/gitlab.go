package forgetest

import (
	"fmt"
	"net/http"
	"testing"

	"workflowagent/internal/server/vcs"
)

type gitlabSite struct{ *site }

// GitLab starts a fake GitLab.
func GitLab(t *testing.T) World {
	t.Helper()
	g := &gitlabSite{}
	g.site = newSite(t, "acme/platform", "/OWNER/NAME.git", g.api)
	return g
}

// Hooks implements [World].
func (g *gitlabSite) Hooks(_ *testing.T, address string) int { return g.hooksWith(address, "url") }

func (g *gitlabSite) api(s *site) http.Handler {
	g.site = s
	mux := http.NewServeMux()
	handle := guarded(mux, sends("Bearer "+Token), map[string]any{"message": "401 Unauthorized"}, s.isName)
	handle("GET /api/v4/projects/{name}", g.find)
	handle("GET /api/v4/projects", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, []any{nil, g.project()}) })
	handle("GET /api/v4/user", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, gitlabUser(Deployer)) })
	const repo = "/api/v4/projects/4711"
	shared := routes{s, handle, func(w http.ResponseWriter) { answer(w, 404, map[string]any{"message": "404 Not found"}) }}
	handle("GET "+repo+"/repository/merge_base", func(w http.ResponseWriter, r *http.Request) {
		refs := r.URL.Query()["refs[]"]
		if len(refs) != 2 || !s.exists(refs[0]) || !s.exists(refs[1]) {
			answer(w, 400, map[string]any{"message": "400 Bad request - Could not find ref"})
			return
		}
		answer(w, 200, map[string]any{"id": s.run("merge-base", refs[0], refs[1])})
	})
	handle("GET "+repo+"/repository/compare", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		answer(w, 200, map[string]any{"compare_timeout": false, "diffs": g.files(query.Get("from"), query.Get("to"))})
	})
	handle("GET "+repo+"/merge_requests", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, page(w, r, g.recent(r.URL.Query().Get("state") == "all", g.merge)))
	})
	shared.pull(repo+"/merge_requests", g.merge)
	handle("GET "+repo+"/merge_requests/{number}/diffs", func(w http.ResponseWriter, r *http.Request) {
		p := s.pull(r.PathValue("number"))
		answer(w, 200, page(w, r, g.files(s.run("merge-base", p.base, p.head), p.head)))
	})
	handle("GET "+repo+"/members/all/{id}", func(w http.ResponseWriter, r *http.Request) {
		for name, id := range accounts {
			if fmt.Sprint(id) == r.PathValue("id") {
				level := map[string]int{"admin": 40, "write": 30, "read": 20}[s.permission(name)]
				answer(w, 200, map[string]any{"id": id, "username": name, "access_level": level, "state": "active"})
				return
			}
		}
		answer(w, 404, map[string]any{"message": "404 Not found"})
	})
	handle("POST "+repo+"/statuses/{commit}", g.report)
	notes := repo + "/merge_requests/{number}/notes"
	shared.comments(thread{list: notes, item: notes, change: "PUT", form: gitlabNote, text: body, send: sendPage})
	handle("GET "+repo+"/hooks", func(w http.ResponseWriter, r *http.Request) { answer(w, 200, page(w, r, s.hooks)) })
	shared.hooks(repo+"/hooks", "PUT", func(h map[string]any) {
		h["id"] = s.next()
		delete(h, "token") // the forge never shows it
	})
	return mux
}

func (g *gitlabSite) find(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	for _, old := range g.oldNames {
		if name == g.owner+"/"+old {
			http.Redirect(w, r, "/api/v4/projects/4711", http.StatusMovedPermanently)
			return
		}
	}
	if name != g.owner+"/"+g.name && name != "4711" {
		answer(w, 404, map[string]any{"message": "404 Project Not Found"})
		return
	}
	answer(w, 200, g.project())
}

func (g *gitlabSite) project() map[string]any {
	return map[string]any{"id": g.id, "path": g.name, "path_with_namespace": g.owner + "/" + g.name, "default_branch": "main"}
}

func gitlabUser(name string) map[string]any {
	return map[string]any{"id": accounts[name], "username": name}
}

func (g *gitlabSite) files(from, to string) []any {
	files := []any{}
	for _, c := range g.changes(from, to) {
		f := map[string]any{"old_path": c.name, "new_path": c.name, "renamed_file": false, "too_large": false}
		if c.old != "" {
			f["old_path"], f["renamed_file"] = c.old, true
		}
		files = append(files, f)
	}
	return files
}

func (g *gitlabSite) merge(p *pull) map[string]any {
	out := map[string]any{
		"iid": p.number, "title": p.title, "state": "closed", "draft": p.draft, "labels": p.labels, "sha": p.head, "changes_count": "2",
		"web_url": g.server.URL + "/mr", "author": gitlabUser(Writer), "updated_at": stamp(p.updated),
		"source_branch": p.source, "target_branch": p.base, "source_project_id": g.id, "target_project_id": g.id,
	}
	switch p.state {
	case vcs.PullOpen:
		out["state"] = "opened"
	case vcs.PullMerged:
		out["state"] = "merged"
	}
	if p.fork {
		out["source_project_id"] = 4712
	}
	if p.forkGone {
		out["source_project_id"] = nil
	}
	return out
}

// report refuses transitions as the forge does: a finished status is replaced by a new one.
func (g *gitlabSite) report(w http.ResponseWriter, r *http.Request) {
	body := read(r)
	name, state := text(body, "name"), text(body, "state")
	var current *report
	for _, known := range g.reports {
		if known.commit == r.PathValue("commit") && known.context == name {
			current = known
		}
	}
	switch {
	case current != nil && (current.state == state || current.state == "running" && state == "pending"):
		answer(w, 400, map[string]any{"message": map[string]any{"base": []any{"Cannot transition status via :enqueue from :" + current.state}}})
		return
	case current != nil && (current.state == "pending" || current.state == "running"):
		current.state = state
	default:
		g.reports = append(g.reports, &report{id: g.next(), commit: r.PathValue("commit"), context: name, state: state})
	}
	answer(w, 201, map[string]any{"id": g.serial, "status": state})
}

func gitlabNote(c *comment) map[string]any {
	return map[string]any{"id": c.id, "body": c.body, "author": gitlabUser(c.author), "system": false}
}
