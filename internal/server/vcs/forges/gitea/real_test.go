package gitea

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/forgetest"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/server/vcs"
)

// TestReal runs the suite against a real Gitea.
func TestReal(t *testing.T) {
	server := forgetest.StartGitea(t)
	tokens := forgetest.GiteaUsers(t, server)
	forgetest.Run(t, Forge{}, words, func(t *testing.T) forgetest.World { return forgetest.RealGitea(t, server, tokens) })
	t.Run("deliveries", func(t *testing.T) { testDeliveries(t, server, tokens) })
	t.Run("rights", func(t *testing.T) { testRights(t, server, tokens) })
}

// testDeliveries checks what the forge really sends, by the events that it leads to.
func testDeliveries(t *testing.T, server *lab.Gitea, tokens map[string]string) {
	w := forgetest.RealGitea(t, server, tokens)
	secret := []byte(strings.Repeat("s", 32))
	deliveries := make(chan vcs.Parsed, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		d := vcs.Delivery{Header: map[string]string{}, Body: body}
		for name, values := range r.Header {
			d.Header[strings.ToLower(name)] = values[0]
		}
		if err := (Forge{}).Verify(d, [][]byte{secret}); err != nil {
			t.Errorf("%s: %v", d.Header["x-gitea-event"], err)
		}
		parsed, err := Forge{}.Parse(d)
		if err != nil {
			t.Errorf("%s: %v", d.Header["x-gitea-event"], err)
		}
		t.Logf("%s: %+v", d.Header["x-gitea-event"], parsed)
		deliveries <- parsed
		rw.WriteHeader(http.StatusAccepted)
	}))
	defer receiver.Close()
	c, err := Forge{}.Connect(w.Connection())
	if err != nil {
		t.Fatal(err)
	}
	repo, err := c.Find(t.Context(), w.Name())
	if err != nil {
		t.Fatal(err)
	}
	hooker, _ := c.(vcs.Hooker)
	if err := hooker.EnsureHook(t.Context(), repo.RepoID, vcs.Hook{URL: receiver.URL, Secret: string(secret)}); err != nil {
		t.Fatal(err)
	}
	before, err := c.Head(t.Context(), repo.RepoID, "refs/heads/main")
	if err != nil {
		t.Fatal(err)
	}
	// expect waits for a delivery that contains the event, and ignores others.
	expect := func(what string, matches func(p vcs.Parsed) bool) {
		t.Helper()
		timeout := time.After(20 * time.Second)
		for {
			select {
			case p := <-deliveries:
				if matches(p) {
					return
				}
			case <-timeout:
				t.Fatalf("no delivery: %s", what)
			}
		}
	}
	event := func(check func(e vcs.Event) bool) func(p vcs.Parsed) bool {
		return func(p vcs.Parsed) bool {
			return len(p.Events) == 1 && p.Events[0].Repo.ID == repo.ID && check(p.Events[0])
		}
	}
	w.TestHook(t)
	expect("row 26: test", func(p vcs.Parsed) bool { return p.Ignored.Reason == vcs.ReasonTest })
	pushed := w.Commit(t, "main", map[string]string{"a": "1"})
	expect("push", event(func(e vcs.Event) bool {
		return e.Kind == vcs.KindPush && e.Ref == "refs/heads/main" && e.Before == before && e.After == pushed && e.Sender.Name == forgetest.Deployer
	}))
	w.Tag(t, "v1.0.0", pushed)
	expect("row 38: annotated tag", event(func(e vcs.Event) bool {
		return e.Kind == vcs.KindTag && e.Ref == "refs/tags/v1.0.0" && e.After == pushed
	}))
	w.Reset(t, "main", before)
	expect("row 18: force push", event(func(e vcs.Event) bool { return e.Kind == vcs.KindPush && e.Before == pushed && e.After == before }))
	w.Commit(t, "feature", map[string]string{"b": "1"})
	expect("new branch", event(func(e vcs.Event) bool { return e.Ref == "refs/heads/feature" && e.Before == "" && e.After != "" }))
	number := w.OpenPull(t, forgetest.NewPull{Source: "feature"})
	isPull := event(func(e vcs.Event) bool { return e.Kind == vcs.KindPull && e.Pull == number })
	expect("opened", isPull)
	w.Commit(t, "feature", map[string]string{"b": "2"})
	expect("synchronized", isPull)
	w.Commit(t, "other", map[string]string{"c": "1"})
	w.Retarget(t, number, "other")
	expect("row 54: retargeted", isPull)
	w.Plant(t, number, "/deploy")
	expect("row 66: comment, or none", func(vcs.Parsed) bool { return true })
	w.SetPull(t, number, vcs.PullClosed)
	expect("closed", isPull)
	fork := w.OpenPull(t, forgetest.NewPull{Source: "feature", Fork: true})
	expect("fork", event(func(e vcs.Event) bool {
		return e.Kind == vcs.KindPull && e.Pull == fork && e.Sender.Name == forgetest.Reader
	}))
	offered, _ := w.Offer(t)
	expect("offered by a push to refs/for", event(func(e vcs.Event) bool {
		return e.Kind == vcs.KindPull && e.Pull == offered && e.Sender.Name == forgetest.Reader
	}))
	w.DeleteBranch(t, "feature")
	expect("deleted branch", event(func(e vcs.Event) bool { return e.Kind == vcs.KindPush && e.Ref == "refs/heads/feature" && e.Deleted }))
	w.Rename(t)
	w.Commit(t, "main", map[string]string{"d": "1"})
	expect("row 32: push after a rename", event(func(e vcs.Event) bool { return e.Repo.Name == w.Name() }))
}

// testRights checks which rights of a token suffice.
func testRights(t *testing.T, server *lab.Gitea, tokens map[string]string) {
	w := forgetest.RealGitea(t, server, tokens)
	commit := w.Commit(t, "feature", map[string]string{"b": "1"})
	number := w.OpenPull(t, forgetest.NewPull{Source: "feature"})
	token, err := server.NewToken(t.Context(), forgetest.Deployer, "write:repository,write:issue")
	if err != nil {
		t.Fatal(err)
	}
	connection := w.Connection()
	connection.Credential.Password = token
	connected, err := Forge{}.Connect(connection)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := connected.(forgetest.Client)
	repo, err := c.Find(t.Context(), w.Name())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Report(t.Context(), repo.RepoID, vcs.Report{Context: "pulumi", Commit: commit, State: vcs.ReportSucceeded}); err != nil {
		t.Error(err)
	}
	if _, err := c.Comment(t.Context(), repo.RepoID, number, vcs.Comment{Marker: "<!-- m -->", Body: "text <!-- m -->"}); err != nil {
		t.Error(err)
	}
	if err := c.EnsureHook(t.Context(), repo.RepoID, vcs.Hook{URL: "https://pulumi.example.com/1", Secret: "secret"}); err != nil {
		t.Error(err)
	}
	if _, err := c.Refs(t.Context(), repo.RepoID, []string{"refs/heads/"}); err != nil {
		t.Error(err)
	}
}
