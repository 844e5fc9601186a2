package forge

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/forgetest"
	"workflowagent/internal/server/vcs"
)

// The deployments of pushes and of pull requests.
var (
	byPush = harness.Deployment{Operation: "update", Initiator: "git-push"}
	byPull = harness.Deployment{Operation: "preview", Initiator: "pull-request"}
)

func TestGitea(t *testing.T) {
	s := newSite(t)
	t.Run("push", func(t *testing.T) { testPush(t, s) })
	t.Run("pull request", func(t *testing.T) { testPull(t, s) })
	t.Run("review stack", func(t *testing.T) { testReviewStack(t, s) })
	t.Run("fork", func(t *testing.T) { testFork(t, s) })
	t.Run("offer", func(t *testing.T) { testOffer(t, s) })
	t.Run("poll", func(t *testing.T) { testPoll(t, s) })
}

// testPush deploys pushes and tags, which a webhook reports that was made by hand.
func testPush(t *testing.T, s *site) {
	r := s.newRepo(t, "push")
	dev := r.watch("dev", map[string]any{"deployCommits": true, "deployTags": true, "paths": []string{"infra/**"}})
	r.AddHook(t, r.hook.WebhookURL, r.hook.WebhookSecret)
	r.change(map[string]any{"events": "webhook"})
	commit := r.Commit(t, "main", map[string]string{"infra/Pulumi.yaml": program("push", 2)})
	r.deployed(dev, "push", commit, "webhook", byPush)
	r.reports(commit, map[string]string{"push/dev - update deployment": "success"})
	if out := r.pulumi(t.TempDir(), "stack", "output", "greeting", "--stack", dev.Name); strings.TrimSpace(out) != "hello from dev" {
		t.Errorf("the output is %q", out)
	}
	other := r.Commit(t, "main", map[string]string{"README": "2"})
	r.decided("dev", other, "no-path-matched")

	r.Tag(t, "v1.0.0", commit)
	r.deployed(dev, "tag", commit, "webhook", harness.Deployment{Operation: "update", Initiator: "git-tag"})
	if n := r.Hooks(t, r.hook.WebhookURL); n != 1 {
		t.Errorf("the repository has %d webhooks", n)
	}
}

// violatedPack has policies that the resource in [violating] violates.
const violatedPack = `{"name": "lab", "version": "1.0.0", "displayName": "Lab", "policies": [
  {"name": "no-file", "level": "advisory", "message": "choose an output", "type": "lab:index:File", "property": "path", "value": "bad"},
  {"name": "no-bad-content", "level": "mandatory", "severity": "high", "message": "choose another <b>content</b>", "type": "lab:index:File", "property": "content", "value": "bad"}
]}`

// violating returns a program of a project with a resource that violates policies, and a comment.
func violating(project, comment string) string {
	return strings.Replace(program(project, 3), "outputs:", "  bad: {type: 'lab:File', properties: {path: ./bad, content: bad}} # "+comment+"\noutputs:", 1)
}

