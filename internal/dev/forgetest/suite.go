package forgetest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/vcs"
)

// Client is the client of a forge that has all abilities.
type Client interface {
	vcs.Repository
	vcs.Reader
	vcs.Pulls
	vcs.Reporter
	vcs.Commenter
	vcs.Hooker
}

// Words are the forge's words for the states of reports.
type Words map[vcs.ReportState]string

// Run checks a forge's client. start starts a new forge.
func Run(t *testing.T, forge vcs.Forge, words Words, start func(t *testing.T) World) {
	for name, test := range map[string]func(t *testing.T, w World, c Client, repo vcs.RepoID){
		"find": testFind, "refs": testRefs, "files": testFiles, "push": testPush, "pull": testPull, "closed": testClosed, "fork": testFork, "offer": testOffer,
		"pulls": testPulls, "permission": testPermission, "comment": testComment, "hook": testHook, "clone": testClone, "failures": testFailures,
		"report": func(t *testing.T, w World, c Client, repo vcs.RepoID) { testReport(t, w, c, repo, words) },
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			c := connect(t, forge, w.Connection())
			repo := must.Get(c.Find(t.Context(), w.Name()))(t)
			test(t, w, c, repo.RepoID)
		})
	}
	t.Run("connect", func(t *testing.T) {
		connection := start(t).Connection()
		for name, change := range map[string]func(c *vcs.Connection){
			"no credential":     func(c *vcs.Connection) { c.Credential, c.App = vcs.Credential{}, nil },
			"no TLS":            func(c *vcs.Connection) { c.BaseURL, c.APIURL = "http://forge.example.com", "http://forge.example.com" },
			"another scheme":    func(c *vcs.Connection) { c.BaseURL, c.APIURL = "file:///etc", "file:///etc" },
			"a wrong authority": func(c *vcs.Connection) { c.CACertificate = "nonsense" },
		} {
			changed := connection
			change(&changed)
			if _, err := forge.Connect(changed); err == nil {
				t.Errorf("%s: the connection was accepted", name)
			}
		}
	})
}

func connect(t *testing.T, forge vcs.Forge, connection vcs.Connection) Client {
	t.Helper()
	repository := must.Get(forge.Connect(connection))(t)
	c, ok := repository.(Client)
	if !ok {
		t.Fatalf("%T lacks an ability", repository)
	}
	return c
}

// Forgetful is a forge that does not document that it redirects the former names of repositories.
type Forgetful interface{ ForgetsNames() }

func testFind(t *testing.T, w World, c Client, repo vcs.RepoID) {
	old := w.Name()
	found, err := c.Find(t.Context(), old)
	if err != nil || found.ID == "" || found.Name != old || found.Branch != "main" || !strings.HasPrefix(found.CloneURL, w.Connection().BaseURL+"/") {
		t.Errorf("%+v, %v", found, err)
	}
	w.Rename(t)
	names := []string{old, w.Name()}
	if _, ok := w.(Forgetful); ok {
		names = names[1:]
		if _, err := c.Find(t.Context(), old); !errors.Is(err, vcs.ErrNotFound) {
			t.Errorf("a former name: %v", err)
		}
	}
	for _, name := range names {
		renamed, err := c.Find(t.Context(), name)
		if err != nil || renamed.ID != found.ID || renamed.Name != w.Name() {
			t.Errorf("finding %s after a rename to %s: %+v, %v", name, w.Name(), renamed, err)
		}
	}
	if _, err := c.Find(t.Context(), old+"-missing"); !errors.Is(err, vcs.ErrNotFound) {
		t.Errorf("a missing repository: %v", err)
	}
	for _, name := range []string{"", "app", "../app", "a/../b", "a/b?x=1"} {
		if _, err := c.Find(t.Context(), name); err == nil {
			t.Errorf("the name %q was accepted", name)
		}
	}
	lister, ok := c.(vcs.Lister)
	if !ok {
		t.Fatal("the client lists no repositories")
	}
	repos, _, err := lister.Repos(t.Context(), "")
	if err != nil || !slices.ContainsFunc(repos, func(r vcs.Repo) bool { return r.ID == repo.ID && r.Name == w.Name() }) {
		t.Errorf("repositories %+v, %v", repos, err)
	}
}

