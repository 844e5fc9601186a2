package forgetest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
)

type bitbucketSite struct{ *site }

// Bitbucket starts a fake Bitbucket Cloud.
func Bitbucket(t *testing.T) World {
	t.Helper()
	b := &bitbucketSite{}
	b.site = newSite(t, "acme", "/OWNER/NAME.git", b.api)
	return b
}

// Connection implements [World].
func (b *bitbucketSite) Connection() vcs.Connection {
	return vcs.Connection{Reach: outbound.Reach{Anywhere: true}, BaseURL: b.server.URL, APIURL: b.server.URL + "/2.0", Owner: "acme", Credential: vcs.Credential{Password: Token}}
}

// Account implements [World].
func (b *bitbucketSite) Account(name string) vcs.Account {
	return vcs.Account{ID: uuid(accounts[name]), Name: name}
}

// ForgetsNames implements [Forgetful].
func (*bitbucketSite) ForgetsNames() {}

// Hooks implements [World].
func (b *bitbucketSite) Hooks(_ *testing.T, address string) int { return b.hooksWith(address, "url") }

func uuid(id int64) string { return fmt.Sprintf("{00000000-0000-0000-0000-%012d}", id) }

// values answers with a part of a list, whose body contains the next address.
func (b *bitbucketSite) values(w http.ResponseWriter, r *http.Request, list []any) {
	part := page(w, r, list)
	body := map[string]any{"values": part, "pagelen": pageSize}
	if link := w.Header().Get("Link"); link != "" {
		w.Header().Del("Link")
		body["next"] = strings.TrimPrefix(strings.Split(link, ">")[0], "<")
	}
	answer(w, 200, body)
}

func (b *bitbucketSite) api(s *site) http.Handler {
	b.site = s
	mux := http.NewServeMux()
	missing := func(w http.ResponseWriter) {
		answer(w, 404, map[string]any{"type": "error", "error": map[string]any{"message": "not found"}})
	}
	exists := func(w http.ResponseWriter, _ *http.Request, owner, name string) bool {
		if owner != s.owner || name != s.name {
			missing(w)
			return false
		}
		return true
	}
	refused := map[string]any{"type": "error", "error": map[string]any{"message": "Token is invalid"}}
	handle := guarded(mux, sends("Bearer "+Token), refused, exists)
	const repo = "/2.0/repositories/{owner}/{name}"
	shared := routes{s, handle, missing}
	handle("GET "+repo, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, b.repository()) })
	handle("GET /2.0/repositories/acme", func(w http.ResponseWriter, r *http.Request) { b.values(w, r, []any{nil, b.repository()}) })
	handle("GET /2.0/user", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, bitbucketUser(Deployer)) })
	handle("GET "+repo+"/merge-base/{spec}", func(w http.ResponseWriter, r *http.Request) {
		from, to, _ := strings.Cut(r.PathValue("spec"), "..")
		if !s.exists(from) || !s.exists(to) {
			missing(w)
			return
		}
		answer(w, 200, map[string]any{"hash": s.run("merge-base", from, to)})
	})
	handle("GET "+repo+"/diffstat/{spec}", func(w http.ResponseWriter, r *http.Request) {
		to, from, _ := strings.Cut(r.PathValue("spec"), "..")
		b.values(w, r, b.stats(from, to))
	})
	handle("GET "+repo+"/commit/{commit}", func(w http.ResponseWriter, r *http.Request) {
		full, err := s.try("rev-parse", "--verify", "--quiet", r.PathValue("commit")+"^{commit}")
		if err != nil {
			missing(w)
			return
		}
		answer(w, 200, map[string]any{"hash": full})
	})
	handle("GET "+repo+"/pullrequests", func(w http.ResponseWriter, r *http.Request) {
		b.values(w, r, b.recent(slices.Contains(r.URL.Query()["state"], "MERGED"), b.pullRequest))
	})
	shared.pull(repo+"/pullrequests", b.pullRequest)
	handle("GET "+repo+"/pullrequests/{number}/diffstat", func(w http.ResponseWriter, r *http.Request) {
		// The forge redirects to the comparison of the two commits.
		p := s.pull(r.PathValue("number"))
		http.Redirect(w, r, fmt.Sprintf("/2.0/repositories/%s/%s/diffstat/%s..%s", s.owner, s.name, p.head, s.run("merge-base", p.base, p.head)), http.StatusFound)
	})
	handle("GET /2.0/workspaces/acme/permissions/repositories/{slug}", func(w http.ResponseWriter, r *http.Request) {
		list := []any{}
		for name, id := range accounts {
			if r.URL.Query().Get("q") == `user.uuid="`+uuid(id)+`"` {
				list = append(list, map[string]any{"permission": s.permission(name), "user": bitbucketUser(name)})
			}
		}
		b.values(w, r, list)
	})
	handle("POST "+repo+"/commit/{commit}/statuses/build", b.report)
	comments := repo + "/pullrequests/{number}/comments"
	shared.comments(thread{list: comments, item: comments, change: "PUT", form: bitbucketComment, text: raw, send: b.values})
	handle("GET "+repo+"/hooks", func(w http.ResponseWriter, r *http.Request) {
		list := []any{}
		for _, h := range s.hooks {
			list = append(list, h)
		}
		b.values(w, r, list)
	})
	shared.hooks(repo+"/hooks", "PUT", func(h map[string]any) { h["uuid"] = uuid(s.next()) })
	return mux
}

