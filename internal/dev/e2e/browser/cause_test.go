package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// recordings is the directory with what real programs have written when they failed.
var recordings = filepath.Join("..", "..", "..", "server", "deployments", "cause", "testdata")

func recording(t *testing.T, name string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(filepath.Join(recordings, name)))(t))
}

// endings are deployments that fail in each of the kinds, and one that succeeds before them.
type endings struct {
	s     *consoletest.Server
	token string
}

func (e *endings) start(t *testing.T, source bool) *consoletest.Job {
	t.Helper()
	request := map[string]any{
		"operation":        "update",
		"operationContext": map[string]any{"preRunCommands": []string{"true", "npm run build"}, "options": map[string]any{"skipInstallDependencies": true}},
	}
	if source {
		request["sourceContext"] = map[string]any{"git": map[string]any{"repoURL": "https://github.com/acme/payments", "branch": "refs/heads/main"}}
	}
	return e.s.StartRequest(e.token, "box", "dev", request)
}

// fail ends a job in a step with a recorded log, after the steps before.
func (e *endings) fail(t *testing.T, job *consoletest.Job, step int, log string) {
	t.Helper()
	zero, one := 0, 1
	for before := range step {
		job.Step(before, workflow.StepRunning, nil)
		job.Step(before, workflow.StepSucceeded, &zero)
	}
	job.Step(step, workflow.StepRunning, nil)
	job.PrintLines(step, strings.Split(strings.TrimSuffix(log, "\n"), "\n")...)
	job.Step(step, workflow.StepFailed, &one)
	job.Finish(protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode, ExitCode: &one})
}

// update sends recorded events of an update of the job.
func (e *endings) update(t *testing.T, job *consoletest.Job, events, result string) {
	t.Helper()
	const stack = "/api/stacks/acme/box/dev"
	call := func(token, method, path string, in, out any) {
		t.Helper()
		if status, body := e.s.APIAs(token, method, path, in, out); status >= 300 {
			t.Fatalf("%s %s: status %d: %s", method, path, status, body)
		}
	}
	var created struct {
		ID string `json:"updateID"`
	}
	call(job.Token, http.MethodPost, stack+"/update", map[string]any{"name": "box", "runtime": "yaml", "metadata": map[string]any{
		"message": "Add charge-queue <b>&", "environment": map[string]string{"git.author": "Ada Lindqvist", "git.head": strings.Repeat("7be10c4a", 5)},
	}}, &created)
	path := stack + "/update/" + created.ID
	var started struct{ Token string }
	call(job.Token, http.MethodPost, path, map[string]any{}, &started)
	var list []json.RawMessage
	for line := range strings.Lines(events) {
		list = append(list, json.RawMessage(line))
	}
	if len(list) > 0 {
		call("update-token "+started.Token, http.MethodPost, path+"/events/batch", map[string]any{"events": list}, nil)
	}
	call("update-token "+started.Token, http.MethodPost, path+"/complete", map[string]any{"status": result}, nil)
}