func testRefs(t *testing.T, w World, c Client, repo vcs.RepoID) {
	head := w.Commit(t, "main", map[string]string{"a": "1"})
	feature := w.Commit(t, "feature/ä", map[string]string{"b": "1"})
	w.Tag(t, "v1.0.0", head)
	for ref, want := range map[string]string{"refs/heads/main": head, "refs/heads/feature/ä": feature, "refs/tags/v1.0.0": head} {
		if got, err := c.Head(t.Context(), repo, ref); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", ref, got, err, want)
		}
	}
	if _, err := c.Head(t.Context(), repo, "refs/heads/missing"); !errors.Is(err, vcs.ErrNotFound) {
		t.Errorf("a missing branch: %v", err)
	}
	found, err := c.Refs(t.Context(), repo, []string{"refs/heads/", "refs/tags/v1"})
	if err != nil || len(found) < 2 || !slices.Contains(found, vcs.Ref{Name: "refs/tags/v1.0.0", Commit: head}) {
		t.Errorf("refs %v, %v", found, err)
	}
}

func testFiles(t *testing.T, w World, c Client, repo vcs.RepoID) {
	commit := w.Commit(t, "files", map[string]string{"envs/app/a.yaml": "a: 1\n", "envs/app/b.yaml": "b: 1\n", "envs/README": "no", "c.yaml": "no"})
	wanted := func(path string) bool { return strings.HasSuffix(path, "/") || strings.HasSuffix(path, ".yaml") }
	files, err := c.ReadFiles(t.Context(), repo, commit, "envs", wanted)
	if diff := cmp.Diff([]vcs.File{{Path: "app/a.yaml", Content: "a: 1\n"}, {Path: "app/b.yaml", Content: "b: 1\n"}}, files); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := c.ReadFiles(t.Context(), repo, commit, "missing", wanted); !errors.Is(err, vcs.ErrNoFolder) {
		t.Errorf("a missing folder: %v", err)
	}
	fork := w.Commit(t, "forked", map[string]string{"envs/app/a.yaml": "a: 2\n"})
	w.OpenPull(t, NewPull{Source: "forked", Fork: true})
	if files, err := c.ReadFiles(t.Context(), repo, fork, "envs/app", wanted); err != nil || len(files) == 0 || files[0].Content != "a: 2\n" {
		t.Errorf("of a fork: %v, %v", files, err)
	}
}

func changed(t *testing.T, c Client, repo vcs.RepoID, change vcs.Change) (string, bool) {
	t.Helper()
	files, complete, err := c.Changed(t.Context(), repo, change)
	if err != nil {
		t.Errorf("%+v: %v", change, err)
	}
	slices.Sort(files)
	return strings.Join(files, " "), complete
}

// testPush covers rows 11, 12, 16, 17 and 18: a push of many commits with a renamed file, and pushes
// whose files are unknown.
func testPush(t *testing.T, w World, c Client, repo vcs.RepoID) {
	before := w.Commit(t, "main", map[string]string{"a": "1"})
	for _, name := range []string{"b", "c", "d", "e", "f", "g"} {
		w.Commit(t, "main", map[string]string{name: "1"})
	}
	after := w.Move(t, "main", "infra/old", "old/a")
	if files, complete := changed(t, c, repo, vcs.Change{Before: before, After: after}); files != "b c d e f g infra/old old/a" || !complete {
		t.Errorf("files %q, complete %t", files, complete)
	}
	w.Reset(t, "main", before)
	forced := w.Commit(t, "main", map[string]string{"x": "1"})
	for name, change := range map[string]vcs.Change{
		"force push":       {Before: after, After: forced},
		"back to an older": {Before: after, After: before},
		"new branch":       {After: after},
		"nothing known":    {},
		"unknown commit":   {Before: strings.Repeat("1", 40), After: after},
	} {
		if _, complete := changed(t, c, repo, change); complete {
			t.Errorf("%s: the list of files is complete", name)
		}
	}
}

