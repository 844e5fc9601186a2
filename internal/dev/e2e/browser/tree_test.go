package browser

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"workflowagent/internal/dev/consoletest"
)

const largeTree = 5000 // resources

// treeUpdate is a running update whose events a test sends.
type treeUpdate struct {
	s        *consoletest.Server
	path     string // of the API
	token    string
	sequence int
}

func startUpdate(t *testing.T, s *consoletest.Server, stack string) *treeUpdate {
	t.Helper()
	u := &treeUpdate{s: s}
	var created struct {
		ID string `json:"updateID"`
	}
	s.API(http.MethodPost, stack+"/update", map[string]any{"name": "box", "runtime": "yaml"}, &created)
	u.path = stack + "/update/" + created.ID
	var started struct{ Token string }
	s.API(http.MethodPost, u.path, map[string]any{}, &started)
	u.token = "update-token " + started.Token
	return u
}

func urnOf(n int) string {
	return fmt.Sprintf("urn:pulumi:dev::box::pkg:index:Res::resource-%04d", n)
}

// event returns an event about a resource; every hundredth is the parent of those after it.
func (u *treeUpdate) event(name string, n int) map[string]any {
	sequence := u.sequence
	u.sequence++
	parent := "urn:pulumi:dev::box::pulumi:pulumi:Stack::box-dev"
	if n%100 != 0 {
		parent = urnOf(n - n%100)
	}
	return map[string]any{"sequence": sequence, "timestamp": time.Now().Unix(), name: map[string]any{"metadata": map[string]any{
		"op": "create", "urn": urnOf(n), "type": "pkg:index:Res", "new": map[string]any{"urn": urnOf(n), "type": "pkg:index:Res", "parent": parent},
	}}}
}

func (u *treeUpdate) send(t *testing.T, events []any) {
	t.Helper()
	if status, body := u.s.APIAs(u.token, http.MethodPost, u.path+"/events/batch", map[string]any{"events": events}, nil); status != http.StatusOK {
		t.Fatalf("sending events: status %d: %s", status, body)
	}
}

// row waits until a row of the tree is on the screen and shows a text.
func (tb *tab) row(n int, text string) {
	tb.t.Helper()
	tb.wait(fmt.Sprintf("resource %d is visible and shows %q", n, text), fmt.Sprintf(`(() => {
		const box = document.querySelector(".split.tree > nav").getBoundingClientRect();
		return [...document.querySelectorAll("resource-tree li[data-depth]")].some((li) => {
			const r = li.getBoundingClientRect();
			return r.bottom <= box.bottom + 1 && r.top >= box.top && li.querySelector(".nm > .cut").textContent === "resource-%04d" && li.innerText.includes(%s);
		});
	})()`, n, quote(text)))
}

func (tb *tab) scrollTree(share float64) {
	tb.t.Helper()
	tb.do("scrolling the tree", chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(() => { const p = document.querySelector(".split.tree > nav"); p.scrollTop = (p.scrollHeight - p.clientHeight) * %f; })()`, share)))
}

// TestLargeTree shows an update of 5,000 resources while it runs.
func TestLargeTree(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	u := startUpdate(t, s, "/api/stacks/acme/box/dev")
	tb := newTab(t, s.URL)
	signIn(tb, s.Token)
	tb.open("/acme/box/dev/updates/1")

	// The tree is small when the page is opened, and becomes virtual while it grows.
	batch := func(name string, from, to int) {
		t.Helper()
		for from < to {
			var list []any
			for ; from < to && len(list) < 500; from++ {
				list = append(list, u.event(name, from))
			}
			u.send(t, list)
		}
	}
	batch("resourcePreEvent", 0, 300)
	tb.row(0, "running")
	if evaluate[bool](tb, "!!document.querySelector('resource-tree[virtual]')") {
		t.Error("a tree of 300 rows is virtual")
	}
	batch("resourcePreEvent", 300, largeTree)
	tb.wait("the tree is virtual and complete", "document.querySelector('resource-tree[virtual]')?.dataset.count === '5000'")
	tb.shot("running")

	tb.took("a full rendering", time.Second, func() {
		tb.open("/acme/box/dev/updates/1")
		tb.row(0, "running")
	})
	if n := evaluate[int](tb, "document.querySelectorAll('resource-tree li').length"); n > 200 {
		t.Errorf("the tree has %d rows in the document", n)
	}
	tb.took("scrolling to the middle", time.Second, func() { tb.scrollTree(0.5); tb.row(2500, "running") })
	if heights := evaluate[int](tb, "new Set([...document.querySelectorAll('resource-tree li[data-depth]')].map((r) => r.offsetHeight)).size"); heights != 1 {
		t.Errorf("the rows have %d heights", heights)
	}
	tb.took("scrolling to the end", time.Second, func() { tb.scrollTree(1); tb.row(largeTree-1, "running") })

	// One change of a visible row. Finished rows follow the running ones.
	tb.took("one change", time.Second, func() {
		u.send(t, []any{u.event("resOpFailedEvent", largeTree-1)})
		tb.scrollTree(0)
		tb.row(largeTree-1, "failed")
	})
	// All rows end; the tree keeps its position and its bounded size meanwhile.
	tb.scrollTree(0.5)
	batch("resOutputsEvent", 0, largeTree-1)
	tb.wait("the rows in the window have succeeded", "[...document.querySelectorAll('resource-tree li[data-depth]')].every((r) => r.innerText.includes('succeeded'))")

	// Folding hides the rows below a resource.
	tb.scrollTree(0)
	tb.row(largeTree-1, "failed")
	tb.row(4900, "succeeded") // first in the tree, because a resource below it has failed
	tb.do("folding", chromedp.Evaluate[chromedp.Void]("document.querySelector('resource-tree li[data-depth] > button').click()"))
	tb.wait("98 rows are folded", "document.querySelector('resource-tree').dataset.count === '4902'")
	tb.row(0, "succeeded")
	tb.shot("folded")
	tb.axe("a large tree")
	tb.scheme("light", 360)
	if over := evaluate[int](tb, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
		t.Errorf("the page scrolls sideways by %d px on a phone", over)
	}
}
