package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

//go:embed testdata/axe.min.js
var axe string

// patience bounds the wait for a condition on a page.
const patience = 2 * time.Minute

// tab is a tab with its own profile. A message on the browser's console, a violation of the
// page's policy and a request to another server fail the test.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string
	name string // begins the names of screenshots

	mu       sync.Mutex
	problems []string
	ignored  []string
	callback bool     // a request to the CLI on this machine is permitted
	others   []string // the origins of other servers that the test visits
}

func newTab(t *testing.T, base string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	tb := &tab{t: t, ctx: ctx, base: base, name: t.Name()}
	if err := chromedp.Listen(ctx, tb.listen); err != nil {
		t.Fatalf("opening a tab: %v", err)
	}
	_, err1 := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	_, err2 := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatalf("watching a tab: %v", err)
	}
	t.Cleanup(tb.check)
	return tb
}

func (tb *tab) listen(event any) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			tb.add(fmt.Sprintf("%s: %s (%s)", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			tb.add(fmt.Sprintf("console.%s: %v", e.Type, e.Args))
		}
	case *runtime.EventExceptionThrown:
		tb.add(fmt.Sprintf("exception: %s %v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err == nil && strings.HasPrefix(u.Scheme, "http") && !strings.HasPrefix(e.Request.URL, tb.base+"/") && !slices.Contains(tb.others, u.Scheme+"://"+u.Host) &&
			!(tb.callback && u.Hostname() == "127.0.0.1" && u.Query().Get("nonce") != "") {
			tb.add("request to another server: " + e.Request.URL)
		}
	}
}

func (tb *tab) add(problem string) {
	for _, text := range tb.ignored {
		if strings.Contains(problem, text) {
			return
		}
	}
	tb.problems = append(tb.problems, problem)
}

// ignore permits messages that contain a text.
func (tb *tab) ignore(text string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.ignored = append(tb.ignored, text)
}

// check fails the test for what the browser has reported since the last call.
func (tb *tab) check() {
	tb.t.Helper()
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for _, p := range tb.problems {
		tb.t.Errorf("the browser reports %s", p)
	}
	tb.problems = nil
}

func (tb *tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		tb.shot("failed")
		tb.t.Fatalf("%s: %v\n%s", what, err, tb.text())
	}
}

// open opens a path of the console.
func (tb *tab) open(path string) {
	tb.t.Helper()
	tb.do("opening "+path, chromedp.Navigate(tb.base+path))
}

// click clicks the first visible element that a CSS selector finds.
func (tb *tab) click(selector string) {
	tb.t.Helper()
	tb.do("clicking "+selector, chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// fill types a text into an input.
func (tb *tab) fill(selector, text string) {
	tb.t.Helper()
	tb.do("filling "+selector, chromedp.SetValue(chromedp.CSS(selector), text))
}

// dispatchInput tells an input's scripts that its value has changed.
func dispatchInput(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void]("document.querySelector(" + quote(selector) + ").dispatchEvent(new Event('input'))")
}

// wait waits until a JavaScript expression is true. Unlike Poll, it survives navigations.
func (tb *tab) wait(what, expression string) {
	tb.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		ok, err := chromedp.Run(tb.ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && ok {
			return
		}
		if time.Now().After(deadline) {
			tb.shot("failed")
			tb.t.Fatalf("waiting until %s: %v\n%s", what, err, tb.text())
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-tb.t.Context().Done():
			tb.t.Fatal(tb.t.Context().Err())
		}
	}
}

// see waits until the page shows a text.
func (tb *tab) see(text string) {
	tb.t.Helper()
	tb.wait("the page shows "+text, "document.body && document.body.innerText.includes("+quote(text)+")")
}

func quote(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		return `""`
	}
	return string(encoded)
}