func testPull(t *testing.T, w World, c Client, repo vcs.RepoID) {
	w.Commit(t, "feature", map[string]string{"infra/x": "1"})
	w.Commit(t, "main", map[string]string{"unrelated": "1"})
	number := w.OpenPull(t, NewPull{Source: "feature", Labels: []string{"review", "Ops"}})
	head := w.Commit(t, "feature", map[string]string{"docs/y": "1"})
	got := eventually(t, c, repo, number, head)
	slices.Sort(got.Labels)
	if got.Number != number || got.State != vcs.PullOpen || got.Base != "main" || got.Source != "feature" || got.Fork || got.Draft || got.Title == "" || got.Author.ID == "" {
		t.Errorf("%+v", got)
	}
	if len(got.Labels) > 0 && !slices.Equal(got.Labels, []string{"Ops", "review"}) {
		t.Errorf("labels %q", got.Labels)
	}
	// Row 57: the files of the whole pull request, not of the last push.
	if files, complete := changed(t, c, repo, vcs.Change{Pull: number}); files != "docs/y infra/x" || !complete {
		t.Errorf("files %q, complete %t", files, complete)
	}
	if _, err := c.Pull(t.Context(), repo, 999); !errors.Is(err, vcs.ErrNotFound) {
		t.Errorf("a missing pull request: %v", err)
	}
	w.Commit(t, "draft", map[string]string{"z": "1"})
	number = w.OpenPull(t, NewPull{Source: "draft", Draft: true})
	if got, err := c.Pull(t.Context(), repo, number); err != nil || !got.Draft {
		t.Errorf("%+v, %v", got, err)
	}
}

// eventually returns a pull request once it has a head: real forges update it after a push.
func eventually(t *testing.T, c Client, repo vcs.RepoID, number int, head string) vcs.Pull {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		got := must.Get(c.Pull(t.Context(), repo, number))(t)
		if got.Head == head {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("the head is %s, want %s", got.Head, head)
		}
	}
}

func testClosed(t *testing.T, w World, c Client, repo vcs.RepoID) {
	for i, state := range []vcs.PullState{vcs.PullMerged, vcs.PullClosed} {
		branch := []string{"one", "two"}[i]
		w.Commit(t, branch, map[string]string{branch: "1"})
		number := w.OpenPull(t, NewPull{Source: branch})
		w.SetPull(t, number, state)
		if got, err := c.Pull(t.Context(), repo, number); err != nil || got.State != state {
			t.Errorf("%+v, %v, want the state %s", got, err, state)
		}
	}
}

// testFork covers row 65.
func testFork(t *testing.T, w World, c Client, repo vcs.RepoID) {
	w.Commit(t, "feature", map[string]string{"x": "1"})
	number := w.OpenPull(t, NewPull{Source: "feature", Fork: true})
	if got, err := c.Pull(t.Context(), repo, number); err != nil || !got.Fork || got.Head == "" {
		t.Errorf("%+v, %v", got, err)
	}
	w.DropFork(t, number)
	if got, err := c.Pull(t.Context(), repo, number); err != nil || !got.Fork {
		t.Errorf("after the fork was deleted: %+v, %v", got, err)
	}
}

// own reports whether a pull request is the repository's own, as [vcs.Pull.Fork] describes it.
func own(t *testing.T, c Client, repo vcs.RepoID, p vcs.Pull) bool {
	t.Helper()
	if p.Fork {
		return false
	}
	head, err := c.Head(t.Context(), repo, "refs/heads/"+p.Source)
	if err != nil && !errors.Is(err, vcs.ErrNotFound) {
		t.Error(err)
	}
	return err == nil && head == p.Head
}

