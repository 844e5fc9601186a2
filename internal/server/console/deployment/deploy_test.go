package deployment_test

import (
	"crypto/rand"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/protocol"
)

// TestDeployForm starts each operation by the form, which says first what the deployment waits for.
func TestDeployForm(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	s.Stack("box", "other")
	b := s.SignIn()
	sees := func(when string, wants ...string) {
		t.Helper()
		p := b.Get("/acme/box/dev/deploy")
		for _, want := range wants {
			if text := html.UnescapeString(p.Body); !strings.Contains(text, want) {
				t.Errorf("%s, the form does not say %q", when, want)
			}
		}
	}
	sees("without a pool", "It will wait until a pool is chosen.", "No default pool: choose one")
	token := s.Pool()
	sees("without an agent", "It will wait: no agent of pool pool is online.", "pool (no agent online)")
	agent := s.StartJob(token, "box", "other").AgentID
	sees("with a busy agent", "It will wait: all agents of pool pool are busy.", "The default pool: pool (0 of 1 agent free)")
	client, err := protocol.NewClient(protocol.Options{BaseURL: s.URL, HTTPClient: &http.Client{Timeout: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	for capacity, text := range []string{"It will wait: no agent of pool pool can start deployments.", "It will wait: all agents of pool pool are busy."} {
		if _, err := client.Poll(t.Context(), token, protocol.PollRequest{AgentID: agent, SessionID: agent, PollID: rand.Text(), Capacity: capacity}); err != nil {
			t.Fatal(err)
		}
		sees(fmt.Sprint("with an agent with the capacity ", capacity), text)
	}
	group := func(stack, name string) {
		s.API(http.MethodPost, "/api/stacks/acme/box/"+stack+"/deployments/settings", map[string]any{"concurrencyGroup": name}, nil)
	}
	group("dev", "network")
	group("other", "network")
	sees("while another stack of the group runs", `It will wait for a deployment of another stack: of the stacks in the concurrency group "network"`)
	group("dev", "")

	for i, operation := range []string{"update", "preview", "refresh", "detect-drift", "destroy", "remediate-drift"} {
		form := url.Values{"operation": {operation}}
		if operation == "destroy" || operation == "remediate-drift" {
			if p := b.Post("/acme/box/dev/deploy", form); p.Status != http.StatusUnprocessableEntity || !p.Contains("Type box/dev to confirm") {
				t.Errorf("%s without the stack's name: status %d", operation, p.Status)
			}
			form.Set("confirm", "box/dev")
		}
		p := b.Post("/acme/box/dev/deploy", form)
		if want := fmt.Sprintf("/acme/box/dev/deployments/%d", i+1); p.Status != http.StatusSeeOther || p.Location() != want {
			t.Errorf("%s: status %d to %q, want %s", operation, p.Status, p.Location(), want)
			continue
		}
		names := []string{"Update", "Preview", "Refresh", "Drift detection", "Destroy", "Drift remediation"}
		if shown := b.Get(p.Location()); !shown.Contains(names[i]+", waiting for", ">AD</span> admin", "#click\"></use></svg>console") {
			t.Errorf("the page of the deployment does not show the operation %s and who started it", operation)
		}
	}
	sees("behind another deployment", "It will wait behind #")
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/deployments/settings", map[string]any{}, nil)
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/deployments/pause", nil, nil)
	sees("with a paused stack", "It will wait: deployments of the stack are paused.")
}

// TestAgainWithoutCache repeats deployments with and without a workspace.
func TestAgainWithoutCache(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/deployments/settings", map[string]any{"cacheOptions": map[string]any{"enable": true}}, nil)
	b := s.SignIn()
	const list, button = "/acme/box/dev/deployments/", "Run again without cache"
	for version, keeps := range []bool{true, true, false} {
		path := fmt.Sprint(list, version+1)
		switch version {
		case 0:
			b.Post("/acme/box/dev/deploy", url.Values{"operation": {"update"}})
		case 1:
			b.Post(list+"1/again", nil)
		case 2:
			b.Post(list+"2/again", url.Values{"without-cache": {"on"}})
		}
		if p := b.Get(path); p.Contains(button) {
			t.Errorf("the page of the queued deployment #%d has the button %q", version+1, button)
		}
		b.Post(path+"/cancel", nil)
		if p := b.Get(path); p.Status != http.StatusOK || p.Contains(button) != keeps {
			t.Errorf("the page of deployment #%d: status %d, has the button %q: %t", version+1, p.Status, button, p.Contains(button))
		}
	}
}

// TestForceCancel cancels a running deployment, and then by force, which requires a recent sign-in.
func TestForceCancel(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	job := s.StartJob(s.Pool(), "box", "dev")
	b := s.SignIn()
	const button, again = "/force-cancel", "older than 15 minutes"
	requested := func(when string, cancelled, forced bool) {
		t.Helper()
		got, err := job.Heartbeat(t.Context(), protocol.PhaseStarting)
		if err != nil || got.CancelRequested != cancelled || got.ForceRequested != forced {
			t.Errorf("%s, the runner gets %+v, %v", when, got, err)
		}
	}
	if p := b.Get(job.Path); !p.Contains("Cancel the deployment") || p.Contains(button) {
		t.Errorf("before the cancellation, the page offers force: %s", p.Body)
	}
	requested("before the cancellation", false, false)
	if p := b.Post(job.Path+"/cancel", url.Values{"force": {"on"}}); p.Status != http.StatusSeeOther || p.Location() != job.Path {
		t.Errorf("cancelling: status %d to %q", p.Status, p.Location())
	}
	requested("after the cancellation", true, false)
	if p := b.Get(job.Path); !p.Contains(button) || p.Contains(again) {
		t.Errorf("after the cancellation, the page does not offer force: %s", p.Body)
	}

	s.AgeSessions(16 * time.Minute)
	signIn := "/-/login?next=" + url.QueryEscape(job.Path)
	if p := b.Get(job.Path); p.Contains(button) || !p.Contains(again, `href="`+html.EscapeString(signIn)+`"`) {
		t.Errorf("with an old sign-in, the page does not ask for another one: %s", p.Body)
	}
	req := b.Request(http.MethodPost, job.Path+"/force-cancel", nil)
	req.Header.Set("Referer", s.URL+job.Path)
	if p := b.Do(req); p.Status != http.StatusForbidden || !p.Contains("sign-in in the last 15 minutes", `href="`+html.EscapeString(signIn)+`"`) {
		t.Errorf("forcing with an old sign-in: status %d: %s", p.Status, p.Body)
	}
	requested("after the refusal", true, false)

	if p := b.Post("/-/login", url.Values{"token": {s.Token}, "next": {job.Path}}); p.Location() != job.Path {
		t.Fatalf("signing in again: status %d to %q", p.Status, p.Location())
	}
	if p := b.Post(job.Path+"/force-cancel", nil); p.Status != http.StatusSeeOther || p.Location() != job.Path {
		t.Errorf("forcing: status %d to %q: %s", p.Status, p.Location(), p.Body)
	}
	requested("after the forced cancellation", true, true)
}
