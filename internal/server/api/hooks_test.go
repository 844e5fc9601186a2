package api_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/workflow"
)

type hook struct {
	Name, DisplayName, PayloadURL, Format, OrganizationName, ProjectName, StackName string
	Active, HasSecret                                                               bool
	Filters, Groups                                                                 []string
	SecretCiphertext                                                                string
}

type delivery struct {
	ID, Kind, Payload, RequestURL, RequestHeaders, ResponseHeaders, ResponseBody, Status string
	ResponseCode, Timestamp, Attempts                                                    int64
}

// received is a request that a receiver got.
type received struct{ id, kind, body string }

// receiver starts an HTTP server that accepts webhooks with a valid signature.
func receiver(t *testing.T, secret string) (url string, got chan received) {
	t.Helper()
	got = make(chan received, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write(body)
		if r.Header.Get("Pulumi-Webhook-Signature") != hex.EncodeToString(mac.Sum(nil)) || r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "bad signature", http.StatusUnauthorized)
			return
		}
		got <- received{r.Header.Get("Pulumi-Webhook-ID"), r.Header.Get("Pulumi-Webhook-Kind"), string(body)}
		io.WriteString(w, "thanks")
	}))
	t.Cleanup(s.Close)
	return s.URL, got
}

// runWebhooks sends deliveries until the test ends.
func (f *fixture) runWebhooks() { f.t.Cleanup(f.sendWebhooks()) }

// sendWebhooks sends deliveries until stop is called.
func (f *fixture) sendWebhooks() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.webhooks.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("Run: %v", err)
		}
	}
}

func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// TestWebhooks creates, reads, changes and deletes the webhooks of an organization and of a stack.
func TestWebhooks(t *testing.T) {
	f := newFixture(t, options{})
	for _, owner := range []struct{ path, project, stack string }{{"/api/orgs/acme", "", ""}, {f.stack("dev"), "proj", "dev"}} {
		base := owner.path + "/hooks"
		var list []hook
		if f.do("GET", base, nil).want(200, &list); len(list) != 0 {
			t.Fatalf("a new owner has the webhooks %v", list)
		}
		var made hook
		f.do("POST", base, map[string]any{
			"organizationName": "acme", "displayName": "First", "payloadUrl": "https://example.com/x", "active": true,
			"groups": []string{"stacks"}, "filters": []string{"drift_remediation_failed", "drift_detected"}, "secret": "hush",
		}).want(201, &made)
		want := hook{
			Name: made.Name, DisplayName: "First", PayloadURL: "https://example.com/x", Format: "raw", OrganizationName: "acme",
			ProjectName: owner.project, StackName: owner.stack, Active: true, HasSecret: true,
			Filters: []string{"drift_remediation_failed", "drift_detected"}, Groups: []string{"stacks"}, SecretCiphertext: digest("hush"),
		}
		if diff := cmp.Diff(want, made); diff != "" || len(made.Name) != 8 {
			t.Errorf("created webhook %q (-want +got):\n%s", made.Name, diff)
		}
		one := base + "/" + made.Name
		var got hook
		a := f.do("GET", one, nil).want(200, &got)
		if diff := cmp.Diff(want, got); diff != "" || strings.Contains(string(a.Body), "hush") {
			t.Errorf("the webhook (-want +got):\n%s", diff)
		}
		f.do("POST", base, map[string]any{"name": made.Name, "displayName": "x", "payloadUrl": "https://example.com"}).want(409, nil).says("already exists")

		// A change keeps what it does not name. Filters and groups belong together.
		f.do("PATCH", one, map[string]any{"active": false}).want(200, &got)
		want.Active = false
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after a change (-want +got):\n%s", diff)
		}
		f.do("PATCH", one, map[string]any{"filters": []string{"update_failed"}, "secret": "new"}).want(200, &got)
		if len(got.Groups) != 0 || got.SecretCiphertext != digest("new") {
			t.Errorf("after a change of filters and secret: %+v", got)
		}
		var bare hook
		f.do("PATCH", one, map[string]any{"secret": "__remove-secret", "name": "renamed"}).want(200, &bare)
		if bare.HasSecret || bare.SecretCiphertext != "" || bare.Name != "renamed" {
			t.Errorf("after the removal of the secret: %+v", bare)
		}
		f.do("GET", one, nil).want(404, nil)

		for n := range 49 {
			f.do("POST", base, map[string]any{"name": fmt.Sprintf("n%02d", n), "displayName": "x", "payloadUrl": "https://example.com"}).want(201, nil)
		}
		f.do("POST", base, map[string]any{"displayName": "x", "payloadUrl": "https://example.com"}).want(400, nil).says("at most 50")
		if f.do("GET", base, nil).want(200, &list); len(list) != 50 || list[1].Name != "n01" {
			t.Errorf("the list has %d webhooks", len(list))
		}
		f.do("DELETE", base+"/renamed", nil).want(204, nil)
		f.do("DELETE", base+"/renamed", nil).want(404, nil)
		f.do("GET", base+"/renamed/deliveries", nil).want(404, nil)
		f.do("POST", base+"/renamed/ping", nil).want(404, nil)
		f.do("POST", base+"/n00/deliveries/none/redeliver", nil).want(404, nil)
	}
}