// testOffer opens pull requests that name the repository as that of their head. Only those from a
// branch, which accounts with write access push, are its own.
func testOffer(t *testing.T, w World, c Client, repo vcs.RepoID) {
	w.Commit(t, "feature/ä", map[string]string{"x": "1"})
	number := w.OpenPull(t, NewPull{Source: "feature/ä"})
	got, err := c.Pull(t.Context(), repo, number)
	if err != nil || !own(t, c, repo, got) {
		t.Errorf("from a branch: %+v, %v", got, err)
	}
	number, commit := w.Offer(t)
	got, err = c.Pull(t.Context(), repo, number)
	if err != nil || got.Head != commit || got.State != vcs.PullOpen || own(t, c, repo, got) {
		t.Errorf("from no branch: %+v, %v", got, err)
	}
	all, _, err := c.Pulls(t.Context(), repo, "")
	at := slices.IndexFunc(all, func(p vcs.Pull) bool { return p.Number == number })
	if err != nil || at < 0 || all[at].Fork != got.Fork || all[at].Doubt != got.Doubt {
		t.Errorf("in the list: %+v, %v, want the same as %+v", all, err, got)
	}
}

func testPulls(t *testing.T, w World, c Client, repo vcs.RepoID) {
	list := func(since vcs.Cursor) ([]int, vcs.Cursor) {
		pulls, next, err := c.Pulls(t.Context(), repo, since)
		if err != nil || next == "" {
			t.Fatalf("cursor %q, %v", next, err)
		}
		var numbers []int
		for _, p := range pulls {
			numbers = append(numbers, p.Number)
		}
		return numbers, next
	}
	if got, _ := list(""); len(got) > 0 {
		t.Errorf("without pull requests: %v", got)
	}
	var numbers []int
	for _, branch := range []string{"p1", "p2", "p3", "p4", "p5", "p6", "p7"} {
		w.Commit(t, branch, map[string]string{branch: "1"})
		numbers = append(numbers, w.OpenPull(t, NewPull{Source: branch}))
	}
	w.SetPull(t, numbers[0], vcs.PullClosed)
	got, cursor := list("")
	slices.Sort(got)
	if !slices.Equal(got, numbers[1:]) {
		t.Errorf("open pull requests %v, want %v", got, numbers[1:])
	}
	w.SetPull(t, numbers[1], vcs.PullClosed)
	if got, _ = list(cursor); !slices.Contains(got, numbers[1]) {
		t.Errorf("a closed pull request is missing in %v", got)
	}
	// Its author can make a pull request lose its commit, which must not hide those of others.
	if d, ok := w.(interface{ DropHead(number int) }); ok {
		d.DropHead(numbers[3])
		got, _ = list("")
		slices.Sort(got)
		if want := slices.Delete(slices.Clone(numbers[2:]), 1, 2); !slices.Equal(got, want) {
			t.Errorf("open pull requests besides one without a commit: %v, want %v", got, want)
		}
	}
}

// Secretive is a forge that does not reveal the permissions of accounts.
type Secretive interface{ HidesPermissions() }

