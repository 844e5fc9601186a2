package joblog_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

var (
	plainList = regexp.MustCompile(`(?s)<ul class="plain" data-try=.*?</ul>`)
	plainStep = regexp.MustCompile(`(?s)<li\s.*?</li>`)
	link      = regexp.MustCompile(`<a class="lnk" href="([^"]+)"`)
	links     = regexp.MustCompile(`(?s)<p class="dh" data-links>.*?</p>`)
	tags      = regexp.MustCompile(`(?s)<[^>]*>`)
)

func text(body string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(body, " "))), " ")
}

// open follows the link in a part of a page.
func open(t *testing.T, b *consoletest.Browser, part string) consoletest.Page {
	t.Helper()
	m := link.FindStringSubmatch(part)
	if m == nil {
		t.Fatalf("%q has no link", part)
	}
	p := b.Get(html.UnescapeString(m[1]))
	if p.Status != http.StatusOK || p.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Fatalf("GET %s: status %d, %s", m[1], p.Status, p.Header.Get("Content-Type"))
	}
	return p
}

// TestWithoutScript reads the log on the page of a deployment as a browser without scripts does: a
// list of the steps, each with a link to its text.
func TestWithoutScript(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	job := s.StartJob(s.Pool(), "box", "dev")
	job.Step(0, workflow.StepRunning, nil)
	job.PrintLines(0, "prepares <b>")
	b := s.SignIn()
	steps := func(path string) []string {
		t.Helper()
		p := b.Get(path)
		if p.Status != http.StatusOK {
			t.Fatalf("GET %s: status %d", path, p.Status)
		}
		return plainStep.FindAllString(plainList.FindString(p.Body), -1)
	}
	list := steps(job.Path)
	var names []string
	for _, step := range list {
		names = append(names, text(step))
	}
	if len(list) < 3 || names[0] != "running Setup 1 line" || names[1] != "queued Pre-run command 1 0 lines" {
		t.Fatalf("the steps are %q", names)
	}
	if p := open(t, b, list[0]); p.Body != "prepares <b>\n" {
		t.Errorf("the text of the first step is %q", p.Body)
	}

	exit, failed := 0, 3
	job.Step(0, workflow.StepSucceeded, &exit)
	job.Step(1, workflow.StepRunning, nil)
	job.PrintLines(1, "first", "second")
	job.Step(1, workflow.StepFailed, &failed)
	job.Finish(protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode, ExitCode: &failed})
	list = steps(job.Path + "?view=log")
	if got := text(list[1]); !strings.HasPrefix(got, "failed Pre-run command 1 2 lines") {
		t.Errorf("the failed step is %q", got)
	}
	if got := text(list[2]); !strings.HasPrefix(got, "skipped ") {
		t.Errorf("the step after the failed one is %q", got)
	}
	if p := open(t, b, list[1]); p.Body != "first\nsecond\n" {
		t.Errorf("the text of the second step is %q", p.Body)
	}
	whole := links.FindString(b.Get(job.Path).Body)
	if p := open(t, b, whole); !strings.HasPrefix(p.Body, "==> Setup\nprepares <b>\n==> Pre-run command 1\nfirst\nsecond\n") {
		t.Errorf("the whole text is %q", p.Body)
	}
	if _, download, _ := strings.Cut(whole, "</a>"); !strings.HasPrefix(open(t, b, download).Header.Get("Content-Disposition"), "attachment;") {
		t.Errorf("the second link is no download: %s", whole)
	}
}

// TestFind finds lines in two steps of a log, and in lines that arrive after the first search.
func TestFind(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	job := s.StartJob(s.Pool(), "box", "dev")
	job.PrintLines(0, "needle", "hay")
	job.Step(1, workflow.StepRunning, nil)
	job.PrintLines(1, "hay", "a \x1b[1mNee\x1b[0mdle", "error: hay")
	b := s.SignIn()
	find := func(query url.Values, want ...[2]int64) {
		t.Helper()
		var found struct {
			Hits    [][2]int64
			Total   int
			Partial bool
		}
		p := b.Get(job.Path + "/log/find?" + query.Encode())
		if err := json.Unmarshal([]byte(p.Body), &found); err != nil || p.Status != http.StatusOK {
			t.Fatalf("%v: status %d, %s", query, p.Status, p.Body)
		}
		if diff := cmp.Diff(want, found.Hits, cmp.Transformer("empty", func(h [][2]int64) [][2]int64 { return append([][2]int64{}, h...) })); diff != "" || found.Total != len(want) || found.Partial {
			t.Errorf("%v: %d hits, partial: %t (-want +got):\n%s", query, found.Total, found.Partial, diff)
		}
	}
	needle := url.Values{"q": {"needle"}}
	find(needle, [2]int64{1, 0}, [2]int64{2, 1})
	find(url.Values{"q": {"needle"}, "case": {"on"}}, [2]int64{1, 0})
	find(url.Values{"q": {"^hay$"}, "regex": {"on"}}, [2]int64{1, 1}, [2]int64{2, 0})
	find(url.Values{"errors": {"on"}}, [2]int64{2, 2})
	find(url.Values{"q": {"absent"}})

	job.PrintLines(0, "needle again")
	job.PrintLines(1, "hay", "the last needle")
	find(needle, [2]int64{1, 0}, [2]int64{1, 2}, [2]int64{2, 1}, [2]int64{2, 4})
	find(url.Values{"q": {"absent"}})
	if p := b.Get(job.Path + "/log/find?regex=on&q=%28"); p.Status != http.StatusBadRequest {
		t.Errorf("an invalid expression: status %d, want 400", p.Status)
	}
}
