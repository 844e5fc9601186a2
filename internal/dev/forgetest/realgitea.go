package forgetest

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/jsoncall"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
)

type realGitea struct {
	server *lab.Gitea
	name   string
	clone  string
	tokens map[string]string
	forks  map[int]string
}

// RealGitea creates a repository on a real Gitea.
func RealGitea(t *testing.T, server *lab.Gitea, tokens map[string]string) RealWorld {
	t.Helper()
	g := &realGitea{server: server, name: "app-" + strings.ToLower(strings.NewReplacer("/", "-").Replace(t.Name())), clone: filepath.Join(t.TempDir(), "clone"), tokens: tokens, forks: map[int]string{}}
	g.call(t, Deployer, "POST", "/user/repos", map[string]any{"name": g.name, "default_branch": "main"}, nil)
	g.call(t, Deployer, "PUT", g.path("/collaborators/"+Writer), map[string]any{"permission": "write"}, nil)
	g.git(t, "", "init", "--quiet", "--initial-branch=main", g.clone)
	g.git(t, g.clone, "config", "user.name", "Root")
	g.git(t, g.clone, "config", "user.email", Deployer+"@example.invalid")
	g.Commit(t, "main", map[string]string{"README": "1", "infra/old": strings.Repeat("content\n", 50)})
	// The forge notices the first push a moment later.
	g.until(t, func() bool {
		var repo struct{ Empty bool }
		g.call(t, Deployer, "GET", g.path(""), nil, &repo)
		return !repo.Empty
	})
	return g
}

// until waits for what the forge does in the background.
func (g *realGitea) until(t *testing.T, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.OK(t, child.Poll(ctx, 50*time.Millisecond, func() (bool, error) { return done(), nil }))
}

func (g *realGitea) path(rest string) string { return "/repos/" + Deployer + "/" + g.name + rest }

// call calls the API as an account.
func (g *realGitea) call(t *testing.T, account, method, path string, body, into any) {
	t.Helper()
	header := map[string]string{"Authorization": "token " + g.tokens[account]}
	client := &http.Client{Timeout: time.Minute}
	must.OK(t, jsoncall.Do(t.Context(), client, method, g.server.URL+"/api/v1"+path, header, body, into))
}

func (g *realGitea) git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (g *realGitea) push(t *testing.T, account, repo string, args ...string) {
	t.Helper()
	login := base64.StdEncoding.EncodeToString([]byte(account + ":" + g.tokens[account]))
	g.git(t, g.clone, append([]string{"-c", "http.extraHeader=Authorization: Basic " + login, "push", "--quiet", "--force", g.server.URL + "/" + repo + ".git"}, args...)...)
}

func (g *realGitea) Connection() vcs.Connection {
	return vcs.Connection{Reach: outbound.Reach{Anywhere: true}, BaseURL: g.server.URL, Credential: vcs.Credential{Password: g.tokens[Deployer]}}
}

func (g *realGitea) Name() string { return Deployer + "/" + g.name }

func (g *realGitea) Rename(t *testing.T) {
	t.Helper()
	name := g.name + "-renamed"
	g.call(t, Deployer, "PATCH", g.path(""), map[string]any{"name": name}, nil)
	g.name = name
}

func (g *realGitea) Account(name string) vcs.Account {
	return vcs.Account{ID: strconv.Itoa(map[string]int{Deployer: 1, Writer: 2, Reader: 3}[name]), Name: name}
}

// on checks out a branch, which begins at main.
func (g *realGitea) on(t *testing.T, branch string) {
	t.Helper()
	switch {
	case branch == g.git(t, g.clone, "symbolic-ref", "--short", "HEAD"):
	case g.git(t, g.clone, "branch", "--list", branch) != "":
		g.git(t, g.clone, "checkout", "--quiet", branch)
	default:
		g.git(t, g.clone, "checkout", "--quiet", "-b", branch, "main")
	}
}

