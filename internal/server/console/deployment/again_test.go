package deployment_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/protocol"
)

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
