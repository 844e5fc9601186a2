package browser

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"workflowagent/internal/dev/consoletest"
)

// TestSuggestions adds a member to a team from the list of suggestions.
func TestSuggestions(t *testing.T) {
	s := consoletest.New(t)
	s.AddUser("chen", "member")
	s.AddUser("tomas.rich", "member")
	s.AddUser("bob", "member")
	s.API(http.MethodPost, "/api/orgs/acme/teams/pulumi", map[string]string{"name": "core"}, nil)
	tb := newTab(t, s.URL)
	signIn(tb, s.Token)
	tb.open("/acme/-/settings/teams/core")
	const list = "document.querySelector('.combo [role=listbox]')"
	tb.wait("the field has a list", loaded+list+"?.hidden && document.querySelector('#member[role=combobox][aria-expanded=false]')")
	tb.do("typing", chromedp.Focus(chromedp.CSS("#member")), chromedp.KeyEvent("CH"))
	tb.wait("it has those whose name or login contains the text", list+".textContent === 'CH chen chenTR tomas.rich tomas.rich' && "+list+".querySelector('.on mark').innerText === 'ch'")
	tb.wait("the field is open", "document.querySelector('#member[aria-expanded=true][aria-activedescendant=suggestion-0]')")
	tb.axe("suggestions")
	tb.shot("open")
	tb.press(kb.ArrowDown)
	tb.wait("the next one is chosen", "document.querySelector('#member[aria-activedescendant=suggestion-1]') && "+list+".querySelector('.on').textContent.includes('tomas.rich')")
	tb.click(".combo [role=option]:last-child")
	tb.wait("the login is in the field", list+".hidden && document.querySelector('#member').value === 'tomas.rich' && document.querySelector('#member[aria-expanded=false]')")
	tb.press(kb.Enter)
	tb.wait("the team has the member", loaded+"document.querySelector('.l-tm')?.innerText.includes('tomas.rich')")
}
