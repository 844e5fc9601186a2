package forgetest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
)

type azureSite struct{ *site }

// Azure starts a fake Azure DevOps, whose accounts' permissions are hidden.
func Azure(t *testing.T) World {
	t.Helper()
	a := &azureSite{}
	a.site = newSite(t, "platform", "/acme/OWNER/_git/NAME", a.api)
	return a
}

// Connection implements [World].
func (a *azureSite) Connection() vcs.Connection {
	return vcs.Connection{Reach: outbound.Reach{Anywhere: true}, BaseURL: a.server.URL, Owner: "acme", Project: "platform", Credential: vcs.Credential{Password: Token}}
}

// Name implements [World].
func (a *azureSite) Name() string { return "acme/" + a.site.Name() }

// ForgetsNames implements [Forgetful].
func (*azureSite) ForgetsNames() {}

// HidesPermissions implements [Secretive].
func (*azureSite) HidesPermissions() {}

// Hooks implements [World]. Each webhook has a subscription for each of 4 events.
func (a *azureSite) Hooks(_ *testing.T, address string) int {
	return a.hooksWith(address, "consumerInputs", "url") / 4
}

func guid(id int64) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", id) }

func (a *azureSite) api(s *site) http.Handler {
	a.site = s
	mux := http.NewServeMux()
	handle := func(pattern string, h http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte(":"+Token)) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h(w, r)
		})
	}
	missing := func(w http.ResponseWriter) {
		answer(w, 404, map[string]any{"message": "TF401019: The Git repository or pull request does not exist."})
	}
	values := func(w http.ResponseWriter, list []any) {
		answer(w, 200, map[string]any{"value": list, "count": len(list)})
	}
	const all = "/acme/platform/_apis/git/repositories"
	repo := all + "/" + guid(s.id)
	handle("GET "+all, func(w http.ResponseWriter, _ *http.Request) { values(w, []any{nil, a.repository()}) })
	handle("GET "+all+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		if name := r.PathValue("name"); name != s.name && name != guid(s.id) {
			missing(w)
			return
		}
		answer(w, 200, a.repository())
	})
	handle("GET /acme/_apis/connectionData", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"authenticatedUser": azureUser(Deployer)})
	})
	handle("GET "+repo+"/diffs/commits", a.compare)
	handle("GET "+repo+"/pullrequests", func(w http.ResponseWriter, r *http.Request) { values(w, a.list(r)) })
	handle("GET "+repo+"/pullRequests/{number}", func(w http.ResponseWriter, r *http.Request) {
		if p := s.pull(r.PathValue("number")); p != nil {
			answer(w, 200, a.pullRequest(p))
			return
		}
		missing(w)
	})
	handle("GET "+repo+"/pullRequests/{number}/iterations", func(w http.ResponseWriter, _ *http.Request) {
		values(w, []any{map[string]any{"id": 1}, map[string]any{"id": 2}})
	})
	handle("GET "+repo+"/pullRequests/{number}/iterations/2/changes", func(w http.ResponseWriter, r *http.Request) {
		p := s.pull(r.PathValue("number"))
		entries := a.files(s.run("merge-base", p.base, p.head), p.head, "originalPath")
		skip, _ := strconv.Atoi(r.URL.Query().Get("$skip"))
		part := entries[min(skip, len(entries)):min(skip+1, len(entries))]
		body := map[string]any{"changeEntries": part}
		if skip+1 < len(entries) {
			body["nextSkip"], body["nextTop"] = skip+1, 1
		}
		answer(w, 200, body)
	})
	handle("POST "+repo+"/commits/{commit}/statuses", func(w http.ResponseWriter, r *http.Request) {
		body := read(r)
		context, _ := body["context"].(map[string]any)
		s.reports = append(s.reports, &report{id: s.next(), commit: r.PathValue("commit"), context: text(context, "name"), state: text(body, "state")})
		answer(w, 201, map[string]any{"id": s.serial})
	})
	handle("POST "+repo+"/pullRequests/{number}/statuses", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, map[string]any{"id": s.next()}) })
	a.commenting(handle, repo)
	handle("GET /acme/_apis/hooks/subscriptions", func(w http.ResponseWriter, _ *http.Request) {
		list := []any{}
		for _, h := range s.hooks {
			list = append(list, h)
		}
		values(w, list)
	})
	handle("POST /acme/_apis/hooks/subscriptions", func(w http.ResponseWriter, r *http.Request) {
		h := read(r)
		h["id"] = guid(s.next())
		s.hooks = append(s.hooks, h)
		answer(w, 200, h)
	})
	handle("PUT /acme/_apis/hooks/subscriptions/{id}", func(w http.ResponseWriter, r *http.Request) { answer(w, 200, read(r)) })
	return mux
}

func azureUser(name string) map[string]any {
	return map[string]any{"id": guid(accounts[name]), "displayName": name, "uniqueName": name}
}

