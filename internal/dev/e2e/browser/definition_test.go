package browser

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/fakes/evaluator"
	"workflowagent/internal/dev/must"
)

// editor returns a server with the environments app/base and app/prod, and a tab of the administrator.
func editor(t *testing.T) (*consoletest.Server, *tab) {
	t.Helper()
	must.OK(t, evaluator.Install())
	s := consoletest.New(t)
	for _, name := range []string{"base", "prod"} {
		s.API(http.MethodPost, "/api/esc/environments/acme", map[string]string{"project": "app", "name": name}, nil)
	}
	tb := newTab(t, s.URL)
	signIn(tb, s.Token)
	tb.scheme("light", desktop)
	return s, tb
}

const editPath = "/acme/-/environments/app/prod/edit"

// value is an expression for the text in the editor.
const value = "document.querySelector('#definition').value"

// TestDefinition writes a definition with the script of the editor: suggestions, problems with their lines, keys, and another
// user who saves meanwhile.
func TestDefinition(t *testing.T) {
	s, tb := editor(t)
	tb.open(editPath)
	tb.wait("the editor has numbers", loaded+"document.querySelector('.code > pre').textContent === '1\\n'")
	tb.axe("empty editor")
	tb.click("#definition")
	tb.press("val")
	tb.wait("a section is suggested", "document.querySelector('#completions:not([hidden]) [aria-selected=true]')?.textContent.startsWith('values')")
	tb.wait("the list is in the window", inWindow("#completions"))
	tb.axe("suggestions")
	tb.shot("suggestions") // which changes the size of the window, and so hides the list
	tb.press(" ", chromedp.KeyModifiers(chromedp.ModifierCtrl))
	tb.wait("the suggestion is shown", "document.querySelector('#completions:not([hidden]) [aria-selected=true]')")
	tb.press(kb.Enter)
	tb.wait("it is inserted", value+" === 'values:\\n  ' && document.querySelector('#completions').hidden")
	tb.press("password: {fn::secret: hunter2}" + kb.Enter + "url: BROKEN")
	tb.wait("a line begins where the last one does", value+".endsWith('}\\n  url: BROKEN')")
	tb.wait("the problem is shown with its line", "document.querySelector('#problems [data-line=\"3\"]') && document.querySelector('.code > pre mark').textContent === '3'")
	tb.wait("the secret is masked", "((text) => text.includes('password') && text.includes('[secret]') && !text.includes('hunter2'))(document.querySelector('#result').innerText)")
	tb.axe("problem")
	tb.shot("problem")
	tb.press(kb.Home)
	tb.click("#problems [data-line]")
	tb.wait("the cursor is at the problem", "((area) => document.activeElement === area && area.value.slice(area.selectionStart).startsWith('url'))(document.querySelector('#definition'))")
	tb.press("s", chromedp.KeyModifiers(chromedp.ModifierCtrl))
	tb.wait("a definition with errors is not saved", "document.querySelector('#problems').innerText.includes('is not saved')")
	tb.press(kb.End + kb.Backspace + kb.Backspace + kb.Backspace + kb.Backspace + kb.Backspace + kb.Backspace + "${pass")
	tb.wait("a value is suggested", "document.querySelector('#completions:not([hidden]) [aria-selected=true]')?.textContent.startsWith('password')")
	tb.press(kb.Escape)
	tb.wait("Escape hides the list", "document.querySelector('#completions').hidden")
	tb.press(" ", chromedp.KeyModifiers(chromedp.ModifierCtrl))
	tb.wait("Ctrl+Space shows it", "!document.querySelector('#completions').hidden")
	tb.press(kb.Tab + "}")
	tb.wait("the name is inserted", value+".endsWith('url: ${password}')")
	tb.press("s", chromedp.KeyModifiers(chromedp.ModifierCtrl))
	tb.wait("it is saved, and the secret encrypted", loaded+value+".includes('ciphertext') && !"+value+".includes('hunter2') && document.querySelector('#said').innerText.includes('Saved revision 2.')")
	tb.wait("the cursor is where it was", "((area) => document.activeElement === area && area.selectionStart === area.value.length)(document.querySelector('#definition'))")

	tb.press(kb.Enter + "mine: 1")
	if p := s.SignIn().Post(editPath, url.Values{"definition": {"values:\n  theirs: 1\n"}, "base": {evaluate[string](tb, "document.querySelector('[name=base]').value")}}); p.Status != http.StatusSeeOther {
		t.Fatalf("saving as another user: status %d: %s", p.Status, p.Text())
	}
	tb.click(".logbar .primary")
	tb.wait("both texts are kept", "document.querySelector('#notice pre')?.textContent.includes('theirs: 1') && "+value+".includes('mine: 1')")
	tb.axe("conflict")
	tb.shot("conflict")
	tb.scheme("light", narrow)
	tb.fits("conflict on a phone")
	tb.scheme("light", desktop)
	tb.click(".logbar .primary")
	tb.wait("the own text is saved then", loaded+value+".includes('mine: 1') && document.querySelector('#said').innerText.includes('Saved revision 4.')")
	tb.do("signing out", chromedp.Evaluate[chromedp.Void]("fetch('/-/logout', {method: 'POST'}).then(() => 0)", chromedp.EvalAwaitPromise))
	tb.ignore("401")
	tb.click("#definition")
	tb.press("x")
	tb.wait("who is signed out keeps the text", "document.querySelector('#problems').innerText.includes('signed out') && "+value+".includes('x')")
	tb.do("leaving", chromedp.Evaluate[chromedp.Void]("document.querySelector('#definition').value = document.querySelector('#definition').defaultValue; 0"))
}

// TestSecretValues reveals, hides and copies a secret of an environment.
func TestSecretValues(t *testing.T) {
	_, tb := editor(t)
	tb.open(editPath)
	tb.fill("#definition", "values:\n  password: {fn::secret: hunter2}\n  region: eu\n")
	tb.click(".logbar .primary")
	tb.wait("it is saved", loaded+value+".includes('ciphertext')")
	tb.open("/acme/-/environments/app/prod/values")
	tb.click("main form .btn.primary")
	tb.wait("the values are shown", loaded+"document.querySelector('secret-value .icon') && document.querySelector('main').innerText.includes('eu')")
	tb.axe("values")
	tb.shot("values")
	tb.do("keeping what is copied", chromedp.Evaluate[chromedp.Void]("navigator.clipboard.writeText = async (text) => { window.copied = text; }"))
	tb.click("secret-value .icon")
	tb.wait("the secret is copied, and not shown", "window.copied === 'hunter2' && !document.querySelector('main').innerText.includes('hunter2')")
	tb.click("secret-value form button")
	tb.wait("the secret is shown", "document.querySelector('secret-value').innerText.includes('hunter2')")
	tb.click("secret-value form button")
	tb.wait("it is hidden", "!document.querySelector('main').innerText.includes('hunter2')")
	tb.scheme("light", narrow)
	tb.fits("values on a phone")
}
