package hooks_test

import (
	"context"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/lab/child"
)

// request is what the receiver got.
type request struct{ id, kind, body string }

var (
	rows      = regexp.MustCompile(`(?s)<details class="more-opts">.*?</details>`)
	summary   = regexp.MustCompile(`(?s)<summary>(.*?)</summary>`)
	contents  = regexp.MustCompile(`(?s)<span tabindex="0">(.*?)</span></copy-text>`)
	deliverID = regexp.MustCompile(`name="delivery" value="([^"]+)"`)
	tags      = regexp.MustCompile(`(?s)<[^>]*>`)
)

// delivery is a row of a webhook's page.
type delivery struct{ id, summary, request, response string }

// deliveries reads the rows of a webhook's page, newest first.
func deliveries(t *testing.T, b *consoletest.Browser, path string) (list []delivery) {
	t.Helper()
	p := b.Get(path)
	if p.Status != http.StatusOK {
		t.Fatalf("GET %s: status %d: %s", path, p.Status, p.Body)
	}
	for _, row := range rows.FindAllString(p.Body, -1) {
		id, parts := deliverID.FindStringSubmatch(row), contents.FindAllStringSubmatch(row, -1)
		if id == nil || len(parts) != 2 {
			t.Fatalf("%s: the row %s has no id, request or response", path, row)
		}
		words := tags.ReplaceAllString(summary.FindStringSubmatch(row)[1], " ")
		list = append(list, delivery{id[1], strings.Join(strings.Fields(words), " "), html.UnescapeString(parts[0][1]), html.UnescapeString(parts[1][1])})
	}
	return list
}

// TestDeliveries pings webhooks of a stack and of the organization, lets events reach them, and
// delivers again. Each delivery is a row with its result.
func TestDeliveries(t *testing.T) {
	got := make(chan request, 10)
	var answer atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(int(answer.Load()))
		io.WriteString(w, "<b>thanks</b>")
		got <- request{r.Header.Get("Pulumi-Webhook-ID"), r.Header.Get("Pulumi-Webhook-Kind"), string(body)}
	}))
	defer receiver.Close()
	s := consoletest.With(t, nil, "webhooks")
	s.Stack("web", "prod")
	b := s.SignIn()
	next := func() request {
		t.Helper()
		select {
		case r := <-got:
			return r
		case <-time.After(time.Minute):
			t.Fatal("the receiver got nothing")
		}
		return request{}
	}
	post := func(path string, form url.Values) {
		t.Helper()
		if p := b.Post(path, form); p.Status != http.StatusSeeOther {
			t.Fatalf("POST %s: status %d: %s", path, p.Status, p.Body)
		}
	}
	// row waits until the newest delivery of a webhook has a response.
	row := func(path string, count int) delivery {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		var list []delivery
		if err := child.Poll(ctx, 10*time.Millisecond, func() (bool, error) {
			list = deliveries(t, b, path)
			return len(list) == count && strings.Contains(list[0].summary, "response"), nil
		}); err != nil {
			t.Fatalf("%s lists %+v, want %d deliveries with responses: %v", path, list, count, err)
		}
		return list[0]
	}
	for _, c := range []struct {
		list, kind string
		change     func() // causes an event
	}{
		{"/acme/web/prod/settings/webhooks", "deployment", func() {
			s.API(http.MethodPost, "/api/stacks/acme/web/prod/deployments/settings", map[string]any{}, nil)
			s.API(http.MethodPost, "/api/stacks/acme/web/prod/deployments", map[string]string{"operation": "preview"}, nil)
		}},
		{"/acme/-/settings/webhooks", "stack", func() { s.Stack("web", "dev") }},
	} {
		t.Run(c.kind, func(t *testing.T) {
			answer.Store(http.StatusOK)
			post(c.list, url.Values{"name": {"hook"}, "format": {"raw"}, "url": {receiver.URL}})
			hook := c.list + "/hook"
			if list := deliveries(t, b, hook); len(list) != 0 {
				t.Fatalf("a new webhook has the deliveries %+v", list)
			}
			post(hook+"/ping", nil)
			ping, shown := next(), row(hook, 1)
			if ping.kind != "ping" || shown.id != ping.id || shown.request != ping.body || shown.response != "<b>thanks</b>" ||
				!strings.HasPrefix(shown.summary, "succeeded ping ") || !strings.Contains(shown.summary, ", response 200 after ") {
				t.Errorf("the receiver got %+v, the page shows %+v", ping, shown)
			}

			answer.Store(http.StatusGone)
			post(hook+"/ping", nil)
			if refused, shown := next(), row(hook, 2); shown.id != refused.id || !strings.HasPrefix(shown.summary, "failed ping ") || !strings.Contains(shown.summary, ", response 410 after ") {
				t.Errorf("the receiver refused %+v, the page shows %+v", refused, shown)
			}
			if p := b.Get(c.list); !strings.Contains(tags.ReplaceAllString(p.Body, ""), "failed, 410") {
				t.Errorf("the list lacks the last delivery: %s", p.Body)
			}

			// The receiver refuses the event, which the server delivers again later.
			c.change()
			event, shown := next(), row(hook, 3)
			if event.kind != c.kind || shown.id != event.id || shown.request != event.body || !strings.HasPrefix(shown.summary, "queued "+c.kind+" ") ||
				!strings.Contains(shown.summary, ", response 410 after ") || !strings.Contains(shown.summary, " failed attempt, the next after 20") {
				t.Errorf("the receiver got %+v, the page shows %+v", event, shown)
			}

			answer.Store(http.StatusAccepted)
			post(hook+"/redeliver", url.Values{"delivery": {event.id}})
			again := next()
			for again.id == event.id { // the server's own repetition
				again = next()
			}
			shown = row(hook, 4)
			if again.id == event.id || again.body != event.body || again.kind != event.kind || shown.id != again.id || !strings.HasPrefix(shown.summary, "succeeded "+c.kind+" ") {
				t.Errorf("delivered again: the receiver got %+v, the page shows %+v", again, shown)
			}
			if list := deliveries(t, b, hook); len(list) != 4 || list[1].id != event.id {
				t.Errorf("the event has the deliveries %+v", list)
			}
			if p := b.Post(hook+"/redeliver", url.Values{"delivery": {"none"}}); p.Status != http.StatusNotFound {
				t.Errorf("an unknown delivery: status %d, want 404", p.Status)
			}
			post(hook+"/delete", nil)
		})
	}
}