// testPull previews the commits of a pull request. A mandatory violation of a policy makes the statuses fail, and
// advisory ones are only in the comment.
func testPull(t *testing.T, s *site) {
	r := s.newRepo(t, "preview")
	dev := r.watch("dev", map[string]any{"previewPullRequests": true})
	first := r.Commit(t, "feature", map[string]string{"infra/Pulumi.yaml": program("preview", 2)})
	pull := r.OpenPull(t, forgetest.NewPull{Source: "feature"})
	r.deployed(dev, "pull", first, "webhook", byPull)
	done := map[string]string{"preview/dev - preview deployment": "success", "pulumi": "success"}
	r.reports(first, done)
	r.comment(pull, "[preview/dev]", "succeeded", "`+3`", first[:8])

	second := r.Commit(t, "feature", map[string]string{"infra/Pulumi.yaml": program("preview", 3)})
	r.deployed(dev, "pull", second, "webhook", byPull)
	r.reports(second, done)
	if text := r.comment(pull, "[preview/dev]", "succeeded", "`+4`", second[:8]); strings.Contains(text, first[:8]) {
		t.Errorf("the comment still shows the first commit: %s", text)
	}

	pack := map[string]any{"name": "lab", "versionTag": "1.0.0"}
	s.PublishPack(t.Context(), t, violatedPack)
	s.ChangeGroup(t.Context(), t, "default-policy-group", "addPolicyPack", pack)
	third := r.Commit(t, "feature", map[string]string{"infra/Pulumi.yaml": violating("preview", "third")})
	if d := dev.Finish(t.Context(), t, r.find(dev, 3)); d.Status != "failed" {
		t.Errorf("the preview with a mandatory violation ended as %+v", d)
	}
	r.reports(third, map[string]string{"preview/dev - preview deployment": "failure", "pulumi": "failure"})
	r.comment(pull, "[preview/dev]", "failed", third[:8], "Policy violations\n\n```\n"+
		"mandatory: lab no-bad-content: lab:index:File bad: choose another <b>content</b>\nadvisory: lab no-file: lab:index:File bad: choose an output\n")

	pack["config"] = map[string]any{"all": map[string]any{"enforcementLevel": "advisory"}}
	s.ChangeGroup(t.Context(), t, "default-policy-group", "addPolicyPack", pack)
	fourth := r.Commit(t, "feature", map[string]string{"infra/Pulumi.yaml": violating("preview", "fourth")})
	r.deployed(dev, "pull", fourth, "webhook", byPull)
	r.reports(fourth, done)
	r.comment(pull, "[preview/dev]", "succeeded", fourth[:8], "advisory: lab no-bad-content: lab:index:File bad")
	delete(pack, "config")
	s.ChangeGroup(t.Context(), t, "default-policy-group", "removePolicyPack", pack)

	r.SetPull(t, pull, vcs.PullClosed)
	r.decided("dev", fourth, "pull-request-closed")
}

// testReviewStack gives a pull request its own stack until it is closed.
func testReviewStack(t *testing.T, s *site) {
	r := s.newRepo(t, "review")
	r.watch("template", map[string]any{"pullRequestTemplate": true})
	first := r.Commit(t, "feature", map[string]string{"infra/Pulumi.yaml": program("review", 2)})
	pull := r.OpenPull(t, forgetest.NewPull{Source: "feature"})
	mine := r.stack(fmt.Sprintf("pr-%s-%d", strings.ReplaceAll(r.Name(), "/", "-"), pull))
	name := strings.TrimPrefix(mine.Name, s.Server.Organization+"/")
	update := harness.Deployment{Operation: "update", Initiator: "review-stack"}
	r.succeeded(mine, 1, first, update)
	r.reports(first, map[string]string{name + " - update deployment": "success", "pulumi": "success"})
	r.comment(pull, "/deployments/1", "succeeded", "`+3`", first[:8], "greeting = hello from template", "hex = ")
	if secret := r.pulumi(t.TempDir(), "stack", "output", "password", "--show-secrets", "--stack", mine.Name); strings.TrimSpace(secret) != "hunter2-of-template" {
		t.Errorf("the secret configuration of the template is %q in the review stack", secret)
	}

	second := r.Commit(t, "feature", map[string]string{"infra/Pulumi.yaml": program("review", 3)})
	r.succeeded(mine, 2, second, update)
	r.comment(pull, "/deployments/2", "succeeded", "`+1`", second[:8], "hello from template")

	r.SetPull(t, pull, vcs.PullClosed)
	until(t, "the end of the stack", func() (bool, any) {
		err := s.Server.Call(t.Context(), http.MethodGet, "/api/stacks/"+mine.Name, nil, nil)
		return err != nil && strings.Contains(err.Error(), "404"), err
	})
	r.comment(pull, "| destroy | ✅ succeeded | stack removed |")
	r.reports(second, map[string]string{name + " - update deployment": "success", name + " - destroy deployment": "success", "pulumi": "success"})
}

