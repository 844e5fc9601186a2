package deployment_test

import (
	"encoding/json"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// hostile is a text of a job that is HTML, controls terminals and turns the direction of text.
const hostile = "<b onclick=x>\x1b[31m\u202egnp.exe\u2066&amp;"

// fail returns a job that failed in an operation on a resource.
func fail(t *testing.T, s *consoletest.Server, token, name, message string) *consoletest.Job {
	t.Helper()
	f := s.StartJob(token, "box", "dev")
	call := func(token, path string, in, out any) {
		t.Helper()
		if status, body := s.APIAs(token, http.MethodPost, path, in, out); status >= 300 {
			t.Fatalf("%s: status %d: %s", path, status, body)
		}
	}
	const stack = "/api/stacks/acme/box/dev"
	var created struct {
		ID string `json:"updateID"`
	}
	call(f.Token, stack+"/update", map[string]any{"name": "box", "runtime": "yaml", "metadata": map[string]any{
		"message": message, "environment": map[string]string{"git.author": message, "git.head": strings.Repeat("a", 40)},
	}}, &created)
	var started struct{ Token string }
	call(f.Token, stack+"/update/"+created.ID, map[string]any{}, &started)
	urn := "urn:pulumi:dev::box::pkg:index:Res::" + name
	metadata := map[string]any{"op": "update", "urn": urn, "type": "pkg:index:Res"}
	var events []json.RawMessage
	for i, e := range []map[string]any{
		{"resourcePreEvent": map[string]any{"metadata": metadata}},
		{"diagnosticEvent": map[string]any{"urn": urn, "severity": "error", "message": message}},
		{"resOpFailedEvent": map[string]any{"metadata": metadata}},
	} {
		e["sequence"], e["timestamp"] = i, 1
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, text)
	}
	call("update-token "+started.Token, stack+"/update/"+created.ID+"/events/batch", map[string]any{"events": events}, nil)
	call("update-token "+started.Token, stack+"/update/"+created.ID+"/complete", map[string]any{"status": "failed"}, nil)
	code := 255
	f.Step(2, workflow.StepRunning, nil)
	f.PrintLines(2, "Diagnostics:", "  pkg:index:Res ("+name+"):", "    error: "+message)
	f.Step(2, workflow.StepFailed, &code)
	f.Finish(protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode, ExitCode: &code, Message: message})
	return f
}

// TestHostileTexts checks that texts of jobs remain text in all places of the page.
func TestHostileTexts(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	token := s.Pool()
	fail(t, s, token, "good", "boom")
	f := fail(t, s, token, hostile, hostile)
	b := s.SignIn()
	for _, view := range []string{"", "?view=timeline", "?view=changes"} {
		p := b.Get(f.Path + view)
		if p.Status != http.StatusOK || p.Contains("<b onclick") || strings.ContainsAny(p.Body, "\x1b\u202e\u2066") {
			t.Errorf("%s: status %d, or the page contains HTML or controls of a job: %s", view, p.Status, regexp.MustCompile("(?s).{60}(<b onclick|\x1b|\u202e|\u2066).{60}").FindString(p.Body))
		}
	}
	page := html.UnescapeString(b.Get(f.Path).Body)
	for what, want := range map[string]string{
		"the title": "<span><b onclick=x>gnp.exe&amp; could not be updated</span>", "the message": `<p class="say"><b onclick=x>gnp.exe&amp;</p>`,
		"the author": "by <b onclick=x>gnp.exe&amp;", "the text to copy": "#2 failed: <b onclick=x>gnp.exe&amp; could not be updated\n<b onclick=x>gnp.exe&amp;\"",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%s is not %q", what, want)
		}
	}
}

// TestCausePage checks what the page says about a failure, and that a user without the permission gets no buttons.
func TestCausePage(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	f := fail(t, s, s.Pool(), "queue", "AccessDenied")
	b := s.SignIn()
	p := b.Get(f.Path)
	for _, want := range []string{
		"<title>✕ box/dev #1 · Workflow</title>", `<a class="skip" href="#log">Skip to the log</a>`, "<span>queue could not be updated</span>", `<p class="say">AccessDenied</p>`,
		"pulumi update, ", `href="/acme/box/dev/deployments/1?view=log&amp;step=3&amp;try=1#L3">line 3</a>`, `href="/acme/box/dev/deployments/1?urn=urn%3A`, `&amp;view=changes#diff"`, "0 changes done",
		"<code>aaaaaaa</code>", "Run again", "copy-as", `data-cause="3:2"`,
	} {
		if !p.Contains(want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	if p.Contains("Last good") || p.Contains("Usually") {
		t.Error("the page of the first deployment names a good run, or the usual time")
	}
	s.API(http.MethodPatch, "/api/orgs/acme", map[string]int{"setDefaultStackPermission": 101}, nil)
	if p := s.SignInWith(s.AddUser("reader", "member")).Get(f.Path); p.Status != http.StatusOK || p.Contains("Run again") || !p.Contains("queue could not be updated", "copy-as") {
		t.Errorf("a reader gets status %d, or buttons", p.Status)
	}
}

// TestCompareLink leads from a failure to the comparison of the states after the last good run and after the failed one.
func TestCompareLink(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	token := s.Pool()
	good := s.StartJob(token, "box", "dev")
	const stack = "/api/stacks/acme/box/dev/update"
	var created struct {
		ID string `json:"updateID"`
	}
	var started struct{ Token string }
	for _, c := range []struct {
		token, path string
		body        any
		out         any
	}{
		{good.Token, "", map[string]any{"name": "box", "runtime": "yaml"}, &created},
		{good.Token, "/ID", map[string]any{}, &started},
		{"", "/ID/complete", map[string]any{"status": "succeeded"}, nil},
	} {
		if c.token == "" {
			c.token = "update-token " + started.Token
		}
		if status, body := s.APIAs(c.token, http.MethodPost, stack+strings.Replace(c.path, "ID", created.ID, 1), c.body, c.out); status >= 300 {
			t.Fatalf("%s: status %d: %s", c.path, status, body)
		}
	}
	good.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded})
	failed := fail(t, s, token, "queue", "AccessDenied")
	b := s.SignIn()
	if p := b.Get(failed.Path); !p.Contains(`href="/acme/box/dev/changes?from=1&amp;to=2"><svg`, "Compare with #1") {
		t.Errorf("the page has no link to the comparison: %s", p.Body)
	}
	if p := b.Get("/acme/box/dev/changes?from=1&to=2"); p.Status != http.StatusOK || !p.Contains("queue", "failed") {
		t.Errorf("the comparison: status %d", p.Status)
	}
}