// TestCauses opens failed deployments of the six kinds, whose cause is the title of the page.
func TestCauses(t *testing.T) {
	s := consoletest.With(t, nil, "deployments")
	s.Stack("box", "dev")
	e := &endings{s: s, token: s.Pool()}
	good := e.start(t, false)
	e.update(t, good, "", "succeeded")
	zero := 0
	for step := range 4 {
		good.Step(step, workflow.StepRunning, nil)
		good.Step(step, workflow.StepSucceeded, &zero)
	}
	good.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded, ExitCode: &zero})

	tb := newTab(t, s.URL)
	signIn(tb, s.Token)
	for i, c := range []struct {
		kind, title, line string
		end               func(job *consoletest.Job)
	}{
		{"resource", "value could not be created", "17", func(job *consoletest.Job) {
			e.update(t, job, recording(t, "resource.jsonl"), "failed")
			e.fail(t, job, 3, recording(t, "resource.log"))
		}},
		{"program", `The program failed: resource, variable, or config value "nowhere" not found`, "14", func(job *consoletest.Job) {
			e.update(t, job, recording(t, "program.jsonl"), "failed")
			e.fail(t, job, 3, recording(t, "program.log"))
		}},
		{"command", "Pre-run command 2 failed: npm error enoent Could not read package.json", "6", func(job *consoletest.Job) {
			e.fail(t, job, 2, recording(t, "command.log"))
		}},
		{"source", "acme/payments cannot be read: the repository does not exist", "3", func(job *consoletest.Job) {
			e.fail(t, job, 1, recording(t, "source.log"))
		}},
		{"start", "The image pulumi/pulumi:9 cannot be", "", func(job *consoletest.Job) {
			job.Finish(protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonImage, Message: "The image pulumi/pulumi:9 could not be pulled: not found"})
		}},
		{"agent", "build-1 was lost at ", "", func(job *consoletest.Job) {
			job.Finish(protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonLost, Message: "The job no longer exists."})
		}},
	} {
		job := e.start(t, c.kind == "source")
		tb.scheme("light", 1440)
		tb.do("resizing the window", chromedp.EmulateViewport(1440, 900))
		tb.open(job.Path)
		tb.wait("the page shows the running deployment", "document.querySelector('.obj .badge.b-run')")
		c.end(job)
		tb.wait("the cause appears on the open page", "document.querySelector('h1')?.innerText.startsWith("+quote(c.title)+")")
		tb.open(job.Path)
		tb.wait("the log is shown", "document.querySelector('.logbar')")
		if n := evaluate[int](tb, "document.querySelectorAll('h1').length"); n != 1 {
			t.Errorf("%s: the page has %d titles", c.kind, n)
		}
		top := evaluate[float64](tb, "document.querySelector('.cause h1').getBoundingClientRect().top - document.querySelector('main').getBoundingClientRect().top")
		if top > 130 {
			t.Errorf("%s: the title is %.0f px from the top of the content, want at most 130", c.kind, top)
		}
		if c.line != "" {
			if line := evaluate[string](tb, "document.querySelector('.cause a[href*=\"#L\"]').innerText"); line != "line "+c.line {
				t.Errorf("%s: the link is %q", c.kind, line)
			}
			tb.wait("the log shows the line", "document.querySelector('.ln.sel')")
		}
		if got := evaluate[string](tb, "document.querySelector('.tl .second').innerText"); !strings.Contains(got, map[bool]string{true: "First failure after 1 good run", false: "failure since then"}[i == 0]) {
			t.Errorf("%s: %q", c.kind, got)
		}
		tb.edges(c.kind)
		tb.axe(c.kind)
		tb.shot(c.kind)
		tb.scheme("dark", 390)
		tb.do("resizing the window", chromedp.EmulateViewport(390, 844))
		tb.open(job.Path)
		tb.wait("the log is shown", "document.querySelector('.logbar')")
		for what, selector := range map[string]string{"the cause": ".cause h1", "the button to run it again": ".cause .btn.primary"} {
			if bottom := evaluate[float64](tb, "document.querySelector("+quote(selector)+").getBoundingClientRect().bottom"); bottom > 844-56 {
				t.Errorf("%s: on a phone, %s ends at %.0f px", c.kind, what, bottom)
			}
		}
		tb.fills(c.kind)
		tb.axe(c.kind + " on a phone")
		tb.shot(c.kind + "-phone")
	}
	tb.scheme("light", 1440)
	tb.open("/acme/box/dev/deployments/3")
	tb.press("<")
	tb.wait("the key opens the run before", "location.pathname.endsWith('/2')")
	tb.do("keeping what is copied", chromedp.Evaluate[chromedp.Void]("navigator.clipboard.writeText = async (text) => { window.copied = text; }"))
	tb.click("copy-as button")
	tb.wait("the text is copied", fmt.Sprintf("window.copied?.startsWith('box/dev #2 failed: value could not be created\\n') && window.copied.includes('#L17\\n') && window.copied.endsWith(%q)", s.URL+"/acme/box/dev/deployments/2"))
}

// edges checks the frame of the log.
func (tb *tab) edges(what string) {
	tb.t.Helper()
	tb.edgesOf(what, ".log")
}

func (tb *tab) edgesOf(what, selector string) {
	tb.t.Helper()
	if apart := evaluate[float64](tb, "Math.abs(document.querySelector("+quote(selector)+").getBoundingClientRect().bottom - innerHeight)"); apart > 1 {
		tb.t.Errorf("%s: the log ends %.0f px from the window's edge", what, apart)
	}
	tb.noSideways(what)
}

// noSideways checks that the page does not scroll sideways.
func (tb *tab) noSideways(what string) {
	tb.t.Helper()
	if wide := evaluate[float64](tb, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
		tb.t.Errorf("%s: the page is %.0f px wider than the window", what, wide)
	}
}

