package browser

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// TestFirstSteps is the way of a new user with a browser only: the link of the first start, a pool,
// an agent that the commands of the pool's page install, the settings of a stack, and a deployment
// that is started, watched, cancelled and explained.
func TestFirstSteps(t *testing.T) {
	ctx := t.Context()
	if reason, ok := lab.ReleasesAvailable(); !ok {
		t.Skip(reason)
	}
	releases := must.Get(lab.MakeReleases(ctx, os.Stderr))(t)
	w := harness.StartSite(t, "", "--releases", releases.Mirror)
	org := "/" + w.Server.Organization
	tb := newTab(t, w.Server.URL)

	link := strings.TrimSpace(harness.Say(t, w.Dir, filepath.Join(w.Bin, "workflow-server"), "admin", "sign-in", "admin",
		"--data-dir", w.Server.DataDir, "--external-url", w.Server.URL))
	tb.open(strings.TrimPrefix(link, w.Server.URL))
	tb.shot("1-link")
	tb.click("main form button")
	tb.wait("the browser is signed in", "document.querySelector('.me details')")
	tb.shot("2-home")

	tb.open(org + "/-/pools")
	tb.click(".bar summary.primary")
	tb.fill(".bar input[name=name]", "eu")
	tb.click(".bar form button")
	tb.see("pul-")
	tb.shot("3-pool-token")
	w.Pool.Token = evaluate[string](tb, "/pul-[0-9a-f]{64}/.exec(document.body.innerText)[0]")
	tb.open(org + "/-/pools")
	tb.wait("the list shows the pool", "document.querySelector('.pool h2 a')")
	tb.click(".pool h2 a")
	tb.see("aiting for")
	tb.shot("4-waiting-for-an-agent")
	w.Pool.ID = strings.TrimPrefix(evaluate[string](tb, "location.pathname"), org+"/-/pools/")
	// The row of the installed agent enters the open page.
	stop := installAgent(tb, w.Pool.Token)
	tb.wait("the page shows the agent", "document.querySelector('main a[href*=\"/agents/\"]')")
	tb.shot("5-agent")
	// Jobs of the installed agent cannot read the tests' CLI, because its user is another one.
	stop()
	must.Get(w.StartAgent(ctx, "process", nil))(t)

	stack := w.NewStack(ctx, t, "box", "dev", "", nil)
	repo := w.Repo(ctx, t)
	tb.open("/" + stack.Name + "/settings")
	tb.fill("input[name=repository]", repo.URL)
	tb.fill("input[name=branch]", "main")
	tb.shot("6-settings")
	tb.click(".save .primary")
	tb.see("Review 2 changes")
	tb.see(repo.URL)
	tb.shot("6-settings-review")
	tb.click("dialog .primary")
	tb.wait("the settings are stored", "location.pathname.endsWith('/settings') && document.querySelector('input[name=repository]')?.value === "+quote(repo.URL))
	tb.wait("the page offers to deploy", "document.activeElement.innerText === 'Deploy now' && document.querySelector('.find:not([hidden])')")
	tb.do("deploying", chromedp.Evaluate[chromedp.Void]("document.querySelector('.toast a').click()")) // it can be hidden meanwhile
	tb.see("of pool eu.")
	tb.shot("6-deploy")
	tb.click("dialog .btn.primary")
	tb.wait("the deployment's page opens", "location.pathname.endsWith('/deployments/1')")
	tb.wait("the deployment succeeds on the open page", "document.querySelector('#verdict .st-ok')")
	tb.wait("the log shows the end", "document.querySelector('log-view').innerText.includes('Resources:')")
	tb.shot("7-succeeded")

	// The second deployment runs until it is cancelled, and the third waits for it.
	running := stack.Deploy(ctx, t, "update", repo.URL, "echo begun; sleep 300")
	stack.Wait(ctx, t, running, harness.Patience, "running")
	waiting := stack.Deploy(ctx, t, "preview", repo.URL)
	other := newTab(t, w.Server.URL)
	signIn(other, w.Server.Token)
	other.scheme("light", 1440)
	other.open("/" + stack.Name + "/deployments/3")
	other.see("#2")
	other.shot("8-queued")
	tb.open("/" + stack.Name + "/deployments/2")
	tb.wait("the log is live", "document.querySelector('log-view').innerText.includes('begun')")
	tb.shot("9-running")
	tb.click("summary.danger")
	tb.click("details[open] form button")
	tb.wait("the deployment is cancelled", "document.querySelector('#verdict .st-cancelled')")
	tb.shot("10-cancelled")
	other.wait("an agent has taken the waiting deployment", "!document.querySelector('.cause')")
	began := evaluate[float64](other, "performance.now()")
	other.wait("the waiting deployment succeeds", "document.querySelector('#verdict .st-ok')")
	other.wait("the log shows the end", "document.querySelector('log-view').innerText.includes('Resources:')")
	other.steady(began)
	stack.Wait(ctx, t, waiting, harness.Patience, "succeeded")

	// A browser whose session ended elsewhere must sign in again.
	tb.open("/user/settings")
	tb.click("form[action='/user/settings/sessions/end'] button")
	tb.wait("only one session is left", "document.querySelectorAll('[aria-label=Sessions] .row:not(.hd)').length === 1")
	other.ignore("404")
	other.open("/" + stack.Name)
	other.wait("the other browser must sign in", "location.pathname === '/-/login'")
}