// TestInvalidWebhooks checks the messages about invalid webhooks.
func TestInvalidWebhooks(t *testing.T) {
	f := newFixture(t, options{})
	stack := f.stack("dev") + "/hooks"
	const org = "/api/orgs/acme/hooks"
	for _, test := range []struct {
		path, name string
		value      any
		says       string
	}{
		{org, "organizationName", "rival", "doesn't match URL"},
		{org, "stackName", "dev", "doesn't match URL"},
		{stack, "stackName", "prod", "doesn't match URL"},
		{stack, "envName", "e", "doesn't match URL"},
		{org, "format", "pulumi_deployments", "can only be used on stack"},
		{org, "format", "xml", "must be raw"},
		{stack, "format", "pulumi_deployments", "as in project/stack"},
		{org, "name", "a b", "letters, digits"},
		{org, "displayName", "", "displayName"},
		{org, "payloadUrl", "ftp://example.com", "https://"},
		{org, "payloadUrl", "https://u:p@example.com", "user or password"},
		{org, "payloadUrl", "https://", "must be absolute"},
		{org, "filters", []string{"update_done"}, "is not an event"},
		{org, "groups", []string{"everything"}, "deployments, environments, policies, stacks"},
		{stack, "groups", []string{"environments"}, "deployments, policies, stacks"},
		{stack, "filters", []string{"stack_deleted"}, "only webhooks of organizations"},
		{stack, "filters", []string{"environment_created"}, "only webhooks of organizations"},
		{org, "secret", strings.Repeat("x", 2000), "longer than"},
	} {
		body := map[string]any{"displayName": "x", "payloadUrl": "https://example.com", test.name: test.value}
		f.do("POST", test.path, body).want(400, nil).says(test.says)
	}
	f.do("POST", org, map[string]any{
		"displayName": "x", "payloadUrl": "https://example.com", "groups": []string{"stacks"}, "filters": []string{"update_failed"},
	}).want(400, nil).says(`already part of the group`)
	deploys := func(target string) answer {
		return f.do("POST", stack, map[string]any{"displayName": "x", "payloadUrl": target, "format": "pulumi_deployments"})
	}
	deploys("proj/dev").want(400, nil).says("would start the next")
	deploys("proj/none").want(404, nil)
}