// fills checks that the link to the log makes it fill a small window.
func (tb *tab) fills(what string) {
	tb.t.Helper()
	tb.noSideways(what)
	tb.do("following the link to the log", chromedp.Evaluate[chromedp.Void]("document.querySelector('.skip[href=\"#log\"]').click()"))
	tb.wait(what+": the log fills the window", `(() => {
		const log = document.querySelector(".logw").getBoundingClientRect();
		const bar = document.querySelector(".tabbar").getBoundingClientRect().top;
		return Math.abs(log.top - 48) <= 1 && Math.abs(log.bottom - bar) <= 1;
	})()`)
}

// TestWorkPlace measures the page of a deployment that waits, runs and ends, without loading it again.
func TestWorkPlace(t *testing.T) {
	s := consoletest.With(t, nil, "deployments")
	s.Stack("box", "dev")
	e := &endings{s: s, token: s.Pool()}
	tb := newTab(t, s.URL)
	signIn(tb, s.Token)
	tb.do("resizing the window", chromedp.EmulateViewport(1440, 900))
	zero := 0
	first := e.start(t, false)
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/deployments", map[string]any{"operation": "preview", "operationContext": map[string]any{"options": map[string]any{"skipInstallDependencies": true}}}, nil)
	tb.open("/acme/box/dev/deployments/2")
	tb.wait("the page says why it waits", "document.querySelector('h1')?.innerText.startsWith('Waiting for deployment #1 of the stack') && !document.querySelector('.log').getClientRects().length")
	tb.edgesOf("a queued deployment", ".logw")
	tb.axe("a queued deployment")
	tb.shot("queued")
	tb.do("resizing the window", chromedp.EmulateViewport(390, 844))
	tb.noSideways("a queued deployment")
	if bottom := evaluate[float64](tb, "document.querySelector('.cause .btn.danger').getBoundingClientRect().bottom"); bottom > 844-56 || bottom < 100 {
		t.Errorf("on a phone, the button to cancel a queued deployment ends at %.0f px", bottom)
	}
	tb.axe("a queued deployment on a phone")
	tb.shot("queued-phone")

	tb.do("resizing the window", chromedp.EmulateViewport(1440, 900))
	tb.open(first.Path)
	first.Step(0, workflow.StepRunning, nil)
	first.PrintLines(0, "prepares")
	first.Step(0, workflow.StepSucceeded, &zero)
	first.Step(3, workflow.StepRunning, nil)
	first.Print(3, numbered(1, 100))
	tb.wait("the end of the log is shown", "document.querySelector('.log').innerText.includes('0000100 creating')")
	top := evaluate[float64](tb, "Math.min(...[...document.querySelectorAll('.log .ln')].map((e) => e.getBoundingClientRect()).filter((r) => r.top >= document.querySelector('.logbox > .logh').getBoundingClientRect().bottom - 1).map((r) => r.top))")
	if top > 160 {
		t.Errorf("the first line of the log is %.1f px from the top, want at most 160", top)
	}
	tb.edges("a running deployment")
	if title := evaluate[string](tb, "document.querySelector('h1').textContent.replace(/\\s+/g, ' ')"); title != "box/dev #1" {
		t.Errorf("the title is %q", title)
	}
	tb.axe("a running deployment")
	tb.shot("running")
	tb.press("z")
	tb.wait("the log fills the window", "document.querySelector('.logw.full')")
	tb.shot("full")
	tb.press("z")
	tb.wait("the log is next to the steps again", "!document.querySelector('.logw.full')")
	tb.scheme("dark", 390)
	tb.do("resizing the window", chromedp.EmulateViewport(390, 844))
	tb.noSideways("a running deployment")
	if bottom := evaluate[float64](tb, "document.querySelector('.obj .btn.danger').getBoundingClientRect().bottom"); bottom > 844-56 {
		t.Errorf("on a phone, the button to cancel ends at %.0f px", bottom)
	}
	tb.fills("a running deployment")
	tb.axe("a running deployment on a phone")
	tb.shot("running-phone")
	tb.do("resizing the window", chromedp.EmulateViewport(720, 450))
	tb.open(first.Path)
	tb.wait("the log is shown", "document.querySelector('.logbar')")
	tb.fills("a running deployment at 200 %")

	tb.scheme("light", 1440)
	tb.do("resizing the window", chromedp.EmulateViewport(1440, 900))
	tb.open(first.Path)
	first.Step(3, workflow.StepSucceeded, &zero)
	first.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded, ExitCode: &zero})
	tb.wait("the end is shown on the open page", "document.querySelector('.obj .st-ok') && document.querySelector('.split').className === 'split short'")
	tb.edges("a finished deployment")
	tb.axe("a finished deployment")
	tb.shot("finished")
}
