package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
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
	tb.wait("the palette finds the stack", "document.querySelector('.pal [aria-selected=true] mark')?.innerText === 'prod' && document.querySelector('.pal [aria-selected=true]').innerText.includes('box/prod')")
	tb.shot("palette")
	tb.axe("palette")
	tb.press(kb.ArrowDown)
	tb.wait("the action is selected", "document.querySelector('.pal [aria-selected=true]')?.innerText.includes('Preview box/prod')")
	tb.press(kb.ArrowDown)
	tb.wait("the next action is selected", "document.querySelector('.pal [aria-selected=true]')?.innerText.includes('Deploy box/prod')")
	tb.press(kb.Enter)
	tb.wait("the form opens over the page", "document.querySelector('dialog.dlg[open]')?.innerText.includes('Deploy box/prod for the first time') && location.pathname.split('/').length === 2")
	tb.press(kb.Escape)
	tb.wait("one Escape closes the form", "!document.querySelector('dialog[open]')")

	// Words in any order, one Escape, and a key that previews the stack.
	tb.press("k", chromedp.KeyModifiers(chromedp.ModifierCtrl))
	tb.wait("the palette opens again", "document.querySelector('.pal[open] h3')?.innerText === 'Recent'")
	tb.press("prod box")
	tb.wait("the words are marked", "[...document.querySelectorAll('.pal li.on mark')].map((m) => m.innerText).join(' ') === 'box prod'")
	tb.press(kb.Escape)
	tb.wait("one Escape closes the palette", "!document.querySelector('dialog[open]')")
	tb.press("k", chromedp.KeyModifiers(chromedp.ModifierCtrl))
	tb.press("prod box")
	tb.wait("the palette finds the stack again", "[...document.querySelectorAll('.pal li.on mark')].length === 2")
	tb.press(kb.Enter, chromedp.KeyModifiers(chromedp.ModifierCtrl))
	tb.wait("the form of a preview opens", "document.querySelector('dialog.dlg[open] .acts')?.innerText.trim().endsWith('Save and preview')")
	tb.press(kb.Escape)
	tb.wait("the form closes", "!document.querySelector('dialog.dlg')") // has the focus until it is gone

	// Both keys at once, because the first one counts only for a while.
	evaluate[bool](tb, `[..."gs"].every((key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })) || true)`)
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