func (tb *tab) text() string {
	text, err := chromedp.Run(tb.ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

func evaluate[T any](tb *tab, expression string) T {
	tb.t.Helper()
	v, err := chromedp.Run(tb.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		tb.t.Fatalf("evaluating %s: %v", expression, err)
	}
	return v
}

// scheme emulates the color scheme of the system, and a window.
func (tb *tab) scheme(name string, width int64) {
	tb.t.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}
	if _, err := chromedp.Call(tb.ctx, emulation.SetEmulatedMedia, media); err != nil {
		tb.t.Fatalf("choosing the scheme %s: %v", name, err)
	}
	tb.do("resizing the window", chromedp.EmulateViewport(width, 800))
}

// leaves checks that a toast is in the window, and hidden after 6 seconds, also without motion.
func (tb *tab) leaves(selector string) {
	tb.t.Helper()
	for _, motion := range []string{"reduce", "no-preference"} {
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: motion}}}
		if _, err := chromedp.Call(tb.ctx, emulation.SetEmulatedMedia, media); err != nil {
			tb.t.Fatalf("choosing the motion %s: %v", motion, err)
		}
		got := evaluate[string](tb, `(() => {
			const toast = document.querySelector(`+quote(selector)+`), [animation] = toast.getAnimations();
			if (!animation) return "it never leaves";
			const shown = (ms) => { animation.currentTime = ms; return getComputedStyle(toast).visibility; };
			return [getComputedStyle(toast).position, shown(5900), shown(6300), shown(0)].join();
		})()`)
		if want := "fixed,visible,hidden,visible"; got != want {
			tb.t.Errorf("with motion %s, the toast is %s after 5.9, 6.3 and 0 seconds; want %s", motion, got, want)
		}
	}
}

// violation is a finding of axe.
type violation struct {
	ID    string   `json:"id"`
	Help  string   `json:"help"`
	Nodes []string `json:"nodes"`
}

// The rules of accessibility for a page, and those whose result depends on the colors.
const (
	allRules   = `["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]`
	colorRules = `{type: "rule", values: ["color-contrast", "link-in-text-block"]}`
)

// axe fails the test for each rule of accessibility that the page violates.
func (tb *tab) axe(name string) {
	tb.t.Helper()
	tb.rules(name, allRules)
}

// rules is like [tab.axe] for some rules, in the form of axe's option runOnly.
func (tb *tab) rules(name, rules string) {
	tb.t.Helper()
	if !evaluate[bool](tb, "!!window.axe") {
		tb.do("loading axe", chromedp.Evaluate[chromedp.Void](axe+";0"))
	}
	// The numbers of log lines may be smaller than a target, because keys and a button do the same.
	script := `axe.run(document, {runOnly: ` + rules + `, resultTypes: ["violations"], preload: false})
		.then((r) => r.violations.map((v) => ({...v, nodes: v.nodes.filter((n) => v.id !== "target-size" || !document.querySelector(n.target[0])?.closest(".ln"))}))
			.filter((v) => v.nodes.length > 0).map((v) => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + " " + (n.any[0]?.message ?? ""))})))`
	found, err := chromedp.Run(tb.ctx, chromedp.Evaluate[[]violation](script, chromedp.EvalAwaitPromise))
	if err != nil {
		tb.t.Errorf("%s: running axe: %v", name, err)
	}
	for _, v := range found {
		tb.t.Errorf("%s: axe: %s: %s\n\t%s", name, v.ID, v.Help, strings.Join(v.Nodes, "\n\t"))
	}
}

// shot writes a screenshot to the directory of artifacts.
func (tb *tab) shot(name string) {
	dir := os.Getenv("WORKFLOW_ARTIFACTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	image, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, fileName(tb.name+"-"+name)+".png"), image, 0o644)
	}
	if err != nil {
		tb.t.Logf("taking the screenshot %s: %v", name, err)
	}
}

// fileName returns the name of a screenshot's file.
func fileName(name string) string {
	safe := strings.Map(func(c rune) rune {
		if strings.ContainsRune("-_.=", c) || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' {
			return c
		}
		return '_'
	}, name)
	if len(safe) > 180 {
		safe = safe[:80] + "..." + safe[len(safe)-90:]
	}
	return safe
}
