package browser

import (
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"workflowagent/internal/dev/consoletest"
)

// TestBack opens a stack from the list, whose page the browser fetches when the link is pressed, and goes back: the scroll
// position and the selection are the same, and nothing of the page keeps browsers from restoring it from memory.
func TestBack(t *testing.T) {
	s := consoletest.New(t)
	drawEstate(t, s)
	tb := newTab(t, s.URL)
	signIn(tb, s.Token)
	tb.do("resizing the window", chromedp.EmulateViewport(1280, 800))
	tb.open("/acme/-/stacks")
	tb.wait("the list is shown, and the rules are read", listed+".length > 20 && performance.getEntriesByType('resource').some((e) => e.name.endsWith('/prefetch.json'))")
	tb.do("scrolling", chromedp.Evaluate[chromedp.Void]("scrollTo(0, 200)"))
	tb.click("[aria-label='Select web/prod-us']")
	tb.click(".go[title='web/prod-us']")
	const shown = "document.readyState === 'complete' && location.pathname === "
	tb.wait("the stack is shown", shown+"'/acme/web/prod-us'")
	if got := evaluate[string](tb, "performance.getEntriesByType('navigation')[0].deliveryType"); got != "navigational-prefetch" {
		t.Errorf("the page of the stack was delivered by %q", got)
	}
	tb.do("going back", chromedp.Evaluate[chromedp.Void]("history.back()"))
	tb.wait("the list is as it was", shown+"'/acme/-/stacks' && scrollY === 200 && document.querySelector('.tick:checked')?.ariaLabel === 'Select web/prod-us' && document.querySelector('.bulk').checkVisibility()")
	// The headless browser never restores pages from memory, and masks that it is the reason.
	reasons := evaluate[[]string](tb, "(performance.getEntriesByType('navigation')[0].notRestoredReasons?.reasons ?? []).map((r) => r.reason)")
	if others := slices.DeleteFunc(reasons, func(reason string) bool { return reason == "masked" }); len(others) > 0 {
		t.Errorf("the page is not restored because of %q", others)
	}
	t.Logf("the list was complete after %g ms", evaluate[float64](tb, "performance.getEntriesByType('navigation')[0].loadEventEnd"))
}