// TestWebhookDeliveries pings a receiver, sends it the events of updates, and repeats one.
func TestWebhookDeliveries(t *testing.T) {
	f := newFixture(t, options{})
	f.runWebhooks()
	url, got := receiver(t, "hush")
	stack := f.stack("dev")
	next := func(kind string) received {
		t.Helper()
		select {
		case r := <-got:
			if r.kind != kind {
				t.Fatalf("received %+v, want the kind %s", r, kind)
			}
			return r
		case <-time.After(30 * time.Second):
			t.Fatalf("no %s was received", kind)
		}
		return received{}
	}
	hook := stack + "/hooks/h"
	f.do("POST", stack+"/hooks", map[string]any{"name": "h", "displayName": "x", "payloadUrl": url, "secret": "hush"}).want(201, nil)
	f.do("POST", "/api/orgs/acme/hooks", map[string]any{"name": "h", "displayName": "x", "payloadUrl": url, "filters": []string{"stack_deleted"}}).want(201, nil)

	var pong delivery
	f.do("POST", hook+"/ping", nil).want(200, &pong)
	if r := next("ping"); r.id != pong.ID || r.body != pong.Payload || !strings.Contains(r.body, "friendly ping") {
		t.Errorf("received %+v, recorded %+v", r, pong)
	}
	if pong.ResponseCode != 200 || pong.ResponseBody != "thanks" || pong.RequestURL != url || pong.Status != "succeeded" ||
		!strings.Contains(pong.RequestHeaders, "Pulumi-Webhook-Signature: ") || !strings.Contains(pong.ResponseHeaders, "Content-Length: 6\n") {
		t.Errorf("the delivery of a ping is %+v", pong)
	}

	u := f.start(stack, "update")
	u.send("POST", "/complete", map[string]any{"status": "succeeded"}).want(204, nil)
	r := next("stack_update")
	var payload map[string]any
	if err := json.Unmarshal([]byte(r.body), &payload); err != nil {
		t.Fatal(err)
	}
	acme := map[string]any{"name": payload["organization"].(map[string]any)["name"], "githubLogin": "acme", "avatarUrl": ""}
	want := map[string]any{
		"user": payload["user"], "organization": acme, "projectName": "proj", "stackName": "dev", "kind": "update", "result": "succeeded",
		"isPreview": false, "resourceChanges": map[string]any{}, "updateUrl": "http://server.test/acme/proj/dev/updates/1",
	}
	if diff := cmp.Diff(want, payload); diff != "" {
		t.Errorf("payload (-want +got):\n%s", diff)
	}

	var again delivery
	f.do("POST", hook+"/deliveries/"+r.id+"/redeliver", nil).want(200, &again)
	if repeated := next("stack_update"); repeated.body != r.body || repeated.id == r.id || again.ID != repeated.id {
		t.Errorf("redelivered %+v, want the payload of %+v with a new id", repeated, r)
	}

	// A wrong secret is recorded as the receiver reports it.
	f.do("PATCH", hook, map[string]any{"secret": "other"}).want(200, nil)
	var refused delivery
	f.do("POST", hook+"/ping", nil).want(200, &refused)
	if refused.ResponseCode != 401 || refused.Status != "failed" || refused.ResponseBody != "bad signature\n" || refused.Attempts != 1 {
		t.Errorf("a refused delivery is %+v", refused)
	}
	for range 110 {
		f.do("POST", hook+"/ping", nil).want(200, &refused)
	}
	var list []delivery
	f.do("GET", hook+"/deliveries", nil).want(200, &list)
	if len(list) != 100 || list[0].ID != refused.ID {
		t.Errorf("listed %d deliveries, the first %+v, want 100 and %s first", len(list), list[0], refused.ID)
	}

	f.do("DELETE", stack, nil).want(204, nil)
	var orgs []delivery
	for deadline := time.Now().Add(30 * time.Second); len(orgs) == 0 || orgs[0].Attempts == 0; {
		f.do("GET", "/api/orgs/acme/hooks/h/deliveries", nil).want(200, &orgs)
		if time.Now().After(deadline) {
			t.Fatalf("the deletion of the stack was not delivered: %+v", orgs)
		}
	}
	if orgs[0].Kind != "stack" || !strings.Contains(orgs[0].Payload, `"action":"deleted"`) || orgs[0].Status != "pending" {
		t.Errorf("the delivery of a deletion is %+v, want one that is to be repeated", orgs[0])
	}
}