func (g *realGitea) commit(t *testing.T, branch string) string {
	t.Helper()
	g.git(t, g.clone, "commit", "--quiet", "-m", "Change "+branch)
	return g.git(t, g.clone, "rev-parse", "HEAD")
}

func (g *realGitea) Commit(t *testing.T, branch string, files map[string]string) string {
	t.Helper()
	commit := g.CommitOnly(t, branch, files)
	g.push(t, Deployer, g.Name(), branch)
	return commit
}

func (g *realGitea) CommitOnly(t *testing.T, branch string, files map[string]string) string {
	t.Helper()
	g.on(t, branch)
	for name, content := range files {
		must.OK(t, writeFile(filepath.Join(g.clone, name), content))
	}
	g.git(t, g.clone, "add", "--all")
	return g.commit(t, branch)
}

func (g *realGitea) Move(t *testing.T, branch, from, to string) string {
	t.Helper()
	g.on(t, branch)
	must.OK(t, writeFile(filepath.Join(g.clone, to), ""))
	g.git(t, g.clone, "mv", "--force", from, to)
	commit := g.commit(t, branch)
	g.push(t, Deployer, g.Name(), branch)
	return commit
}

func (g *realGitea) Reset(t *testing.T, branch, commit string) {
	t.Helper()
	g.on(t, branch)
	g.git(t, g.clone, "reset", "--quiet", "--hard", commit)
	g.push(t, Deployer, g.Name(), branch)
}

func (g *realGitea) Tag(t *testing.T, name, commit string) {
	t.Helper()
	g.git(t, g.clone, "tag", "-a", "-m", "Release", name, commit)
	g.push(t, Deployer, g.Name(), "refs/tags/"+name)
}

func (g *realGitea) OpenPull(t *testing.T, p NewPull) int {
	t.Helper()
	head, account, title := p.Source, Deployer, "Change "+p.Source
	fork := ""
	if p.Fork {
		account = Reader
		var forked struct {
			FullName string `json:"full_name"`
		}
		g.call(t, Reader, "POST", g.path("/forks"), map[string]any{}, &forked)
		fork, head = forked.FullName, Reader+":"+p.Source
		g.push(t, Reader, fork, p.Source)
	}
	if p.Draft {
		title = "WIP: " + title
	}
	var labels []int64
	for _, name := range p.Labels {
		var label struct{ ID int64 }
		g.call(t, Deployer, "POST", g.path("/labels"), map[string]any{"name": name, "color": "#00aabb"}, &label)
		labels = append(labels, label.ID)
	}
	var created struct{ Number int }
	g.call(t, account, "POST", g.path("/pulls"), map[string]any{"title": title, "head": head, "base": "main", "labels": labels}, &created)
	g.forks[created.Number] = fork
	return created.Number
}

func (g *realGitea) Offer(t *testing.T) (number int, commit string) {
	t.Helper()
	commit = g.CommitOnly(t, "offer", map[string]string{"offered": "1"})
	// The push creates the pull request: the account may only read, and has no fork.
	g.push(t, Reader, g.Name(), "HEAD:refs/for/main", "-o", "topic=offer", "-o", "title=Offer")
	var list []struct {
		Number int
		Head   struct{ SHA string }
	}
	g.call(t, Deployer, "GET", g.path("/pulls?state=open&limit=50"), nil, &list)
	for _, p := range list {
		if p.Head.SHA == commit {
			return p.Number, commit
		}
	}
	t.Fatalf("no pull request has the commit %s: %+v", commit, list)
	return 0, ""
}

func (g *realGitea) PushFork(t *testing.T, number int, branch string) {
	t.Helper()
	g.push(t, Reader, g.forks[number], branch)
}

