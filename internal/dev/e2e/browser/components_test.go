package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestComponents uses what the scripts add to the components.
func TestComponents(t *testing.T) {
	tb := newTab(t, site(t))

	tb.scheme("light", desktop)
	tb.open("/list")
	tb.click("copy-text button")
	tb.wait("screen readers learn that the text is copied", "document.querySelector('[role=status]#announcer')?.textContent === 'Copied'")

	tb.click("[data-keys-help]")
	tb.wait("the help opens", "document.querySelector('#key-help[open]')")
	tb.axe("help")
	places := evaluate[[]string](tb, "[...document.querySelectorAll('.rail .nav a[data-key]')].map((a) => a.innerText.trim())")
	for _, place := range places {
		tb.see("go to " + place)
	}
	if len(places) < 6 {
		t.Errorf("the rail links to %q", places)
	}
	tb.press(kb.Escape)

	tb.click(".me summary")
	tb.wait("the menu of the user is in the window", inWindow(".me .menu form button"))
	tb.axe("menu of the user")
	tb.press(kb.Escape)
	tb.wait("the menu is closed", "!document.querySelector('.me details[open]')")

	tb.scheme("light", narrow)
	tb.open("/object")
	tb.wait("the current tab is in the window", inWindow(".tabs [aria-current]"))
	tb.click(".tabbar summary")
	tb.wait("More contains the other sections", inWindow(".tabbar .menu a[href$='/-/settings']")+" && "+inWindow(".tabbar .menu form button"))
	tb.axe("menu More")
	tb.open("/form")
	tb.click("#sure summary.danger")
	tb.wait("the question is in the window", inWindow("details[open] .dlg button"))
	tb.axe("question")
	tb.do("leaving", chromedp.Navigate("about:blank"))
}

// inWindow is an expression that is true if an element lies in the window.
func inWindow(selector string) string {
	return "((r) => r && r.width > 0 && r.left >= 0 && r.right <= innerWidth && r.top >= 0 && r.bottom <= innerHeight)(document.querySelector(" + quote(selector) + ")?.getBoundingClientRect())"
}