// testFork previews the commits of a fork that a member has approved.
func testFork(t *testing.T, s *site) {
	r := s.newRepo(t, "fork")
	r.change(map[string]any{"forkPullRequests": "approve"})
	dev := r.watch("dev", map[string]any{"previewPullRequests": true})
	first := r.CommitOnly(t, "feature", map[string]string{"infra/Pulumi.yaml": program("fork", 2)})
	pull := r.OpenPull(t, forgetest.NewPull{Source: "feature", Fork: true})
	held := map[string]string{"pulumi": "pending"}
	r.decided("dev", first, "fork-needs-approval")
	r.reports(first, held)
	pulls := "/api/stacks/" + dev.Name + "/vcs/pulls"
	var list struct {
		Pulls []struct {
			Number         int
			Head, Author   string
			Fork, Approved bool
		}
	}
	s.call(t, http.MethodGet, pulls, nil, &list)
	if len(list.Pulls) != 1 || list.Pulls[0].Head != first || !list.Pulls[0].Fork || list.Pulls[0].Approved || list.Pulls[0].Author != forgetest.Reader {
		t.Errorf("pull requests: %+v", list.Pulls)
	}
	s.call(t, http.MethodPost, fmt.Sprintf("%s/%d/approve", pulls, pull), map[string]string{"commit": first}, nil)
	r.succeeded(dev, 1, first, byPull)
	r.reports(first, map[string]string{"fork/dev - preview deployment": "success", "pulumi": "success"})
	r.comment(pull, "[fork/dev]", "succeeded", "`+3`", first[:8])

	second := r.CommitOnly(t, "feature", map[string]string{"infra/Pulumi.yaml": program("fork", 3)})
	r.PushFork(t, pull, "feature")
	r.decided("dev", second, "fork-needs-approval")
	r.reports(second, held)
	r.comment(pull, "outdated", first[:8])
	if err := s.Server.Call(t.Context(), http.MethodGet, dev.Path("version/2"), nil, nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("the new commit was deployed: %v", err)
	}
}

// testOffer checks that nothing runs for a pull request that an account without write access has made
// in the repository itself, by a push to refs/for.
func testOffer(t *testing.T, s *site) {
	r := s.newRepo(t, "offer")
	r.change(map[string]any{"forkPullRequests": "approve"})
	dev := r.watch("dev", map[string]any{"previewPullRequests": true, "pullRequestTemplate": true})
	pull, commit := r.Offer(t)
	r.decided("dev", commit, "head-is-no-branch")
	r.reports(commit, map[string]string{"pulumi": "pending"})
	mine := r.stack(fmt.Sprintf("pr-%s-%d", strings.ReplaceAll(r.Name(), "/", "-"), pull))
	for _, path := range []string{dev.Path("version/1"), "/api/stacks/" + mine.Name} {
		if err := s.Server.Call(t.Context(), http.MethodGet, path, nil, nil); err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("%s exists: %v", path, err)
		}
	}
}

// testPoll deploys pushes that no webhook reports.
func testPoll(t *testing.T, s *site) {
	r := s.newRepo(t, "poll")
	dev := r.watch("dev", map[string]any{"deployCommits": true})
	r.AddHook(t, r.hook.WebhookURL, r.hook.WebhookSecret)
	r.change(map[string]any{"events": "webhook"})
	commit := r.Commit(t, "main", map[string]string{"infra/Pulumi.yaml": program("poll", 2)})
	r.deployed(dev, "push", commit, "webhook", byPush)

	r.DeleteHooks(t)
	r.change(map[string]any{"events": "poll"})
	commit = r.Commit(t, "main", map[string]string{"infra/Pulumi.yaml": program("poll", 3)})
	r.deployed(dev, "push", commit, "poll", byPush)
	r.reports(commit, map[string]string{"poll/dev - update deployment": "success"})
}