func (g *realGitea) SetPull(t *testing.T, number int, state vcs.PullState) {
	t.Helper()
	if state == vcs.PullMerged {
		// The forge first computes whether the branches can be merged.
		g.until(t, func() bool {
			var p struct{ Mergeable bool }
			g.call(t, Deployer, "GET", g.path("/pulls/"+strconv.Itoa(number)), nil, &p)
			return p.Mergeable
		})
		g.call(t, Deployer, "POST", g.path(fmt.Sprintf("/pulls/%d/merge", number)), map[string]any{"Do": "squash"}, nil)
		return
	}
	g.call(t, Deployer, "PATCH", g.path("/pulls/"+strconv.Itoa(number)), map[string]any{"state": "closed"}, nil)
}

func (g *realGitea) DropFork(t *testing.T, number int) {
	t.Helper()
	g.call(t, Reader, "DELETE", "/repos/"+g.forks[number], nil, nil)
}

func (g *realGitea) Reports(t *testing.T, commit string) map[string]string {
	t.Helper()
	var combined struct {
		Statuses []struct{ Context, Status string }
	}
	g.call(t, Deployer, "GET", g.path("/commits/"+commit+"/status"), nil, &combined)
	states := map[string]string{}
	for _, s := range combined.Statuses {
		states[s.Context] = s.Status
	}
	return states
}

type giteaComments []struct {
	ID   int64
	Body string
	User struct{ Login string }
}

func (g *realGitea) comments(t *testing.T, pull int) (list giteaComments) {
	t.Helper()
	g.call(t, Deployer, "GET", g.path(fmt.Sprintf("/issues/%d/comments", pull)), nil, &list)
	return list
}

func (g *realGitea) Comments(t *testing.T, pull int) (bodies []string) {
	t.Helper()
	for _, c := range g.comments(t, pull) {
		bodies = append(bodies, c.Body)
	}
	return bodies
}

func (g *realGitea) Plant(t *testing.T, pull int, body string) {
	t.Helper()
	g.call(t, Reader, "POST", g.path(fmt.Sprintf("/issues/%d/comments", pull)), map[string]any{"body": body}, nil)
}

func (g *realGitea) DeleteComments(t *testing.T, pull int) {
	t.Helper()
	for _, c := range g.comments(t, pull) {
		if c.User.Login == Deployer {
			g.call(t, Deployer, "DELETE", g.path(fmt.Sprintf("/issues/comments/%d", c.ID)), nil, nil)
		}
	}
}

type giteaHooks []struct {
	ID     int64
	Config map[string]string
}

func (g *realGitea) hooks(t *testing.T) (list giteaHooks) {
	t.Helper()
	g.call(t, Deployer, "GET", g.path("/hooks"), nil, &list)
	return list
}

func (g *realGitea) Hooks(t *testing.T, address string) int {
	t.Helper()
	n := 0
	for _, h := range g.hooks(t) {
		if h.Config["url"] == address {
			n++
		}
	}
	return n
}

func (g *realGitea) AddHook(t *testing.T, address, secret string) {
	t.Helper()
	g.call(t, Deployer, "POST", g.path("/hooks"), map[string]any{
		"type": "gitea", "active": true, "events": []string{"push", "pull_request"},
		"config": map[string]string{"url": address, "content_type": "json", "secret": secret},
	}, nil)
}

func (g *realGitea) DeleteHooks(t *testing.T) {
	t.Helper()
	for _, h := range g.hooks(t) {
		g.call(t, Deployer, "DELETE", g.path(fmt.Sprintf("/hooks/%d", h.ID)), nil, nil)
	}
}

func (g *realGitea) TestHook(t *testing.T) {
	t.Helper()
	for _, h := range g.hooks(t) {
		g.call(t, Deployer, "POST", g.path(fmt.Sprintf("/hooks/%d/tests", h.ID)), nil, nil)
	}
}

func (g *realGitea) DeleteBranch(t *testing.T, branch string) {
	t.Helper()
	g.push(t, Deployer, g.Name(), ":refs/heads/"+branch)
}

func (g *realGitea) Retarget(t *testing.T, number int, base string) {
	t.Helper()
	g.call(t, Deployer, "PATCH", g.path("/pulls/"+strconv.Itoa(number)), map[string]any{"base": base}, nil)
}