// mostShift bounds how much the layout of a page shifts while its deployment runs, as the sum of the scores of
// https://web.dev/articles/cls. That the reason for waiting makes room for the log is not counted.
const mostShift = 0.05

// steady fails the test if the layout of the page has shifted too much since a time by the page's clock.
func (tb *tab) steady(began float64) {
	tb.t.Helper()
	type shift struct {
		Value float64
		Moved []string
	}
	// The page has shifted before that time, so the list of all shifts is not empty.
	list, err := chromedp.Run(tb.ctx, chromedp.Evaluate[[]shift](`new Promise((done, fail) => {
		new PerformanceObserver((list) => done(list.getEntries().filter((e) => e.startTime > `+strconv.FormatFloat(began, 'f', -1, 64)+`).map((e) => ({
			Value: e.value,
			Moved: e.sources.map((s) => (s.node?.outerHTML ?? "").slice(0, 120) + " from " + s.previousRect.y + " to " + s.currentRect.y),
		})))).observe({ type: "layout-shift", buffered: true });
		setTimeout(() => fail(new Error("the browser reports no shifts")), 60_000);
	})`, chromedp.EvalAwaitPromise))
	if err != nil {
		tb.t.Fatalf("reading the shifts of the layout: %v", err)
	}
	sum, text := 0.0, ""
	for _, s := range list {
		sum += s.Value
		text += fmt.Sprintf("\n\t%.3f %s", s.Value, strings.Join(s.Moved, "; "))
	}
	if sum > mostShift {
		tb.t.Errorf("the layout of the page has shifted by %.3f, want at most %g:%s", sum, mostShift, text)
	}
}

