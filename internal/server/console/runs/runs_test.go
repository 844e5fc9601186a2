package runs_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

var (
	rows = regexp.MustCompile(`(?s)<div class="row" role="row" id="[du]-.*?class="cell c-more"`)
	tags = regexp.MustCompile(`(?s)<wbr/?>|<[^>]*>`)
)

// deployments returns the text of each row in a page's list of deployments.
func deployments(t *testing.T, b *consoletest.Browser, path string) (texts []string) {
	t.Helper()
	p := b.Get(path)
	if p.Status != http.StatusOK {
		t.Fatalf("GET %s: status %d", path, p.Status)
	}
	for _, row := range rows.FindAllString(p.Body, -1) {
		text := html.UnescapeString(tags.ReplaceAllStringFunc(row, func(tag string) string {
			if strings.HasPrefix(tag, "<wbr") {
				return ""
			}
			return " "
		}))
		texts = append(texts, strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "/ ", "/"))
	}
	return texts
}

// TestPendingDeployments checks what the lists show about deployments that have not finished: the
// agent of a running one, and the places of the others in the queues of their pool and stack.
func TestPendingDeployments(t *testing.T) {
	s := consoletest.New(t)
	for _, name := range []string{"a", "b", "c"} {
		s.Stack("web", name)
	}
	job := s.StartJob(s.Pool(), "web", "a")
	for _, name := range []string{"b", "c", "a", "b"} {
		s.API(http.MethodPost, "/api/stacks/acme/web/"+name+"/deployments", map[string]string{"operation": "preview"}, nil)
	}
	b := s.SignIn()
	check := func(path string, want map[string][]string) {
		t.Helper()
		list := deployments(t, b, path)
		if len(list) != len(want) {
			t.Errorf("%s lists %d deployments, want %d: %q", path, len(list), len(want), list)
		}
		for name, words := range want {
			found := false
			for _, text := range list {
				if !strings.Contains(text, " "+name+" ") {
					continue
				}
				found = true
				for _, w := range words {
					if !strings.Contains(text, w) {
						t.Errorf("%s: the row of %s lacks %q: %s", path, name, w, text)
					}
				}
			}
			if !found {
				t.Errorf("%s does not list %s: %q", path, name, list)
			}
		}
	}
	const all, active, queued = "/acme/-/deployments", "/acme/-/deployments?status=started", "/acme/-/deployments?status=queued"
	check(active, map[string][]string{"web/a #1": {"running", "build-1", "admin", "started by api", "update"}})
	waiting := map[string][]string{
		"web/b #1": {"queued", "pool pool", "1.", "preview"},
		"web/c #1": {"queued", "2."},
		"web/a #2": {"Waiting for deployment #1"},
		"web/b #2": {"Waiting for deployment #1"},
	}
	check(queued, waiting)
	waiting["web/a #1"] = []string{"running"}
	check(all, waiting)
	check(all+"?stack=web/c", map[string][]string{"web/c #1": {"queued"}})
	check(all+"?stack=web&operation=update", map[string][]string{"web/a #1": {"running"}})
	check(all+"?stack=web/none", nil)
	check(all+"?stack=other", nil)
	check(all+"?who=admin&stack=web/c", map[string][]string{"web/c #1": {}})
	check(all+"?who=unknown", nil)
	check(all+"?pool=unknown", nil)
	check("/acme/web/a/runs", map[string][]string{"#1": {"running"}, "#2": {"queued", "Waiting for deployment #1"}})
	check("/acme/web/a/runs?kind=preview", map[string][]string{"#2": {"queued"}})
	check("/acme/web/a/runs?status=started", map[string][]string{"#1": {"running"}})

	// The text filters each list, stays in the form, and goes along to the other stages.
	check(queued+"&q=%232", map[string][]string{"web/a #2": {"preview"}, "web/b #2": {"preview"}})
	check(queued+"&q=WEB%2Fc", map[string][]string{"web/c #1": {"preview"}})
	check(queued+"&q=%20ADMIN%20&operation=update", nil)
	p := b.Get(queued + "&q=%3Cb%3E")
	if !p.Contains(`name="q" value="&lt;b&gt;"`, "No deployment found", `href="/acme/-/deployments?mine=on&amp;q=%3Cb%3E&amp;status=queued"`) {
		t.Errorf("a filter that selects nothing: %s", p.Body)
	}

	// The end of the first deployment puts the next one of its stack into the pool's queue.
	job.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded})
	check(active, nil)
	check(queued, map[string][]string{"web/b #1": {"1."}, "web/c #1": {"2."}, "web/a #2": {"3."}, "web/b #2": {"Waiting for deployment #1"}})
	check(all+"?status=succeeded", map[string][]string{"web/a #1": {"succeeded", "build-1"}})
	check(all+"?status=bad", nil)
}

// TestInitiator checks that the list does not say that the Automation API has started what the pulumi CLI has: the CLI
// sends the same name for both.
func TestInitiator(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("web", "a")
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/api/stacks/acme/web/a/deployments", strings.NewReader(`{"operation": "preview"}`)))(t)
	req.Header.Set("Authorization", "token "+s.Token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Pulumi-Deployment-Initiator", "automation-api")
	res := must.Get(http.DefaultClient.Do(req))(t)
	_ = res.Body.Close()
	if list := deployments(t, s.SignIn(), "/acme/-/deployments"); len(list) != 1 || !strings.Contains(list[0], "started by pulumi CLI or Automation API AD admin") {
		t.Errorf("status %d, list %q", res.StatusCode, list)
	}
}

// TestCompare selects runs of a stack, also of the CLI, and compares its versions.
func TestCompare(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("web", "a")
	for _, message := range []string{"first", "second", "<b>third</b>\u202egnp.exe"} {
		s.RunUpdate(consoletest.Update{Stack: "web/a", Kind: "update", Message: message, Changes: map[string]any{"create": 2}, Result: "succeeded"})
	}
	s.RunUpdate(consoletest.Update{Stack: "web/a", Kind: "update", DryRun: true, Message: "look", Result: "succeeded"})
	b := s.SignIn()
	list := deployments(t, b, "/acme/web/a/runs")
	if len(list) != 4 || !strings.HasPrefix(list[0], "succeeded preview look preview run by the CLI") || !strings.Contains(list[1], "v3 <b>third</b>gnp.exe update run by the CLI AD admin CLI +2") {
		t.Errorf("the runs are %q", list)
	}
	p := b.Get("/acme/web/a/runs")
	if n := strings.Count(p.Body, `form="compare" name="id"`); n != 3 || !p.Contains(`form="compare" name="id" value="2"`) {
		t.Errorf("%d runs can be selected: %s", n, p.Body)
	}
	for query, want := range map[string]string{"id=3&id=1": "/acme/web/a/changes?from=1&to=3", "id=2&id=2": "", "id=1": "", "id=x&id=1": "", "id=1&id=2&id=3": "", "": ""} {
		p := b.Get("/acme/web/a/runs/compare?" + query)
		if want == "" && p.Status != http.StatusBadRequest || p.Location() != want {
			t.Errorf("comparing %q: status %d to %q, want %q", query, p.Status, p.Location(), want)
		}
	}
	if p := s.SignInWith(s.AddUser("cole", "stack-collaborator")).Get("/acme/web/a/runs/compare?id=1&id=2"); p.Status != http.StatusNotFound && p.Status != http.StatusForbidden {
		t.Errorf("a collaborator without a permission compares: status %d", p.Status)
	}
}
