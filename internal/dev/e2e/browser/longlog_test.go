package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

const (
	longLog = 1_000_000 // lines
	// readable is the time in which a permalink into the log must be readable on a machine without other work.
	readable = 500 * time.Millisecond
	// mostBusy is the multiple of such a time that is permitted on a busy machine, and also on a slow one if the
	// browser is as slow with other work.
	mostBusy = 6
	// mostElements bounds the elements of the viewer, whatever the size of the log.
	mostElements = 600
	// printStep is the step whose log the test writes.
	printStep = 1
)

// numbered returns lines with the numbers from first to last, starting at 1.
func numbered(first, last int) func() (string, bool) {
	n := first
	return func() (string, bool) {
		if n > last {
			return "", false
		}
		line := fmt.Sprintf("%07d creating the resource number %d of the stack, with text as long as a usual line of output", n, n)
		switch n {
		case 600_001:
			line = "error: the resource in the middle fails"
		case 700_001:
			line = "\x1b[31merror: another one fails\x1b[0m"
		}
		n++
		return line, true
	}
}

// took runs a step of a test and logs its time, which must not exceed mostBusy times the limit, or more on a machine
// that takes longer for other work, too.
func (tb *tab) took(what string, limit time.Duration, do func()) {
	tb.t.Helper()
	began := time.Now()
	do()
	passed := time.Since(began)
	tb.t.Logf("%s took %s", what, passed.Round(time.Millisecond))
	if passed <= mostBusy*limit {
		return
	}
	slowness := tb.slowness()
	if most := time.Duration(slowness * float64(mostBusy*limit)); passed > most {
		tb.t.Errorf("%s took %s, want at most %s on a machine that is %.1f times slower than usual", what, passed, most, slowness)
	}
}

// slowness returns how many times slower the browser is now than on an idle machine of the CI, and at least 1.
func (tb *tab) slowness() float64 {
	tb.t.Helper()
	const usual = 100 // milliseconds
	return max(1, evaluate[float64](tb, `(() => {
		const began = performance.now();
		let sum = 0;
		for (let i = 0; i < 1e8; i++) sum += i % 7;
		return performance.now() - began + (sum < 0 ? 1 : 0);
	})()`)/usual)
}

// shows waits until a line of the log is on the screen, as the first of the visible ones if first is
// set.
func (tb *tab) shows(n int) {
	tb.t.Helper()
	tb.wait(fmt.Sprintf("line %d is readable", n), fmt.Sprintf(`(() => {
		const box = document.querySelector(".log").getBoundingClientRect();
		return [...document.querySelectorAll(".ln")].some((l) => {
			const r = l.getBoundingClientRect();
			return r.top >= box.top - 1 && r.bottom <= box.bottom + 1 && l.querySelector(".ln > a").dataset.line === "%d" && l.querySelector(".ln > span").textContent.length > 1;
		});
	})()`, n-1))
}

// position returns the number of the first visible line and its distance from the top of the window,
// which must not change while the log grows.
func (tb *tab) position() string {
	tb.t.Helper()
	return evaluate[string](tb, `(() => {
		const top = document.querySelector(".log").getBoundingClientRect().top;
		const first = [...document.querySelectorAll(".ln")].filter((l) => l.getBoundingClientRect().bottom > top)
			.sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)[0];
		return first.querySelector(".ln > a").dataset.line + " " + Math.round(first.getBoundingClientRect().top - top);
	})()`)
}

func (tb *tab) bounded() {
	tb.t.Helper()
	if n := evaluate[int](tb, "document.querySelectorAll('log-view *').length"); n > mostElements {
		tb.t.Errorf("the viewer has %d elements, want at most %d", n, mostElements)
	}
	if height := evaluate[float64](tb, "document.querySelector('.log > div').getBoundingClientRect().height"); height > 8e6 {
		tb.t.Errorf("the scrolled element is %.0f px high, which browsers do not lay out", height)
	}
}

// keyIn presses a key in the log.
func (tb *tab) keyIn(key string) {
	tb.t.Helper()
	tb.do("pressing a key in the log", chromedp.Focus(chromedp.CSS(".log")), chromedp.KeyEvent(key))
}

