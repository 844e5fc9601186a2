package browser

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// A shown stack of the drawing: its name, state, message, the age of its last run and its runs.
type drawnStack struct {
	name, state, message string
	age                  time.Duration
	resources            int64
	drift                string // resource changes of a detection
	runs                 string
}

const (
	hour     = time.Hour
	day      = 24 * hour
	fine     = "s40u1 s45u2 s61u3 s50u4 s72u5 s40u6 s45u7 s61u8 s50u9 s72u10 s40u11 s45u12 s61u13 s50u14 s72u15 s44u16 s53u17 s48u18 s60u19 s51u20"
	failing  = "s40u1 s45u2 s61u3 s50u4 s72u5 s40u6 s45u7 s61u8 s50u9 s72u10 s40u11 s45u12 s61u13 s50u14 s72u15 s44u16 s53u17 s48u18 s60u19 f90u20"
	drifting = "s40u1 s45u2 s61u3 c50u4 f72u5 s51u19 d30d20"
	nothing  = `{"same":9}`
)

var drawnStacks = []drawnStack{
	{"payments/prod", "failed", "Add charge-queue and its dead letters", 12 * time.Minute, 214, nothing, failing},
	{"payments/prod-dr", "failed", "Add charge-queue and its dead letters", 9 * time.Minute, 209, nothing, failing},
	{"payments/staging", "ok", "Add charge-queue and its dead letters", 18 * hour, 212, nothing, fine},
	{"payments/dev", "ok", "Try a FIFO queue for charges", 2 * day, 198, nothing, fine},
	{"payments/ledger-migration", "locked", "Drop the old ledger tables", 6 * time.Minute, 41, nothing, "s40u1 s90u2"},
	{"payments/pci-audit", "ok", "Export audit logs to the vault account", 21 * day, 57, nothing, fine},
	{"web/prod-ap", "running", "Move checkout to the new price service", 108 * time.Second, 209, nothing, fine},
	{"web/prod-us", "ok", "Raise the CDN cache to one hour", day, 211, nothing, fine},
	{"web/pr-133-checkout-redesign-with-saved-cards", "ok", "Show saved cards in the checkout", 4 * hour, 22, "", "s20u1 f31u2 s18u3"},
	{"web/pr-140-dark-mode", "never", "", 0, 0, "", ""},
	{"network/eu-west-1", "ok", "Peer with the identity account", 6 * day, 96, `{"update":2,"delete":1}`, drifting},
	{"network/us-east-1", "ok", "Peer with the identity account", 6 * day, 96, nothing, fine},
	{"network/sandbox", "paused", "Try the new load balancer", 15 * day, 16, nothing, fine},
	{"identity/prod", "queued", "Require passkeys for admins", 4 * day, 77, nothing, fine},
}