// installAgent installs an agent by the commands of the tab "Script" on the open page of a pool, and
// runs it. The commands run as the user nobody, so that they do not change this machine; the last
// one, which starts the service, needs a service manager, so the agent runs in the foreground instead.
func installAgent(tb *tab, token string) (stop func()) {
	tb.t.Helper()
	commands := evaluate[[]string](tb, "[...document.querySelectorAll('#install ol copy-text span, main ol copy-text span')].map((c) => c.textContent)")
	if len(commands) != 3 || !strings.Contains(commands[0], "curl -fsSL "+tb.base+"/releases/install.sh") {
		tb.t.Fatalf("the page shows the commands %q", commands)
	}
	home := must.Get(os.MkdirTemp("", "first-steps-"))(tb.t)
	tb.t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.Chown(home, nobody, nobody); err != nil {
		tb.t.Skip(err) // only root can
	}
	bin := tb.t.TempDir()
	harness.Write(tb.t, filepath.Join(bin, "sudo"), fmt.Appendf(nil,
		"#!/bin/sh\ncd %[1]s && exec setpriv --reuid %[2]d --regid %[2]d --clear-groups env HOME=%[1]s PATH=%[1]s/.pulumi/bin/customer-managed-workflow-agent:/usr/bin:/bin \"$@\"\n", home, nobody), 0o755)
	start := func(out io.Writer, script string) (*exec.Cmd, io.WriteCloser) {
		tb.t.Helper()
		cmd := exec.CommandContext(tb.t.Context(), "script", "-qec", script, "/dev/null") // a terminal
		cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin", "TERM=xterm", "SHELL=/bin/sh"}
		cmd.Stdout, cmd.Stderr = out, out
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			tb.t.Fatal(err)
		}
		return cmd, in
	}
	var installed output
	cmd, _ := start(&installed, commands[0])
	if err := cmd.Wait(); err != nil || !strings.Contains(installed.String(), "Installed "+lab.NextRelease) {
		tb.t.Fatalf("%s: %v\n%s", commands[0], err, installed.String())
	}
	var asked output
	cmd, in := start(&asked, commands[1])
	for _, dialogue := range []struct{ prompt, answer string }{
		{"Token of the agent pool", token}, {"Where jobs run", "process"},
	} {
		tb.until(&asked, dialogue.prompt)
		must.Get(io.WriteString(in, dialogue.answer+"\r"))(tb.t)
	}
	if err := cmd.Wait(); err != nil || strings.Contains(asked.String(), token) {
		tb.t.Fatalf("%s: %v\n%s", commands[1], err, asked.String())
	}
	var ran output
	agent := exec.CommandContext(tb.t.Context(), filepath.Join(bin, "sudo"), "customer-managed-workflow-agent", "run")
	agent.Stdout, agent.Stderr = &ran, &ran
	must.OK(tb.t, agent.Start())
	return func() {
		tb.t.Helper()
		_ = agent.Process.Signal(syscall.SIGTERM) // the process is the agent's, because the script replaces itself
		if err := agent.Wait(); err != nil {
			tb.t.Fatalf("the installed agent: %v\n%s", err, ran.String())
		}
	}
}

// nobody is the id of an unprivileged user.
const nobody = 65534

// until waits until a program has printed a text.
func (tb *tab) until(out *output, text string) {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.t.Context(), patience)
	defer cancel()
	if err := harness.Until(ctx, func() (bool, error) { return strings.Contains(out.String(), text), nil }); err != nil {
		tb.t.Fatalf("waiting for %q: %v\n%s", text, err, out.String())
	}
}

// TestLog finds, links and folds in a long log.
func TestLog(t *testing.T) {
	ctx := t.Context()
	w := harness.StartSite(t, "")
	must.OK(t, w.MakePool(ctx))
	must.Get(w.StartAgent(ctx, "process", nil))(t)
	stack := w.NewStack(ctx, t, "box", "dev", "", nil)
	lines := "20000"
	if harness.FullScale {
		lines = "1000000"
	}
	d := stack.Deploy(ctx, t, "preview", w.Repo(ctx, t).URL, "seq -f 'line %.0f of many' "+lines+"; printf '\\033[31mred <b>text</b>\\033[0m\\n'; echo 'error: the last line'; exit 3")
	stack.Wait(ctx, t, d, 5*time.Minute, "failed")
	tb := newTab(t, w.Server.URL)
	signIn(tb, w.Server.Token)

	tb.open("/" + stack.Name + "/deployments/1?view=log")
	tb.wait("the log opens at its first error", "document.querySelector('.ln.x, .ln.sel')?.innerText.includes('the last line')")
	if got := evaluate[string](tb, "document.querySelector('.ln .a1')?.textContent ?? ''"); got != "red <b>text</b>" {
		t.Errorf("the colored line shows %q", got)
	}
	tb.shot("failed")
	if n := evaluate[int](tb, "document.querySelectorAll('log-view *').length"); n > 400 {
		t.Errorf("the viewer has %d elements", n)
	}
	step := evaluate[string](tb, "document.querySelector('.ln.x > a').dataset.step")

	began := time.Now()
	tb.open("/" + stack.Name + "/deployments/1?view=log&step=" + step + "#L10000-L10002")
	tb.wait("the permalink shows its line", "[...document.querySelectorAll('.ln.sel')].some((l) => l.innerText.includes(' of many'))")
	t.Logf("a permalink into %s lines was readable after %s", lines, time.Since(began))
	if n := evaluate[int](tb, "document.querySelectorAll('.ln.sel').length"); n != 3 {
		t.Errorf("%d lines are selected, want 3", n)
	}

	tb.fill(".logbar input[type=search]", "line 77 of")
	tb.do("searching", dispatchInput(".logbar input[type=search]"))
	tb.wait("the search finds one line", "document.querySelector('.logbar [role=status]').textContent === '1 of 1' && document.querySelector('.ln mark')?.textContent === 'line 77 of'")

	tb.do("going to the first line", chromedp.Focus(chromedp.CSS(".log")), chromedp.KeyEvent(kb.Home))
	tb.click("[data-toggle='" + step + "']")
	tb.wait("the step is folded", "!document.querySelector('.ln > a[data-step=\""+step+"\"]')")
	tb.click("[data-toggle='" + step + "']")
	tb.wait("the step is unfolded", "document.querySelector('.ln')")
	tb.axe("log")
}