// TestMillionLines reads, searches and follows a log of a million lines while it grows.
func TestMillionLines(t *testing.T) {
	s := consoletest.With(t, nil, "deployments")
	s.Stack("box", "dev")
	job := s.StartJob(s.Pool(), "box", "dev")
	zero := 0
	job.Step(0, workflow.StepRunning, nil)
	job.PrintLines(0, "the agent prepares the job")
	job.Step(0, workflow.StepSucceeded, &zero)
	job.Step(printStep, workflow.StepRunning, nil)
	began := time.Now()
	job.Print(printStep, numbered(1, longLog))
	t.Logf("writing the log took %s", time.Since(began))

	tb := newTab(t, s.URL)
	signIn(tb, s.Token)
	log := job.Path + "?view=log&step=2"
	tb.took("the first permalink, which indexes the log", 2*time.Second, func() {
		tb.open(log + "#L999990-L999992")
		tb.shows(999_990)
	})
	if n := evaluate[int](tb, "document.querySelectorAll('.ln.sel').length"); n != 3 {
		t.Errorf("%d lines are selected, want 3", n)
	}
	tb.bounded()
	tb.open(job.Path + "?view=settings")
	tb.took("a permalink", readable, func() {
		tb.open(log + "#L500000")
		tb.shows(500_000)
	})
	tb.shot("permalink")

	tb.took("End", readable, func() { tb.keyIn(kb.End); tb.shows(longLog) })
	tb.took("Home", readable, func() { tb.keyIn(kb.Home); tb.shows(1) })
	tb.took("the scroll bar to the middle", readable, func() {
		tb.do("moving the scroll bar", chromedp.Evaluate[chromedp.Void](`(() => { const p = document.querySelector(".log"); p.scrollTop = (p.scrollHeight - p.clientHeight) / 2; })()`))
		tb.shows(500_000)
	})
	tb.bounded()

	// A reader keeps the position while lines arrive, and learns how many.
	before := tb.position()
	job.Print(printStep, numbered(longLog+1, longLog+12_345))
	tb.wait("the page counts the new lines", "/12,345 new lines/.test(document.querySelector('log-view').innerText)")
	if after := tb.position(); after != before {
		t.Errorf("the position was %s before lines arrived, and %s after", before, after)
	}
	tb.keyIn(kb.End)
	tb.shows(longLog + 12_345)
	job.Print(printStep, numbered(longLog+12_346, longLog+12_400))
	tb.shows(longLog + 12_400)
	tb.wait("the log is followed", "document.querySelector('log-view').innerText.includes('Following')")
	tb.keyIn(kb.ArrowUp)
	job.Print(printStep, numbered(longLog+12_401, longLog+12_410))
	tb.wait("moving up ends following", "/10 new lines/.test(document.querySelector('log-view').innerText)")

	tb.took("finding a line", 4*readable, func() {
		tb.fill(".logbar input[type=search]", "number 777777 of")
		tb.do("searching", dispatchInput(".logbar input[type=search]"))
		tb.shows(777_777)
	})
	tb.wait("the search marks its hit", "document.querySelector('.logbar [role=status]').textContent === '1 of 1' && document.querySelector('.ln mark')?.textContent === 'number 777777 of'")

	tb.took("the next error", 4*readable, func() {
		tb.do("leaving the input", chromedp.Focus(chromedp.CSS(".log")), chromedp.KeyEvent("e"))
		tb.shows(600_001)
	})
	tb.press("e")
	tb.shows(700_001)
	tb.press("e")
	tb.shows(600_001)
	tb.bounded()
	tb.wait("errors and hits are marked next to the scroll bar", "document.querySelector('.marks > .error') && document.querySelector('.marks > .hit')")

	// The line with the cause of a failure is linked from it, and the log opens there.
	three := 3
	job.Step(printStep, workflow.StepFailed, &three)
	job.Finish(protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode, ExitCode: &three})
	tb.wait("the verdict changes on the open page", "document.querySelector('#verdict .st-failed')")
	tb.wait("the title names the first error", "document.querySelector('.cause h1')?.innerText === 'Pre-run command 1 failed: the resource in the middle fails'")
	tb.open(job.Path)
	tb.shows(600_001)
	tb.shot("failed")
	tb.keyIn(kb.Home)
	tb.shows(1)
	tb.click(".cause a[href*='#L']")
	tb.shows(600_001)
	tb.axe("a long log")
}

