// Package forgetest checks the clients of git forges: one suite of tests runs against a fake of each
// forge, which answers in the forge's documented form, and against real forges where one can run.
package forgetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/vcs"
)

// Token is the access token that the fakes accept.
const Token = "forge-token-1f2e3d4c5b6a"

// The accounts of each forge. Deployer owns the token, Writer may push, and Reader may not.
const (
	Deployer = "deployer"
	Writer   = "ada"
	Reader   = "mallory"
)

var accounts = map[string]int64{Deployer: 11, Writer: 12, Reader: 13}

// pageSize is the size of the fakes' pages, whatever a client requests.
const pageSize = 3

// pull is a pull request of a fake.
type pull struct {
	number                int
	title, source, base   string
	head                  string
	state                 vcs.PullState
	draft, fork, forkGone bool
	offered               bool // from no branch
	labels                []string
	updated               time.Time
}

type comment struct {
	id     int64
	author string
	body   string
}

type report struct {
	id                     int64
	commit, context, state string
}

// site is the state of a fake forge with one repository, whose git data are real.
type site struct {
	t      *testing.T
	git    *lab.GitServer
	repo   *lab.Repo
	server *httptest.Server

	mu       sync.Mutex
	id       int64
	owner    string
	name     string
	oldNames []string // without the owner
	pulls    []*pull
	comments map[int][]*comment
	reports  []*report
	hooks    []map[string]any
	serial   int64
	clock    time.Time
	fail     func(w http.ResponseWriter) bool // answers in place of the API
	held     *hold
}

// hold keeps requests waiting.
type hold struct {
	part     string // of the paths
	arrived  func()
	released chan struct{}
}

// newSite starts a fake whose API is api, and which serves git at gitPath, a pattern with OWNER and
// NAME.
func newSite(t *testing.T, owner, gitPath string, api func(s *site) http.Handler) *site {
	t.Helper()
	s := &site{t: t, id: 4711, owner: owner, name: "app", comments: map[int][]*comment{}, clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	var err error
	s.git = must.Get(lab.StartGitServer(t.Context(), t.TempDir(), lab.GitOptions{Password: Token}))(t)
	t.Cleanup(func() { _ = s.git.Close() })
	if s.repo, _, err = s.git.NewRepo(t.Context(), "repo", map[string]string{"README": "1", "infra/old": strings.Repeat("content\n", 50)}); err != nil {
		t.Fatal(err)
	}
	target := must.Get(url.Parse(s.git.URL + "/repo.git"))(t)
	handler := api(s)
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		prefix := strings.NewReplacer("OWNER", s.owner, "NAME", s.name).Replace(gitPath)
		s.mu.Unlock()
		if rest, ok := strings.CutPrefix(r.URL.Path, prefix); ok && (rest == "/info/refs" || rest == "/git-upload-pack") {
			proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(target)
				p.Out.URL.Path = target.Path + rest
			}}
			proxy.ServeHTTP(w, r)
			return
		}
		s.mu.Lock()
		held := s.held
		s.mu.Unlock()
		if held != nil && strings.Contains(r.URL.Path, held.part) {
			held.arrived()
			select {
			case <-held.released:
			case <-r.Context().Done():
				return
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fail != nil && s.fail(w) {
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(s.server.Close)
	return s
}

// run runs git in the repository.
func (s *site) run(args ...string) string {
	out, err := s.try(args...)
	if err != nil {
		s.t.Errorf("git %v: %v\n%s", args, err, out)
	}
	return out
}

func (s *site) try(args ...string) (string, error) {
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), "git", args...)
	cmd.Dir = s.repo.Dir()
	cmd.Env = append(cmd.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_COMMITTER_NAME=Lab", "GIT_COMMITTER_EMAIL=lab@example.invalid")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// tick returns a time after all earlier ones.
func (s *site) tick() time.Time {
	s.clock = s.clock.Add(time.Minute)
	return s.clock
}

func (s *site) next() int64 {
	s.serial++
	return 1000 + s.serial
}

// isName reports whether a name of the repository is the current one, and redirects a former one.
func (s *site) isName(w http.ResponseWriter, r *http.Request, owner, name string) bool {
	if owner == s.owner && name == s.name {
		return true
	}
	for _, old := range s.oldNames {
		if owner == s.owner && name == old {
			//nolint:gosec // the client under test stays on the fake's origin
			http.Redirect(w, r, strings.Replace(r.URL.RequestURI(), "/"+old, "/"+s.name, 1), http.StatusMovedPermanently)
			return false
		}
	}
	answer(w, http.StatusNotFound, map[string]any{"message": "not found"})
	return false
}

func (s *site) pull(number string) *pull {
	for _, p := range s.pulls {
		if fmt.Sprint(p.number) == number {
			return p
		}
	}
	return nil
}

// change is a changed file.
type change struct{ status, name, old string }

// changes returns the changed files between two commits.
func (s *site) changes(from, to string) []change {
	var out []change
	fields := strings.Split(strings.TrimRight(s.run("diff", "--name-status", "-z", "-M", from, to), "\x00"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		c := change{status: fields[i][:1], name: fields[i+1]}
		if c.status == "R" {
			c.old, c.name = fields[i+1], fields[i+2]
			i++
		}
		out = append(out, c)
	}
	return out
}

// count returns the number of commits that a commit has and another one has not.
func (s *site) count(has, hasNot string) int {
	n, err := strconv.Atoi(s.run("rev-list", "--count", has, "^"+hasNot))
	if err != nil {
		s.t.Error(err)
	}
	return n
}

func (s *site) exists(commit string) bool {
	_, err := s.try("cat-file", "-e", commit+"^{commit}")
	return err == nil
}

func (s *site) permission(account string) string {
	switch account {
	case Deployer:
		return "admin"
	case Writer:
		return "write"
	case Reader:
		return "read"
	}
	return ""
}

// page returns the part of a list that a request asks for, and sets the header Link.
func page[T any](w http.ResponseWriter, r *http.Request, list []T) []T {
	number, err := strconv.Atoi(r.URL.Query().Get("page"))
	if err != nil {
		number = 1
	}
	from := min((number-1)*pageSize, len(list))
	to := min(from+pageSize, len(list))
	if to < len(list) {
		query := r.URL.Query()
		query.Set("page", fmt.Sprint(number+1))
		w.Header().Set("Link", fmt.Sprintf(`<http://%s%s?%s>; rel="next"`, r.Host, r.URL.EscapedPath(), query.Encode()))
	}
	return list[from:to]
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if body != nil && status != http.StatusNoContent {
		_ = json.NewEncoder(w).Encode(body)
	}
}

func read(r *http.Request) map[string]any {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	return body
}

func text(m map[string]any, name string) string {
	s, _ := m[name].(string)
	return s
}

// recent returns the open pull requests, or all, the one with the latest update first.
func (s *site) recent(all bool, form func(p *pull) map[string]any) []any {
	sorted := slices.Clone(s.pulls)
	slices.SortFunc(sorted, func(a, b *pull) int { return b.updated.Compare(a.updated) })
	list := []any{}
	for _, p := range sorted {
		if all || p.state == vcs.PullOpen {
			list = append(list, form(p))
		}
	}
	return list
}