func (a *azureSite) repository() map[string]any {
	return map[string]any{
		"id": guid(a.id), "name": a.name, "defaultBranch": "refs/heads/main", "remoteUrl": "https://acme@elsewhere.example.com/acme/platform/_git/" + a.name,
		"project": map[string]any{"id": guid(1), "name": a.owner},
	}
}

func (a *azureSite) files(from, to, former string) []any {
	files := []any{map[string]any{"item": map[string]any{"path": "/", "isFolder": true, "gitObjectType": "tree"}, "changeType": "edit"}}
	for _, c := range a.changes(from, to) {
		f := map[string]any{"item": map[string]any{"path": "/" + c.name, "gitObjectType": "blob"}, "changeType": "edit"}
		if c.old != "" {
			f["changeType"], f[former] = "edit, rename", "/"+c.old
		}
		files = append(files, f)
	}
	return files
}

func (a *azureSite) compare(w http.ResponseWriter, r *http.Request) {
	from, to := r.URL.Query().Get("baseVersion"), r.URL.Query().Get("targetVersion")
	if !a.exists(from) || !a.exists(to) {
		answer(w, 404, map[string]any{"message": "TF401175: The version descriptor could not be resolved."})
		return
	}
	answer(w, 200, map[string]any{
		"allChangesIncluded": true, "commonCommit": a.run("merge-base", from, to), "changes": a.files(from, to, "sourceServerItem"),
		"baseCommit": from, "targetCommit": to, "aheadCount": a.count(to, from), "behindCount": a.count(from, to),
	})
}

func (a *azureSite) status(p *pull) string {
	return map[vcs.PullState]string{vcs.PullOpen: "active", vcs.PullClosed: "abandoned", vcs.PullMerged: "completed"}[p.state]
}

func (a *azureSite) pullRequest(p *pull) map[string]any {
	out := map[string]any{
		"pullRequestId": p.number, "title": p.title, "status": a.status(p), "isDraft": p.draft, "createdBy": azureUser(Writer),
		"sourceRefName": "refs/heads/" + p.source, "targetRefName": "refs/heads/" + p.base, "creationDate": "2026-02-01T00:00:00.1234567Z",
		"lastMergeSourceCommit": map[string]any{"commitId": p.head}, "repository": a.repository(),
	}
	if p.offered {
		out["sourceRefName"] = fmt.Sprintf("refs/pull/%d/merge", p.number)
	}
	if p.state != vcs.PullOpen {
		out["closedDate"] = stamp(p.updated)
	}
	if p.fork {
		out["forkSource"] = map[string]any{"name": "refs/heads/" + p.source, "repository": map[string]any{"id": guid(4712)}}
	}
	labels := []any{map[string]any{"name": "inactive", "active": false}}
	for _, l := range p.labels {
		labels = append(labels, map[string]any{"name": l, "active": true})
	}
	out["labels"] = labels
	return out
}

// list returns a part of the pull requests with a status, the latest first.
func (a *azureSite) list(r *http.Request) []any {
	list := []any{}
	for _, p := range slices.Backward(a.pulls) {
		if a.status(p) == r.URL.Query().Get("searchCriteria.status") {
			list = append(list, a.pullRequest(p))
		}
	}
	skip, _ := strconv.Atoi(r.URL.Query().Get("$skip"))
	return list[min(skip, len(list)):min(skip+pageSize, len(list))]
}

func (a *azureSite) commenting(handle func(string, http.HandlerFunc), repo string) {
	at := repo + "/pullRequests/{number}/threads"
	form := func(c *comment) map[string]any {
		comments := []any{map[string]any{"id": 1, "content": c.body, "author": azureUser(c.author), "isDeleted": false}}
		return map[string]any{"id": c.id, "comments": comments, "isDeleted": false}
	}
	handle("GET "+at, func(w http.ResponseWriter, r *http.Request) {
		list := []any{nil, map[string]any{"id": 1, "comments": []any{}}}
		for _, c := range a.comments[a.pull(r.PathValue("number")).number] {
			list = append(list, form(c))
		}
		answer(w, 200, map[string]any{"value": list})
	})
	handle("POST "+at, func(w http.ResponseWriter, r *http.Request) {
		comments, _ := read(r)["comments"].([]any)
		first, _ := comments[0].(map[string]any)
		c := &comment{a.next(), Deployer, text(first, "content")}
		number := a.pull(r.PathValue("number")).number
		a.comments[number] = append(a.comments[number], c)
		answer(w, 200, form(c))
	})
	handle("PATCH "+at+"/{id}/comments/1", func(w http.ResponseWriter, r *http.Request) {
		c := a.findComment(r.PathValue("id"))
		if c == nil {
			answer(w, 404, map[string]any{"message": "TF401180: The requested comment was not found."})
			return
		}
		c.body = text(read(r), "content")
		answer(w, 200, map[string]any{})
	})
}