// TestDeployDialog opens the form that starts a deployment over a page, changes what it does, destroys only after the name
// is typed, and returns the focus.
func TestDeployDialog(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	s.API("POST", "/api/stacks/acme/box/dev/deployments/settings", map[string]any{"sourceContext": map[string]any{"git": map[string]any{"repoUrl": "https://git.invalid/box.git", "branch": "main"}}}, nil)
	s.API("POST", "/api/stacks/acme/box/dev/import", map[string]any{"version": 3, "deployment": map[string]any{
		"manifest": map[string]any{"time": "2026-01-02T03:04:05Z", "magic": "x", "version": "v3.0.0"},
		"resources": []any{
			map[string]any{"urn": "urn:pulumi:dev::box::aws:s3/bucket:Bucket::" + hostile, "type": "aws:s3/bucket:Bucket", "custom": true, "id": "x"},
			map[string]any{"urn": "urn:pulumi:dev::box::aws:iam/role:Role::role", "type": "aws:iam/role:Role", "custom": true, "id": "y"},
		},
	}}, nil)
	tb := newTab(t, s.URL)
	tb.ignore("422") // the answer to a form that is not complete
	signIn(tb, s.Token)
	tb.open("/acme/box/dev")
	tb.wait("the scripts run", "document.querySelector('.find:not([hidden])')")
	const dialog = "document.querySelector('dialog.dlg[open]')"
	tb.click(".obj .btn.primary[data-dialog]")
	tb.wait("the form opens", dialog+"?.innerText.includes('Update from main') && document.activeElement.innerText === 'Update'")
	tb.axe("dialog")
	tb.shot("deploy")
	tb.do("typing a commit", chromedp.SetValue(chromedp.CSS("#deploy-ref"), "7be10c4"))
	tb.click("dialog #deploy-preview")
	tb.wait("the operation changes and the commit stays", dialog+".innerText.includes('Preview from 7be10c4') && document.querySelector('#deploy-ref').value === '7be10c4' && document.activeElement.id === 'deploy-preview'")
	tb.press(kb.Escape)
	tb.wait("the focus is where it was", "!document.querySelector('dialog[open]') && document.activeElement.matches('.obj .btn.primary[data-dialog]')")

	tb.click(".obj .join summary")
	tb.click(".obj .menu a.bad")
	tb.wait("the safe button has the focus", dialog+"?.innerText.includes('1 of them holds data') && document.activeElement.innerText.trim() === 'Keep the stack'")
	tb.axe("destroy")
	tb.shot("destroy")
	if !evaluate[bool](tb, "document.querySelector('dialog .danger.solid').disabled && document.querySelector('dialog .danger.solid').innerText === 'Destroy 2 resources'") {
		t.Error("the button that destroys can be pressed before the name is typed, or does not say what it destroys")
	}
	tb.do("focusing the name", chromedp.Focus(chromedp.CSS("#deploy-confirm")))
	tb.press("de" + kb.Enter)
	tb.wait("the server asks for the name", dialog+"?.querySelector('[aria-invalid]') && location.pathname.endsWith('/box/dev')")
	tb.do("selecting what was typed", chromedp.Evaluate[chromedp.Void]("document.querySelector('#deploy-confirm').focus(), document.querySelector('#deploy-confirm').select()"))
	tb.press("dev")
	tb.wait("the button can be pressed", "!document.querySelector('dialog .danger.solid').disabled")
	for _, window := range []struct {
		scheme string
		width  int64
	}{{"dark", 1440}, {"light", phone}, {"dark", phone}} {
		tb.scheme(window.scheme, window.width)
		tb.rules("destroy "+window.scheme, colorRules)
		tb.shot(fmt.Sprintf("destroy-%s-%d", window.scheme, window.width))
	}
	tb.scheme("light", desktop)
	tb.click("dialog .danger.solid")
	tb.wait("the deployment's page opens", loaded+"location.pathname.endsWith('/box/dev/deployments/1')")

	// A session that ends while the dialog is open loses nothing.
	tb.ignore("401")
	tb.open("/acme/box/dev")
	tb.wait("the scripts run", "document.querySelector('.find:not([hidden])')")
	tb.click(".obj .btn.primary[data-dialog]")
	tb.wait("the form opens", dialog+"?.innerText.includes('Update from main')")
	tb.do("typing a branch", chromedp.SetValue(chromedp.CSS("#deploy-ref"), "release"))
	must.Get(chromedp.Call(tb.ctx, network.ClearBrowserCookies, cdp.Empty{}))(t)
	tb.click("dialog .acts .btn.primary")
	tb.see("Send it again")
	if got := evaluate[string](tb, "[...document.querySelectorAll('form input')].map((e) => e.name + '=' + e.value).join()"); !strings.Contains(got, "ref=release") || !strings.Contains(got, "operation=update") {
		t.Errorf("after the end of the session, the page keeps %s", got)
	}
}

// mostClicks is the number of clicks after which the first deployment of a new user must have started.
const mostClicks = 7

// TestFirstDeployment starts the first deployment of a stack with few clicks, from the door on.
func TestFirstDeployment(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	tb := newTab(t, s.URL)
	clicks := 0
	click := func(selector string) {
		t.Helper()
		clicks++
		tb.click(selector)
	}
	tb.open("/-/login")
	tb.fill("#token", s.Token)
	click("form[action='/-/login'] button")
	tb.wait("the home page opens", "document.querySelector('.rail a[data-key=s]')")
	click(".rail a[data-key=s]")
	tb.wait("the list of stacks opens", "document.querySelector('.l-stk .row .go')")
	click(".l-stk .row .go")
	tb.wait("the stack opens", "document.querySelector('.obj [data-dialog]') && document.querySelector('.find:not([hidden])')")
	click(".obj .btn.primary[data-dialog]")
	tb.wait("the form asks where the program is", "document.activeElement.id === 'deploy-repository' && document.querySelector('dialog.dlg[open]').innerText.includes('Where is the program?')")
	tb.axe("first deployment")
	tb.shot("first")
	tb.press("https://git.invalid/box.git")
	click("dialog .btn.primary")
	tb.wait("the deployment's page opens", "location.pathname.endsWith('/box/dev/deployments/1')")
	if clicks > mostClicks {
		t.Errorf("the first deployment takes %d clicks, want at most %d", clicks, mostClicks)
	}
}