// TestLogLines shows long, split and coloured lines, times and wrapped lines, and keeps a selection
// while lines arrive.
func TestLogLines(t *testing.T) {
	s := consoletest.With(t, nil, "deployments")
	s.Stack("box", "dev")
	job := s.StartJob(s.Pool(), "box", "dev")
	job.Step(printStep, workflow.StepRunning, nil)
	wide := strings.Repeat("wide text that does not fit into the window ", 40)
	for i := range 300 {
		job.PrintLines(printStep, fmt.Sprintf("%d %s", i+1, wide))
	}
	job.PrintPart(printStep, "a line that the runner ")
	job.PrintLines(printStep, "has split", "\x1b[1;32mgreen\x1b[0m then plain", "progress 1 %\rprogress 99 %", strings.Repeat("x", 10_000)+"THE END")

	tb := newTab(t, s.URL)
	signIn(tb, s.Token)
	tb.open(job.Path)
	tb.shows(305)
	text := func(n int) string {
		return fmt.Sprintf("document.querySelector(\".ln > a[data-line='%d']\")?.parentElement.querySelector('.ln > span').textContent", n-1)
	}
	tb.wait("a split line has a mark", "document.querySelector(\".ln > a[data-line='301']\")?.textContent === '↳' && "+text(302)+" === 'has split'")
	tb.wait("colours are classes", "document.querySelector('.ln > span .bold.a2')?.textContent === 'green'")
	tb.wait("an overwritten line shows its last state", text(304)+" === 'progress 99 %'")
	tb.wait("a long line is cut", text(305)+"?.length === 4096")
	tb.do("showing all of it", chromedp.Evaluate[chromedp.Void]("document.querySelector('.ln .btn').click()"))
	tb.wait("the whole line is shown", text(305)+"?.endsWith('xTHE END')")

	for i, form := range []struct{ name, want string }{
		{"clock", `^\d\d:\d\d:\d\d$`}, {"since start", `^\+\d+\.\d{3}$`}, {"since previous", `^\+\d+\.\d{3}$`},
	} {
		if i > 0 { // the clock is shown first
			tb.do("showing times", chromedp.Focus(chromedp.CSS(".log")), chromedp.KeyEvent("t"))
		}
		tb.wait("the times are "+form.name, "document.querySelector('.logbar [title=\"Times: "+form.name+" (t)\"]') && /"+form.want+"/.test(document.querySelector('.ln > i').textContent) && /GMT|UTC/.test(document.querySelector('.ln > i').title)")
	}
	tb.keyIn("t")
	tb.wait("times are off", "!document.querySelector('.ln > i')")

	// Wrapped lines are as wide as the window; Home, End and the middle stay reachable.
	tb.keyIn("w")
	wraps := "document.querySelector('.log').scrollWidth <= document.querySelector('.log').clientWidth + 1"
	tb.wait("lines wrap", wraps)
	tb.keyIn(kb.Home)
	tb.shows(1)
	if height := evaluate[float64](tb, "document.querySelector(\".ln > a[data-line='0']\").parentElement.offsetHeight"); height < 48 {
		t.Errorf("a wrapped line is %.0f px high", height)
	}
	tb.keyIn(kb.PageDown)
	tb.keyIn(kb.End)
	tb.wait("the end, which is the header of the next step, is at the bottom", `(() => {
		const last = document.querySelector(".log .logh[data-status=queued]")?.getBoundingClientRect();
		return last && Math.abs(last.bottom - document.querySelector(".log").getBoundingClientRect().bottom) < 4;
	})()`)
	tb.shot("wrapped")
	job.PrintLines(printStep, "one more")
	tb.shows(306)
	overlap := evaluate[bool](tb, `(() => {
		const rows = [...document.querySelectorAll(".log .logh, .ln")].map((e) => e.getBoundingClientRect()).sort((a, b) => a.top - b.top);
		return rows.some((r, i) => i > 0 && Math.abs(r.top - rows[i - 1].bottom) > 1);
	})()`)
	if overlap {
		t.Error("wrapped rows overlap, or have gaps")
	}
	tb.axe("wrapped lines")
	tb.keyIn("w")
	tb.wait("lines do not wrap", "!("+wraps+")")

	// Lines that arrive do not destroy a selection.
	tb.do("selecting text", chromedp.Evaluate[chromedp.Void](`(() => { const r = document.createRange(); r.selectNodeContents(document.querySelector(".ln > a[data-line='302']").parentElement.querySelector(".ln > span")); getSelection().removeAllRanges(); getSelection().addRange(r); })()`))
	job.Print(printStep, numbered(1, 500))
	tb.wait("the lines have arrived", "document.querySelector('log-view').total > 800")
	if got := evaluate[string](tb, "getSelection().toString()"); got != "green then plain" {
		t.Errorf("the selection is %q after lines have arrived", got)
	}
	tb.do("ending the selection", chromedp.Evaluate[chromedp.Void]("getSelection().removeAllRanges()"))
	tb.shows(806)
}

