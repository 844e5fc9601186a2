package forgetest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
)

// World is a forge with one repository. Its default branch is main, with the files README and
// infra/old.
type World interface {
	// Connection is that of the account Deployer, an owner of the repository.
	Connection() vcs.Connection
	// Name is the current name of the repository.
	Name() string
	// Rename gives the repository another name.
	Rename(t *testing.T)
	// Account returns an account of the forge.
	Account(name string) vcs.Account
	// Commit adds a commit to a branch, which begins at main.
	Commit(t *testing.T, branch string, files map[string]string) string
	// Move renames a file in a new commit on a branch.
	Move(t *testing.T, branch, from, to string) string
	// Reset moves a branch to a commit, by force.
	Reset(t *testing.T, branch, commit string)
	// Tag creates an annotated tag.
	Tag(t *testing.T, name, commit string)
	// OpenPull opens a pull request against main.
	OpenPull(t *testing.T, p NewPull) int
	// Offer opens a pull request as an account that may only read can, without a fork: its commit is on
	// no branch of the repository.
	Offer(t *testing.T) (number int, commit string)
	// SetPull closes or merges a pull request.
	SetPull(t *testing.T, number int, state vcs.PullState)
	// DropFork deletes the fork of a pull request.
	DropFork(t *testing.T, number int)
	// Reports returns the states of a commit's reports by context, in the forge's words.
	Reports(t *testing.T, commit string) map[string]string
	// Comments returns the bodies of a pull request's comments.
	Comments(t *testing.T, pull int) []string
	// Plant adds a comment of another account.
	Plant(t *testing.T, pull int, body string)
	// DeleteComments deletes the comments of the account Deployer.
	DeleteComments(t *testing.T, pull int)
	// Hooks returns the number of registered webhooks with an address.
	Hooks(t *testing.T, address string) int
}

// NewPull is a pull request to open.
type NewPull struct {
	Source string // branch
	Fork   bool
	Draft  bool
	Labels []string
}

func (s *site) Connection() vcs.Connection {
	return vcs.Connection{Reach: outbound.Reach{Anywhere: true}, BaseURL: s.server.URL, Credential: vcs.Credential{Password: Token}}
}

func (s *site) Name() string { return s.owner + "/" + s.name }

func (s *site) Rename(*testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldNames = append(s.oldNames, s.name)
	s.name += "-renamed"
}

func (s *site) Account(name string) vcs.Account {
	return vcs.Account{ID: fmt.Sprint(accounts[name]), Name: name}
}

func (s *site) Commit(t *testing.T, branch string, files map[string]string) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	commit := must.Get(s.repo.Commit(t.Context(), branch, "Change "+branch, files))(t)
	s.pushed(branch, commit)
	return commit
}

func (s *site) Move(t *testing.T, branch, from, to string) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	commit := must.Get(s.repo.Move(t.Context(), branch, from, to))(t)
	s.pushed(branch, commit)
	return commit
}

func (s *site) Reset(_ *testing.T, branch, commit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run("update-ref", "refs/heads/"+branch, commit)
	s.pushed(branch, commit)
}

func (s *site) pushed(branch, commit string) {
	for _, p := range s.pulls {
		if p.source == branch && p.state == vcs.PullOpen {
			p.head, p.updated = commit, s.tick()
		}
	}
}

func (s *site) Tag(_ *testing.T, name, commit string) {
	s.run("tag", "-a", "-m", "Release", name, commit)
}

func (s *site) OpenPull(_ *testing.T, n NewPull) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &pull{
		number: len(s.pulls) + 1, title: "Change <b>" + n.Source + "</b>", source: n.Source, base: lab.MainBranch, head: s.run("rev-parse", "refs/heads/"+n.Source),
		state: vcs.PullOpen, draft: n.Draft, fork: n.Fork, labels: n.Labels, updated: s.tick(),
	}
	s.pulls = append(s.pulls, p)
	s.run("update-ref", fmt.Sprintf("refs/pull/%d/head", p.number), p.head)
	return p.number
}

// Offer opens a pull request of an account that may only read, whose commit is on no branch.
func (s *site) Offer(t *testing.T) (number int, commit string) {
	t.Helper()
	commit = s.Commit(t, "offer", map[string]string{"offered": "1"})
	number = s.OpenPull(t, NewPull{Source: "offer"})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run("update-ref", "-d", "refs/heads/offer")
	s.pulls[number-1].offered = true
	return number, commit
}

func (s *site) SetPull(_ *testing.T, number int, state vcs.PullState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pulls[number-1]
	p.state, p.updated = state, s.tick()
}

// DropHead makes the commit of a pull request disappear.
func (s *site) DropHead(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulls[number-1].head = strings.Repeat("0", 40)
}

func (s *site) DropFork(_ *testing.T, number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulls[number-1].forkGone = true
}

func (s *site) Reports(_ *testing.T, commit string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := map[string]string{}
	for _, r := range s.reports {
		if r.commit == commit {
			states[r.context] = r.state
		}
	}
	return states
}

func (s *site) Comments(_ *testing.T, pull int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var bodies []string
	for _, c := range s.comments[pull] {
		bodies = append(bodies, c.body)
	}
	return bodies
}

func (s *site) Plant(_ *testing.T, pull int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.comments[pull] = append(s.comments[pull], &comment{s.next(), Reader, body})
}

func (s *site) DeleteComments(_ *testing.T, pull int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kept []*comment
	for _, c := range s.comments[pull] {
		if c.author != Deployer {
			kept = append(kept, c)
		}
	}
	s.comments[pull] = kept
}

// findComment returns a comment of any pull request, or nil.
func (s *site) findComment(id string) *comment {
	for _, list := range s.comments {
		for _, c := range list {
			if fmt.Sprint(c.id) == id {
				return c
			}
		}
	}
	return nil
}

func (s *site) hooksWith(address string, member ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, h := range s.hooks {
		for _, name := range member[:len(member)-1] {
			h, _ = h[name].(map[string]any)
		}
		if text(h, member[len(member)-1]) == address {
			n++
		}
	}
	return n
}

// Limit makes the fake refuse requests as the forge does when there were too many.
func (s *site) Limit(status int, header map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if status == 0 {
		s.fail = nil
		return
	}
	s.fail = func(w http.ResponseWriter) bool {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		answer(w, status, map[string]any{"message": "refused"})
		return true
	}
}

// Hold keeps requests of the API waiting whose path contains a text, until release is called. arrived
// is closed when the first one arrives.
func (s *site) Hold(part string) (arrived <-chan struct{}, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := make(chan struct{})
	h := &hold{part: part, arrived: sync.OnceFunc(func() { close(first) }), released: make(chan struct{})}
	s.held = h
	return first, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = nil
		close(h.released)
	})
}

// Limiter is a [World] that can refuse requests.
type Limiter interface {
	// Limit refuses all requests with a status, until it is called with 0.
	Limit(status int, header map[string]string)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}