func testPermission(t *testing.T, w World, c Client, repo vcs.RepoID) {
	if _, ok := w.(Secretive); ok {
		if got, err := c.MayWrite(t.Context(), repo, w.Account(Writer)); err != nil || got {
			t.Errorf("a permission that the forge hides: %t, %v", got, err)
		}
		return
	}
	for name, want := range map[string]bool{Deployer: true, Writer: true, Reader: false} {
		if got, err := c.MayWrite(t.Context(), repo, w.Account(name)); err != nil || got != want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
	for _, stranger := range []vcs.Account{{}, {ID: "99999", Name: "stranger"}, {ID: w.Account(Reader).ID, Name: Writer}, {Name: Writer}} {
		if got, err := c.MayWrite(t.Context(), repo, stranger); err != nil || got {
			t.Errorf("%+v: %t, %v", stranger, got, err)
		}
	}
}

func testReport(t *testing.T, w World, c Client, repo vcs.RepoID, words Words) {
	commit := w.Commit(t, "main", map[string]string{"a": "1"})
	id := ""
	for _, state := range []vcs.ReportState{
		vcs.ReportPending, vcs.ReportAction, vcs.ReportRunning, vcs.ReportRunning, vcs.ReportNeutral, vcs.ReportRunning, vcs.ReportFailed, vcs.ReportRunning, vcs.ReportSucceeded,
	} {
		context := "infra/prod - preview deployment"
		next, err := c.Report(t.Context(), repo, vcs.Report{
			ID: id, Context: context, Commit: commit, State: state, Summary: strings.Repeat("long ", 100), URL: "https://pulumi.example.com/d/1", Details: "## Details",
		})
		if err != nil {
			t.Fatalf("%s: %v", state, err)
		}
		id = next
		if got := w.Reports(t, commit); got[context] != words[state] || len(got) != 1 {
			t.Errorf("%s: reports %v, want %s", state, got, words[state])
		}
	}
	if _, err := c.Report(t.Context(), repo, vcs.Report{Context: "pulumi", Commit: commit, State: vcs.ReportSucceeded, Summary: "No stack is affected.", URL: "https://pulumi.example.com"}); err != nil {
		t.Error(err)
	}
	if got := w.Reports(t, commit); len(got) != 2 {
		t.Errorf("reports %v", got)
	}
}

func testComment(t *testing.T, w World, c Client, repo vcs.RepoID) {
	const marker = "<!-- workflow:int-1 -->"
	w.Commit(t, "feature", map[string]string{"x": "1"})
	number := w.OpenPull(t, NewPull{Source: "feature"})
	w.Plant(t, number, "not mine "+marker)
	post := func(id, body string) string {
		t.Helper()
		id, err := c.Comment(t.Context(), repo, number, vcs.Comment{ID: id, Marker: marker, Body: body + "\n" + marker})
		if err != nil || id == "" {
			t.Fatalf("id %q, %v", id, err)
		}
		return id
	}
	expect := func(when string, want ...string) {
		t.Helper()
		got := w.Comments(t, number)
		for i := range got {
			got[i], _, _ = strings.Cut(got[i], "\n")
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: comments %q, want %q", when, got, want)
		}
	}
	stranger := "not mine " + marker
	first := post("", "one")
	expect("first", stranger, "one")
	if again := post(first, "two"); again != first {
		t.Errorf("the id changed from %s to %s", first, again)
	}
	expect("with an id", stranger, "two")
	post("", "three")
	expect("without the id", stranger, "three")
	w.DeleteComments(t, number)
	post(first, "four")
	expect("deleted", stranger, "four")
	if c.CommentLimit() < 30_000 {
		t.Errorf("the limit is %d", c.CommentLimit())
	}
}

func testHook(t *testing.T, w World, c Client, repo vcs.RepoID) {
	hook := vcs.Hook{URL: "https://pulumi.example.com/workflow/hook/1", Secret: strings.Repeat("s", 32)}
	for range 2 {
		must.OK(t, c.EnsureHook(t.Context(), repo, hook))
	}
	if got := w.Hooks(t, hook.URL); got != 1 {
		t.Errorf("%d webhooks are registered", got)
	}
}

func testClone(t *testing.T, _ World, c Client, repo vcs.RepoID) {
	credential, err := c.CloneAuth(t.Context(), repo)
	if err != nil || credential.Password == "" || credential.UserName == "" {
		t.Errorf("user %q, %v", credential.UserName, err)
	}
}

func testFailures(t *testing.T, w World, c Client, repo vcs.RepoID) {
	limiter, ok := w.(Limiter)
	if !ok {
		return // a real forge
	}
	commit := w.Commit(t, "main", map[string]string{"a": "1"})
	call := func() error {
		_, err := c.Report(t.Context(), repo, vcs.Report{Context: "pulumi", Commit: commit, State: vcs.ReportSucceeded, URL: "https://pulumi.example.com"})
		return err
	}
	limiter.Limit(429, map[string]string{"Retry-After": "120"})
	limited, ok := errors.AsType[*vcs.RateLimited](call())
	if !ok || time.Until(limited.Until) < time.Minute {
		t.Errorf("a limit: %v", limited)
	}
	for status, want := range map[int]error{401: vcs.ErrRefused, 403: vcs.ErrRefused, 404: vcs.ErrNotFound} {
		limiter.Limit(status, nil)
		if err := call(); !errors.Is(err, want) || strings.Contains(err.Error(), Token) {
			t.Errorf("status %d: %v", status, err)
		}
	}
	limiter.Limit(0, nil)
	if err := call(); err != nil {
		t.Error(err)
	}
}
