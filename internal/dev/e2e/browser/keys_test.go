package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"workflowagent/internal/dev/e2e/harness"
)

func (tb *tab) press(keys string, options ...chromedp.KeyOption) {
	tb.t.Helper()
	tb.do("pressing "+keys, chromedp.KeyEvent(keys, options...))
}

// TestKeyboard signs in, finds a stack and opens its deploy form with the keyboard only, and turns
// keys without a modifier off.
func TestKeyboard(t *testing.T) {
	w := harness.StartSite(t, "")
	w.NewStack(t.Context(), t, "box", "dev", "", nil)
	w.NewStack(t.Context(), t, "box", "prod", "", nil)
	tb := newTab(t, w.Server.URL)
	tb.open("/-/login")
	tb.do("focusing the token", chromedp.Focus(chromedp.CSS("#token")), chromedp.KeyEvent(w.Server.Token), chromedp.KeyEvent(kb.Enter))
	tb.wait("the scripts of the first page run", "document.querySelector('.me details') && document.querySelector('.find:not([hidden])')")

	tb.press("k", chromedp.KeyModifiers(chromedp.ModifierCtrl))
	tb.wait("the palette opens", "document.querySelector('.pal[open]')")
	tb.press("prod")
	tb.wait("the palette finds the stack", "document.querySelector('.pal [aria-selected=true]')?.innerText.includes('box/prod')")
	tb.shot("palette")
	tb.axe("palette")
	tb.press(kb.ArrowDown)
	tb.wait("the action is selected", "document.querySelector('.pal [aria-selected=true]')?.innerText.includes('Deploy')")
	tb.press(kb.Enter)
	tb.wait("the form opens", "location.pathname.endsWith('/box/prod/deploy') && document.readyState === 'complete' && document.querySelector('.find:not([hidden])')")

	tb.press("g")
	tb.press("s")
	tb.wait("the list of stacks opens", "location.pathname.endsWith('/-/stacks') && document.querySelector('.find:not([hidden])')")
	tb.press("j")
	tb.wait("a row has the focus", "document.activeElement.closest('.l-stk .row')")
	tb.press("?")
	tb.wait("the help opens", "document.querySelector('#key-help[open]')")
	tb.axe("help")
	tb.press(kb.Escape)
	tb.press("/")
	tb.wait("the filter has the focus", "document.activeElement.name === 'q'")
	tb.press("jk")
	tb.wait("keys are text in an input", "document.querySelector('input[name=q]').value.endsWith('jk')")

	tb.open("/user/settings")
	tb.click("input[name=keys]")
	tb.click("form[action='/user/settings/preferences'] button")
	tb.wait("keys are off", "document.documentElement.dataset.keys === 'off'")
	tb.press("?")
	if evaluate[bool](tb, "!!document.querySelector('#key-help[open]')") {
		t.Error("the key ? acts although keys are off")
	}
}
