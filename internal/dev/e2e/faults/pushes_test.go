package faults

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/forgetest"
	"workflowagent/internal/dev/must"
)

// TestPushes kills the server with SIGKILL while it works on what a forge reports. Nothing is deployed
// twice, nothing is forgotten, and the forge finally shows the state of the deployments.
func TestPushes(t *testing.T) {
	p := newPushes(t)
	var all []string
	push := func() string {
		before := p.head
		p.head = p.forge.Commit(t, "main", map[string]string{"file": fmt.Sprint(len(all))})
		all = append(all, p.head)
		p.deliver("push", map[string]any{
			"ref": "refs/heads/main", "before": before, "after": p.head, "head_commit": map[string]any{"id": p.head, "message": "change"},
		})
		return p.head
	}

	t.Log("killed right after a delivery was accepted")
	commit := push()
	p.kill()
	p.deployed(commit)

	t.Log("killed while the forge is asked, before the decision")
	feature := p.forge.Commit(t, "feature", map[string]string{"file": "feature"})
	number := p.forge.OpenPull(t, forgetest.NewPull{Source: "feature"})
	arrived, release := p.forge.Hold("/pulls/")
	p.deliver("pull_request", map[string]any{"action": "opened", "number": number, "pull_request": map[string]any{"number": number}})
	p.await("the worker's request", arrived)
	p.kill()
	release()
	p.deployed(feature)

	t.Log("killed after the deployment was created, before it is reported")
	arrived, release = p.forge.Hold("/statuses/")
	commit = push()
	p.await("the report", arrived)
	p.deployed(commit)
	p.kill()
	release()
	p.reported(commit, "app/dev - update deployment", "pending")

	t.Log("killed at other times")
	for i := range 4 {
		push()
		timer := time.NewTimer(time.Duration(i*i) * 3 * time.Millisecond)
		<-timer.C
		p.kill()
	}
	p.deployed(p.head)
	for commit, n := range p.deployments() {
		if n != 1 {
			t.Errorf("the commit %s has %d deployments", commit, n)
		}
	}
	p.reported(p.head, "app/dev - update deployment", "pending")
	p.reported(feature, "app/dev - preview deployment", "pending")
}

// pushes is a server with a stack that watches a repository of a forge. No agent runs.
type pushes struct {
	t     *testing.T
	site  *harness.Site
	forge *forgetest.GitHubSite
	stack *harness.Stack
	head  string
	sent  int
	hook  struct{ ID, WebhookURL, WebhookSecret string }
}

func newPushes(t *testing.T) *pushes {
	t.Helper()
	p := &pushes{t: t, site: harness.StartSite(t, "", "--forge-poll", "1s"), forge: forgetest.GitHubWithoutApp(t)}
	p.head = p.forge.Commit(t, "main", map[string]string{"Pulumi.yaml": "name: app\nruntime: yaml\n"})
	org := p.site.Server.Organization
	p.call(http.MethodPost, "/api/console/orgs/"+org+"/integrations/github-enterprise", map[string]any{
		"name": "forge", "baseUrl": p.forge.BaseURL(), "owner": "acme", "accessToken": forgetest.Token, "events": "webhook",
	}, &p.hook)
	p.call(http.MethodPost, "/api/stacks/"+org+"/app", map[string]string{"stackName": "dev"}, nil)
	p.stack = &harness.Stack{W: p.site, Name: org + "/app/dev"}
	p.call(http.MethodPut, p.stack.Path("settings"), map[string]any{
		"sourceContext": map[string]any{"git": map[string]any{"branch": "main"}},
		"vcs":           map[string]any{"provider": "github", "repository": p.forge.Name(), "deployCommits": true, "previewPullRequests": true},
	}, nil)
	p.until("the first poll", func() (bool, error) {
		list, err := p.events()
		for _, e := range list {
			if e.Reason == "head-recorded" && e.After == p.head {
				return true, nil
			}
		}
		return false, err
	})
	return p
}

func (p *pushes) call(method, path string, in, out any) {
	p.t.Helper()
	must.OK(p.t, p.site.Server.Call(p.t.Context(), method, path, in, out))
}

func (p *pushes) until(what string, check func() (bool, error)) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if err := harness.Until(ctx, check); err != nil {
		events, _ := p.events()
		p.t.Fatalf("waiting for %s: %v; events %+v", what, err, events)
	}
}

func (p *pushes) await(what string, done <-chan struct{}) {
	p.t.Helper()
	p.until(what, func() (bool, error) {
		select {
		case <-done:
			return true, nil
		default:
			return false, nil
		}
	})
}

// deliver sends a delivery of the forge, which the server must accept.
func (p *pushes) deliver(event string, body map[string]any) {
	p.t.Helper()
	p.sent++
	body["repository"] = map[string]any{"id": 4711, "full_name": p.forge.Name()}
	body["sender"] = map[string]any{"id": 12, "login": forgetest.Writer, "type": "User"}
	data := must.Get(json.Marshal(body))(p.t)
	mac := hmac.New(sha256.New, []byte(p.hook.WebhookSecret))
	mac.Write(data)
	req := must.Get(http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.hook.WebhookURL, bytes.NewReader(data)))(p.t)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "X-GitHub-Event": event, "X-GitHub-Delivery": fmt.Sprintf("delivery-%d", p.sent),
		"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil)),
	} {
		req.Header.Set(name, value)
	}
	res := must.Get(http.DefaultClient.Do(req))(p.t)
	res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		p.t.Fatalf("the delivery was answered with %s", res.Status)
	}
}

// kill kills the server, and starts it again.
func (p *pushes) kill() {
	p.t.Helper()
	_ = p.site.Server.Process.Stop(syscall.SIGKILL, patience) // it ends by a signal
	must.OK(p.t, p.site.RestartServer(p.t.Context()))
}

type pushEvent struct {
	Reason, After string
	Decisions     []struct {
		Commit  string
		Version int
	}
}

func (p *pushes) events() ([]pushEvent, error) {
	var list struct{ Events []pushEvent }
	err := p.site.Server.Call(p.t.Context(), http.MethodGet, "/api/console/orgs/"+p.site.Server.Organization+"/integrations/github-enterprise/"+p.hook.ID+"/events", nil, &list)
	return list.Events, err
}

// deployments returns the number of deployments of each commit.
func (p *pushes) deployments() map[string]int {
	p.t.Helper()
	list := must.Get(p.events())(p.t)
	count := map[string]int{}
	for _, e := range list {
		for _, d := range e.Decisions {
			if d.Version > 0 {
				count[d.Commit]++
			}
		}
	}
	// Each deployment belongs to one decision.
	total := 0
	for _, n := range count {
		total += n
	}
	var page struct{ Total int }
	p.call(http.MethodGet, "/api/stacks/"+p.stack.Name+"/deployments?pageSize=1", nil, &page)
	if page.Total != total {
		p.t.Errorf("the stack has %d deployments, and %d were decided", page.Total, total)
	}
	return count
}

// deployed waits until a commit has a deployment.
func (p *pushes) deployed(commit string) {
	p.t.Helper()
	p.until("the deployment of "+commit, func() (bool, error) {
		list, err := p.events()
		for _, e := range list {
			for _, d := range e.Decisions {
				if d.Commit == commit && d.Version > 0 {
					return true, nil
				}
			}
		}
		return false, err
	})
}

// reported waits until the forge shows the state of a deployment.
func (p *pushes) reported(commit, context, state string) {
	p.t.Helper()
	p.until("the status of "+commit, func() (bool, error) { return p.forge.Reports(p.t, commit)[context] == state, nil })
}
