package console_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
)

// TestOpenPagesOfDisabledUsers disables a user while the user has a page open. The running server ends the page at
// once, and not when it next checks the session.
func TestOpenPagesOfDisabledUsers(t *testing.T) {
	s := consoletest.New(t)
	ann, other := s.SignInWith(s.AddUser("ann", "member")), s.SignIn()
	open := func(b *consoletest.Browser) *bufio.Scanner {
		t.Helper()
		req := b.Request(http.MethodGet, "/acme", nil)
		req.Header.Set("Accept", "text/event-stream")
		res := must.Get(b.Client().Do(req))(t)
		t.Cleanup(func() { res.Body.Close() })
		if res.StatusCode != http.StatusOK {
			t.Fatalf("opening the page: status %d", res.StatusCode)
		}
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
			continue // the page begins
		}
		return lines
	}
	pageOfAnn := open(ann)
	s.Command("user-disable", `{"login":"ann"}`)
	said := ""
	for pageOfAnn.Scan() {
		said += pageOfAnn.Text() + "\n"
	}
	if !strings.Contains(said, "event: bye\ndata: \"signed-out\"") {
		t.Errorf("the page ended with %q", said)
	}
	if p := ann.Get("/acme"); p.Status != http.StatusSeeOther {
		t.Errorf("the next page: %d", p.Status)
	}
	if p := other.Get("/acme"); p.Status != http.StatusOK {
		t.Errorf("the page of another user: %d", p.Status)
	}
}