// drawEstate adds the stacks of the drawing, further ones, and one whose texts are hostile.
func drawEstate(t *testing.T, s *consoletest.Server) {
	t.Helper()
	now := time.Now()
	list := append([]drawnStack{{"web/hostile", "ok", hostile + "\u202egnp.exe", hour, 3, nothing, fine}}, drawnStacks...)
	for i := range 12 {
		list = append(list, drawnStack{fmt.Sprintf("platform/cluster-%02d", i), "ok", "Upgrade the nodes", time.Duration(i+1) * hour, int64(30 + i), nothing, fine})
	}
	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		org, err := tx.OrganizationByName(consoletest.Org)
		if err != nil {
			return err
		}
		admin, err := tx.UserByLogin("admin")
		if err != nil {
			return err
		}
		for i, d := range list {
			project, name, _ := strings.Cut(d.name, "/")
			id := fmt.Sprintf("drawn-%02d", i)
			if err := tx.InsertStack(store.Stack{ID: id, OrgID: org.ID, Project: project, Name: name, CreatedBy: admin.ID, ResourceCount: d.resources}); err != nil {
				return err
			}
			owner := map[string]string{"payments": "Team Payments", "web": "Team Web"}[project]
			if err := tx.SetStackTags(id, map[string]string{"owner": owner, "note": hostile + "\u202egnp.exe"}); err != nil {
				return err
			}
			if d.state == "never" {
				continue
			}
			e := map[string]int64{"failed": int64(store.RankFailed), "running": int64(store.RankRunning), "locked": int64(store.RankRunning), "paused": int64(store.RankPaused), "queued": int64(store.RankQueued)}
			rank, ok := e[d.state]
			if !ok {
				rank = int64(store.RankDeclared)
			}
			result, drift, held, deployment, ended := "succeeded", "none", "", 0, now.Add(-d.age)
			switch {
			case d.drift == "":
				drift = ""
			case d.drift != nothing:
				drift, rank = "found", int64(store.RankDrift)
			}
			switch d.state {
			case "failed":
				result = "failed"
			case "running", "locked":
				result, held, ended = "running", "someone", time.Time{}
				if d.state == "running" {
					deployment = 7
				}
			}
			_, err := tx.Exec(`UPDATE estate SET rank = $2, changed_at = $3, last_kind = 'update', last_version = 20, last_result = $4, last_by = $5, last_message = $6,
				last_started_at = $3, last_ended_at = $7, drift = $8, drift_changes = $9, runs = $10, held_by = $11, last_deployment = $12, queued = $13, paused = $14 WHERE stack_id = $1`,
				id, rank, now.Add(-d.age), result, admin.ID, d.message, ended, drift, d.drift, d.runs, held, int64(deployment), d.state == "queued", d.state == "paused")
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

// listed is an expression for the names of the stacks of the list, in their order.
const listed = `[...document.querySelectorAll(".l-stk .go")].map((a) => a.title)`

// TestStacks uses the list of stacks as its drawing shows it.
func TestStacks(t *testing.T) {
	s := consoletest.New(t)
	drawEstate(t, s)
	tb := newTab(t, s.URL)
	signIn(tb, s.Token)
	const path = "/" + consoletest.Org + "/-/stacks"
	window := func(scheme string, width, height int64) {
		t.Helper()
		tb.scheme(scheme, width)
		tb.do("resizing the window", chromedp.EmulateViewport(width, height))
	}
	window("light", 1440, 900)
	tb.open(path)
	tb.wait("the list is shown", listed+".length > 20")
	rows := evaluate[[]float64](tb, `[...document.querySelectorAll(".l-stk .row:not(.hd)")].filter((r) => r.getBoundingClientRect().bottom <= innerHeight).map((r) => r.getBoundingClientRect().height)`)
	if len(rows) < 20 {
		t.Errorf("%d rows are in the window, want 20", len(rows))
	}
	for _, h := range rows {
		if h != 36 {
			t.Errorf("a row has %g px: %v", h, rows)
			break
		}
	}
	tb.axe("stacks")
	tb.broken("stacks")
	tb.shot("stacks-light")
	if got := evaluate[string](tb, `document.querySelector(".l-stk .msg [title*='<script>']")?.textContent ?? ""`); !strings.HasPrefix(got, hostile) || strings.Contains(got, "\u202e") {
		t.Errorf("the message of a stack is %q", got)
	}
	underlined := evaluate[int](tb, `[...document.querySelectorAll(".l-stk a")].filter((a) => getComputedStyle(a).textDecorationLine !== "none").length`)
	if underlined != 0 {
		t.Errorf("%d links in rows are underlined", underlined)
	}

	// Sort, group and filter by the menus, chips and keys.
	tb.click(".bar summary[title='Group by']")
	tb.click(".bar details[open] .menu a[href*='group=none']")
	tb.wait("the groups are gone", "document.readyState === 'complete' && !document.querySelector('.l-stk .grp') && "+listed+"[0] === 'payments/prod'")
	tb.click(".bar summary[title='Sort by']")
	tb.click(".bar details[open] .menu a[href*='sort=resources']")
	tb.wait("the list is sorted by resources", "document.readyState === 'complete' && "+listed+"[1] === 'payments/staging'")
	tb.click(".bar summary[title='Group by']")
	tb.click(".bar details[open] .menu a[href*='group=owner']")
	tb.wait("the list is grouped by owner", "document.readyState === 'complete' && document.querySelector('.l-stk .grp .gname')?.innerText.includes('Team Payments')")
	tb.press("/")
	tb.do("typing", chromedp.KeyEvent("PROD pay"+kb.Enter))
	tb.wait("the list is filtered by words", listed+".join() === 'payments/prod,payments/prod-dr'")
	tb.wait("the view is the URL", "location.search.includes('group=owner') && location.search.includes('sort=resources')")
	tb.open(path)
	tb.click(".chips a[href*='state=drift']")
	tb.wait("the list shows drift", "document.readyState === 'complete' && "+listed+".join() === 'network/eu-west-1' && document.querySelector('.chips [aria-current]').innerText.includes('Drift')")

	// Stars change without a new page, and without scripts with one.
	star := `document.querySelector(".starb[value='network/eu-west-1']")`
	tb.do("marking", chromedp.Evaluate[chromedp.Void]("window.same = true; "+star+".click()"))
	tb.wait("the stack is starred", star+".getAttribute('aria-pressed') === 'true' && window.same && document.querySelector('.chips a[href*=star]').innerText.includes('1')")
	tb.wait("the page says so", "document.querySelector('#said .toast').innerText.startsWith('Starred network/eu-west-1.') && "+inWindow("#said .toast"))
	tb.wait("the navigation has the stack at once", "window.same && document.querySelector('#starred a[title=\"network/eu-west-1\"] .st-drift')")
	tb.axe("starred")
	tb.shot("stacks-starred")
	tb.leaves("#said .toast")
	undo := "document.querySelector('#said .toast button').click()" // it can be hidden meanwhile
	tb.do("undoing", chromedp.Evaluate[chromedp.Void](undo))
	tb.wait("Undo removes the star in place", star+".getAttribute('aria-pressed') === 'false' && window.same && document.querySelector('#said').textContent.includes('no longer starred') && !document.querySelector('#starred a')")
	tb.do("undoing", chromedp.Evaluate[chromedp.Void](undo))
	tb.wait("the stack is starred again", star+".getAttribute('aria-pressed') === 'true' && document.querySelector('#said').textContent.includes('Starred')")
	tb.open(path + "?star=on")
	tb.wait("the star is stored", listed+".join() === 'network/eu-west-1'")
	tb.wait("the navigation links to it", "document.querySelector('.rail .stars a[title=\"network/eu-west-1\"] .st-drift')")
	tb.click(".l-stk .starb")
	tb.wait("the row stays in its place", "document.querySelector('.l-stk .row.dim .starb[aria-pressed=false]') && document.querySelector('.chips a[href*=star]').innerText.includes('0')")
	tb.open(path + "?star=on")
	tb.wait("the star is removed", "document.querySelector('.empty')?.innerText.includes('No stack found')")
	tb.axe("no stack found")

	selectStacks(tb, s, path)

	window("dark", 1440, 900)
	tb.open(path)
	tb.rules("stacks dark", colorRules)
	tb.shot("stacks-dark")
	tb.click(".bar summary[title='Sort by']")
	tb.wait("the menu is in the window", inWindow(".bar details[open] .menu a:last-child"))
	tb.rules("menu", colorRules)

	// On a phone, each stack is a card of two lines.
	window("light", narrow, 844)
	tb.open(path)
	tb.fits(path)
	window("light", phone, 844)
	tb.axe("stacks phone")
	tb.broken("stacks on a phone")
	tb.shot("stacks-phone")
	card := `((row) => [row.querySelector(".go"), row.querySelector(".msg"), row.querySelector("time")].map((e) => Math.round(e.getBoundingClientRect().top)))(document.querySelector(".l-stk .row:not(.hd, .grp)"))`
	if tops := evaluate[[]int](tb, card); tops[1] <= tops[0]+8 || tops[2] > tops[0]+8 {
		t.Errorf("the name, message and time of a card begin at %v", tops)
	}

	// At compact density, which the user chooses with a scheme and a zone, the window shows more stacks.
	window("light", 1440, 900)
	tb.open("/user/settings")
	tb.fill("#density", "compact")
	tb.fill("#zone", "Asia/Tokyo")
	tb.fill("#theme", "dark")
	tb.axe("preferences")
	tb.shot("preferences")
	tb.click("form[action='/user/settings/preferences'] button")
	tb.wait("the preferences are stored", "document.documentElement.dataset.density === 'compact'")
	tb.open(path + "?group=none")
	tb.wait("times are in the zone", "document.querySelector('.l-stk time[title]').title.includes('GMT+9') && getComputedStyle(document.documentElement).colorScheme === 'dark'")
	rows = evaluate[[]float64](tb, `[...document.querySelectorAll(".l-stk .row:not(.hd, .grp)")].filter((r) => r.getBoundingClientRect().bottom <= innerHeight).map((r) => r.getBoundingClientRect().height)`)
	if len(rows) < 26 || slices.Max(rows) != 28 || slices.Min(rows) != 28 {
		t.Errorf("at compact density, %d rows are in the window, want 26 with 28 px: %v", len(rows), rows)
	}
	tb.axe("compact stacks")
	tb.shot("stacks-compact")
}

// selectStacks selects stacks by keys, boxes and groups, folds a group, and previews the selected stacks.
func selectStacks(tb *tab, s *consoletest.Server, path string) {
	tb.t.Helper()
	for _, name := range []string{"staging", "dev"} {
		s.API(http.MethodPost, "/api/stacks/acme/payments/"+name+"/deployments/settings", map[string]any{
			"sourceContext": map[string]any{"git": map[string]any{"repoUrl": "https://git.example.com/payments.git", "branch": "main"}},
		}, nil)
	}
	tb.open(path)
	tb.press("j")
	tb.press("j")
	// The keys of the tests' protocol scroll the page even if the keydown is prevented.
	space := "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: ' ', bubbles: true, cancelable: true, composed: true }))"
	if evaluate[bool](tb, space) {
		tb.t.Error("Space also scrolls the page")
	}
	tb.wait("Space shows the panel of the row", "/payments[^]*prod[^]*failed[^]*charge-queue[^]*214/.test(document.querySelector('dialog[open]')?.innerText)")
	tb.axe("panel")
	tb.shot("stacks-panel")
	tb.press("\x1b")
	tb.wait("the row has the focus again", "!document.querySelector('dialog[open]') && document.activeElement.title === 'payments/prod'")
	const picked = `[...document.querySelectorAll(".l-stk .row:not(.grp) .tick:checked")].map((e) => e.getAttribute("aria-label").slice(7))`
	shown := func(selector string) string {
		return fmt.Sprintf("document.querySelector(%q).getClientRects().length > 0", selector)
	}
	tb.open(path)
	tb.wait("no bar is shown", "!("+shown(".bulk")+")")
	tb.press("j")
	tb.press("x")
	tb.wait("the key selects the group", picked+".length === 6 && "+shown(".bulk"))
	tb.press("j")
	tb.press("x")
	tb.wait("the key removes a row from the selection", picked+".length === 5 && !"+picked+".includes('payments/prod')")
	tb.click("[aria-label='Select payments/prod']")
	tb.do("marking", chromedp.Evaluate[chromedp.Void]("window.same = true"))
	tb.click("#fold-g-web")
	tb.wait("the group folds without a new page", "window.same && location.search === '?fold=web' && !"+listed+".some((name) => name.startsWith('web/'))")
	tb.wait("the selection remains", picked+".length === 6")
	tb.axe("selected stacks")
	tb.shot("stacks-selected")
	tb.scheme("dark", 1440)
	tb.rules("selected stacks dark", colorRules)
	tb.shot("stacks-selected-dark")
	tb.scheme("light", 1440)
	tb.do("breaking the network", chromedp.Evaluate[chromedp.Void]("window.whole = window.fetch; window.fetch = () => Promise.reject(new TypeError('broken'))"))
	tb.click(".bulk button[value=preview]")
	tb.wait("the bar says that it failed", "document.querySelector('.bulk').innerText.includes('The server cannot be reached. Try again.')")
	tb.do("repairing the network", chromedp.Evaluate[chromedp.Void]("window.fetch = window.whole"))
	tb.click(".bulk button[value=preview]")
	tb.wait("the dialog says what starts", "document.querySelector('dialog h2')?.innerText === 'Preview 6 stacks' && /Cannot start\\s*4/.test(document.querySelector('dialog').innerText)")
	tb.axe("bulk dialog")
	tb.shot("bulk-dialog")
	tb.press("\x1b")
	tb.wait("the dialog is closed", "!document.querySelector('dialog[open]')")
	tb.click(".bulk button[type=reset]")
	tb.wait("nothing is selected", picked+".length === 0 && !("+shown(".bulk")+")")
	tb.click("[aria-label='Select payments/dev']")
	tb.click("[aria-label='Select payments/staging']")
	tb.click(".bulk button[value=preview]")
	tb.click("dialog button[name=confirmed]")
	tb.wait("the deployments of the batch are listed", "document.readyState === 'complete' && location.search.startsWith('?batch=') && document.querySelectorAll('.l-dep .row[id]').length === 2")
	tb.shot("batch")
	tb.open(path + "?fold=web")
	tb.wait("folds are in the URL", "document.querySelector('#fold-g-web').ariaExpanded === 'false'")
}