// TestOrganizationWebhookDeliveries pings the webhook of an organization, and repeats the delivery.
func TestOrganizationWebhookDeliveries(t *testing.T) {
	f := newFixture(t, options{})
	url, got := receiver(t, "hush")
	const hook = "/api/orgs/acme/hooks/h"
	f.do("POST", "/api/orgs/acme/hooks", map[string]any{"name": "h", "displayName": "x", "payloadUrl": url, "secret": "hush"}).want(201, nil)
	var pong, again delivery
	f.do("POST", hook+"/ping", nil).want(200, &pong)
	f.do("POST", hook+"/deliveries/"+pong.ID+"/redeliver", nil).want(200, &again)
	first, second := <-got, <-got
	if first.kind != "ping" || first.id != pong.ID || second.id != again.ID || second.body != first.body {
		t.Errorf("received %+v and %+v, recorded %+v and %+v", first, second, pong, again)
	}
	f.do("POST", hook+"/deliveries/none/redeliver", nil).want(404, nil)
}

// TestWebhookDeploysAnotherStack lets the deployments of two stacks start each other, and checks
// that they do so once, and only while the creator of the webhook may.
func TestWebhookDeploysAnotherStack(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	l.runWebhooks()
	ready := map[string]any{
		"agentPoolID":   l.pool,
		"sourceContext": map[string]any{"git": map[string]any{"repoUrl": "https://example.com/a/b.git", "branch": "main"}},
	}
	a, b := l.stack("a"), l.stack("b")
	for stack, target := range map[string]string{a: "proj/b", b: "proj/a"} {
		l.do("PUT", stack+"/deployments/settings", ready).want(200, nil)
		l.do("POST", stack+"/hooks", map[string]any{
			"name": "chain", "displayName": "x", "payloadUrl": target, "format": "pulumi_deployments", "filters": []string{"deployment_succeeded", "deployment_failed"},
		}).want(201, nil)
	}
	var pong delivery
	if l.do("POST", a+"/hooks/chain/ping", nil).want(200, &pong); pong.ResponseCode != 200 || pong.Status != "succeeded" {
		t.Errorf("a ping that deploys is %+v", pong)
	}
	wait := func(stack string, code int64) delivery {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
			var list []delivery
			l.do("GET", stack+"/hooks/chain/deliveries", nil).want(200, &list)
			if len(list) > 0 && list[0].Kind == "deployment" && list[0].ResponseCode == code {
				return list[0]
			}
		}
		t.Fatalf("no delivery of %s with status %d", stack, code)
		return delivery{}
	}
	end := func(stack string) {
		t.Helper()
		_, job := l.claim("chain-" + stack[len(stack)-1:])
		if err := job.Result(t.Context(), protocol.ResultRequest{Status: workflow.StatusFailed}); err != nil {
			t.Fatal(err)
		}
	}
	l.deploy(a+"/deployments", "update")
	end(a)
	if d := wait(a, 202); !strings.Contains(d.ResponseBody, "#1 is queued") {
		t.Errorf("the delivery is %+v", d)
	}
	// While that deployment waits, a further event adds nothing to the queue, but a redelivery does.
	l.do("POST", b+"/deployments/pause", nil).want(200, nil)
	l.deploy(a+"/deployments", "update")
	end(a)
	covered := wait(a, 200)
	if !strings.Contains(covered.ResponseBody, "Deployment #1") || covered.Status != "succeeded" {
		t.Errorf("the delivery while a deployment waits is %+v", covered)
	}
	var redelivered delivery
	l.do("POST", a+"/hooks/chain/deliveries/"+covered.ID+"/redeliver", nil).want(200, &redelivered)
	if redelivered.ResponseCode != 202 || !strings.Contains(redelivered.ResponseBody, "#2 is queued") {
		t.Errorf("the redelivery is %+v", redelivered)
	}
	l.do("POST", b+"/deployments/resume", nil).want(200, nil)
	end(b)
	if d := wait(b, 403); !strings.Contains(d.ResponseBody, "could go on forever") || d.Status != "failed" {
		t.Errorf("the delivery that closes the circle is %+v", d)
	}
	var list struct{ Total int }
	if l.do("GET", a+"/deployments", nil).want(200, &list); list.Total != 2 {
		t.Errorf("stack a has %d deployments, want 2", list.Total)
	}
}