// output collects what a program prints while it runs.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// TestLoginOfCLI logs the stock pulumi CLI in through the browser.
func TestLoginOfCLI(t *testing.T) {
	w := harness.StartSite(t, "")
	tb := newTab(t, w.Server.URL)
	signIn(tb, w.Server.Token)
	dir := t.TempDir()
	opened := filepath.Join(dir, "opened")
	harness.Write(t, filepath.Join(dir, "xdg-open"), []byte("#!/bin/sh\nprintf '%s' \"$1\" > "+opened+".new && mv "+opened+".new "+opened+"\n"), 0o755)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	host := strings.TrimPrefix(w.Server.URL, "http://")
	home := t.TempDir()
	// The prompt is a terminal program: Enter opens the browser.
	cmd := exec.CommandContext(ctx, "script", "-qec", filepath.Join(w.Tools.Dir, "pulumi")+" login "+w.Server.URL, "/dev/null")
	cmd.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "HOME=" + home, "PULUMI_HOME=" + home, "PULUMI_CONSOLE_DOMAIN=" + host, "PULUMI_SKIP_UPDATE_CHECK=true", "TERM=xterm"}
	in := must.Get(cmd.StdinPipe())(t)
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	must.OK(t, cmd.Start())
	answered := false
	err := harness.Until(ctx, func() (bool, error) {
		// The prompt asks the terminal for its color and its cursor before it reads keys.
		if !answered && strings.Contains(out.String(), "[6n") {
			answered = true
			_, _ = in.Write([]byte("\x1b]11;rgb:0000/0000/0000\x1b\\\x1b[1;1R"))
		} else if answered {
			_, _ = in.Write([]byte("\r"))
		}
		matches, err := filepath.Glob(opened)
		return len(matches) > 0, err
	})
	if err != nil {
		t.Fatalf("waiting until the CLI opens a browser: %v\n%s", err, out.String())
	}
	url := string(harness.Read(t, opened))
	tb.open(strings.TrimPrefix(url, w.Server.URL))
	tb.shot("ask")
	tb.mu.Lock()
	tb.callback = true
	tb.mu.Unlock()
	tb.click("main form .btn.primary")
	tb.wait("the CLI sends the browser back", "location.pathname === '/welcome/cli'")
	tb.shot("welcome")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("pulumi login: %v\n%s", err, out.String())
	}
	who := exec.CommandContext(ctx, filepath.Join(w.Tools.Dir, "pulumi"), "whoami")
	who.Env = cmd.Env
	if name, err := who.CombinedOutput(); err != nil || strings.TrimSpace(string(name)) != "admin" {
		t.Errorf("pulumi whoami: %v\n%s", err, name)
	}
}