// TestLogSelection copies text that was selected while the log was scrolled upwards.
func TestLogSelection(t *testing.T) {
	s := consoletest.With(t, nil, "deployments")
	s.Stack("box", "dev")
	job := s.StartJob(s.Pool(), "box", "dev")
	job.Step(printStep, workflow.StepRunning, nil)
	var lines []string
	want := "e 60\n"
	for n := 1; n <= 1000; n++ {
		lines = append(lines, fmt.Sprintf("\x1b[32mline\x1b[0m %d", n))
		if n > 60 && n < 110 {
			want += fmt.Sprintf("line %d\n", n)
		}
	}
	lines[79] = ""
	job.PrintLines(printStep, lines[:80]...)
	job.PrintPart(printStep, "a line in ")
	job.PrintLines(printStep, "parts")
	job.PrintLines(printStep, lines[82:]...)
	want = strings.Replace(want, "line 80\nline 81\nline 82\n", "\na line in parts\n", 1) + "li"

	tb := newTab(t, s.URL)
	signIn(tb, s.Token)
	tb.open(job.Path + "?view=log&step=2#L103")
	tb.shows(110)
	word := func(n int) string { // the coloured word of a line
		return fmt.Sprintf("document.querySelector(\".ln > a[data-line='%d']\").parentElement.querySelector('.ln > span').firstChild.firstChild", n-1)
	}
	tb.do("selecting a part of a word", chromedp.Evaluate[chromedp.Void]("getSelection().setBaseAndExtent("+word(110)+", 2, "+word(110)+", 4)"))
	for range 45 {
		tb.keyIn(kb.ArrowUp)
	}
	tb.shows(60)
	tb.do("extending the selection", chromedp.Evaluate[chromedp.Void]("getSelection().extend("+word(60)+", 3)"))
	copied := evaluate[string](tb, `(() => {
		const event = new ClipboardEvent("copy", { clipboardData: new DataTransfer(), bubbles: true, cancelable: true });
		document.querySelector(".ln").dispatchEvent(event);
		return event.clipboardData.getData("text/plain");
	})()`)
	if copied != want {
		t.Errorf("copied %q, want %q", copied, want)
	}

	running := `document.querySelector(".obj .meta b").innerText`
	before := evaluate[string](tb, running)
	tb.wait("the time that the deployment has run is updated", fmt.Sprintf("%s !== %q && /^Updating for \\d+:\\d\\d$/.test(%[1]s)", running, before))

	// Of lines that are not here, the text is read.
	tb.do("keeping what is copied", chromedp.Evaluate[chromedp.Void]("navigator.clipboard.writeText = async (text) => { window.copied = text; }"))
	tb.keyIn(kb.Home)
	tb.shows(1)
	tb.do("selecting", chromedp.Evaluate[chromedp.Void]("getSelection().setBaseAndExtent("+word(2)+", 0, "+word(3)+", 1)"))
	tb.keyIn(kb.End)
	tb.shows(1000)
	tb.do("extending the selection and copying", chromedp.Evaluate[chromedp.Void](`(() => {
		getSelection().extend(`+word(1000)+`, 4);
		document.querySelector("log-view").source.blocks.clear();
		document.querySelector(".ln").dispatchEvent(new ClipboardEvent("copy", { clipboardData: new DataTransfer(), bubbles: true, cancelable: true }));
	})()`))
	tb.wait("all lines are copied", "window.copied?.startsWith('line 2\\nline 3\\n') && window.copied.endsWith('line 999\\nline') && window.copied.split('\\n').length === 998")
}