func (b *bitbucketSite) repository() map[string]any {
	return map[string]any{"uuid": uuid(b.id), "name": b.name, "full_name": b.owner + "/" + b.name, "mainbranch": map[string]any{"name": "main"}}
}

func bitbucketUser(name string) map[string]any {
	return map[string]any{"uuid": uuid(accounts[name]), "nickname": name, "type": "user"}
}

func (b *bitbucketSite) stats(from, to string) []any {
	stats := []any{}
	for _, c := range b.changes(from, to) {
		old := any(map[string]any{"path": c.name})
		switch {
		case c.old != "":
			old = map[string]any{"path": c.old}
		case c.status == "A":
			old = nil
		}
		stats = append(stats, map[string]any{"old": old, "new": map[string]any{"path": c.name}, "status": "modified"})
	}
	return stats
}

func (b *bitbucketSite) pullRequest(p *pull) map[string]any {
	source := map[string]any{"branch": map[string]any{"name": p.source}, "commit": map[string]any{"hash": p.head[:12]}, "repository": b.repository()}
	if p.fork {
		source["repository"] = map[string]any{"uuid": uuid(4712), "full_name": "mallory/fork"}
	}
	if p.forkGone {
		source["repository"] = nil
	}
	state := map[vcs.PullState]string{vcs.PullOpen: "OPEN", vcs.PullClosed: "DECLINED", vcs.PullMerged: "MERGED"}[p.state]
	return map[string]any{
		"id": p.number, "title": p.title, "state": state, "draft": p.draft, "author": bitbucketUser(Writer), "updated_on": stamp(p.updated),
		"links": map[string]any{"html": map[string]any{"href": b.server.URL + "/pr"}}, "source": source,
		"destination": map[string]any{"branch": map[string]any{"name": p.base}, "repository": b.repository()},
	}
}

// report replaces the status with the same key.
func (b *bitbucketSite) report(w http.ResponseWriter, r *http.Request) {
	body := read(r)
	if len(text(body, "key")) > 40 || text(body, "key") == "" || text(body, "url") == "" {
		answer(w, 400, map[string]any{"type": "error", "error": map[string]any{"message": "Bad request"}})
		return
	}
	for _, known := range b.reports {
		if known.commit == r.PathValue("commit") && known.context == text(body, "name") {
			known.state = text(body, "state")
			answer(w, 200, body)
			return
		}
	}
	b.reports = append(b.reports, &report{id: b.next(), commit: r.PathValue("commit"), context: text(body, "name"), state: text(body, "state")})
	answer(w, 201, body)
}

func bitbucketComment(c *comment) map[string]any {
	return map[string]any{"id": c.id, "content": map[string]any{"raw": c.body}, "user": bitbucketUser(c.author), "deleted": false}
}

func raw(body map[string]any) string {
	content, _ := body["content"].(map[string]any)
	return text(content, "raw")
}
