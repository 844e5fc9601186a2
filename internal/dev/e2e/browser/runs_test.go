package browser

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// deployed is an expression for the names and numbers of the rows of the list, in their order.
const deployed = `[...document.querySelectorAll(".l-dep .go")].map((a) => a.title)`

// TestDeployments uses the list of deployments and the runs of a stack as their drawing shows them: filters by stack and
// project, rows that change where they are, and new ones that wait.
func TestDeployments(t *testing.T) {
	w := newTown(t)
	for _, name := range []string{"payments/prod", "payments/staging", "web/prod-eu", "web/prod-us"} {
		project, stack, _ := strings.Cut(name, "/")
		w.Stack(project, stack)
	}
	w.pool = w.Pool()
	w.fail(w.deploy("payments/prod"), "payments/prod")
	good := w.deploy("payments/staging")
	w.RunUpdate(consoletest.Update{Access: good.Token, Stack: "payments/staging", Kind: "update", Message: "Raise the limit " + hostile + "\u202egnp.exe", Changes: object{"create": 5, "update": 2, "delete": 1}, Result: "succeeded"})
	good.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded})
	w.RunUpdate(consoletest.Update{Stack: "payments/staging", Kind: "update", Message: "By hand", Changes: object{"update": 1}, Result: "succeeded"})
	running := w.deploy("web/prod-eu")
	queue := func(stack string) {
		w.API(http.MethodPost, "/api/stacks/acme/"+stack+"/deployments", object{"operation": "preview"}, nil)
	}
	queue("web/prod-eu")
	queue("web/prod-us")

	const path = "/" + consoletest.Org + "/-/deployments"
	tb := newTab(t, w.URL)
	signIn(tb, w.Token)
	tb.looks(path, "deployments")
	tb.window(path, "light", 1440, 900)
	if heights := evaluate[[]float64](tb, `[...document.querySelectorAll(".l-dep .row:not(.hd)")].map((r) => r.getBoundingClientRect().height)`); slices.ContainsFunc(heights, func(h float64) bool { return h != 36 }) {
		t.Errorf("the rows have the heights %v, want 36", heights)
	}
	tb.broken("deployments")
	tb.wait("all deployments are listed", deployed+`.join() === "web/prod-eu #1,web/prod-eu #2,web/prod-us #1,payments/staging #1,payments/prod #1"`)
	if got := evaluate[string](tb, `document.querySelector(".l-dep .say [title*='Raise the limit']").textContent`); !strings.HasPrefix(got, "Raise the limit "+hostile) || strings.Contains(got, "\u202e") {
		t.Errorf("the message of a deployment is %q", got)
	}

	// New rows wait, and the others change where they are.
	w.API(http.MethodPost, "/api/stacks/acme/payments/prod/deployments", object{"operation": "preview"}, nil)
	tb.wait("one row waits", `document.querySelector("[data-new-rows] button")?.textContent === "1 new"`)
	running.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded})
	tb.wait("the first row has changed", `document.querySelector(".l-dep .row[id] .st-ok")?.closest(".row").querySelector(".go").title === "web/prod-eu #1"`)
	tb.wait("the rows are in their places", deployed+`.join() === "web/prod-eu #1,web/prod-eu #2,web/prod-us #1,payments/staging #1,payments/prod #1"`)
	tb.click("[data-new-rows] button")
	tb.wait("the new row is shown", deployed+`.join() === "web/prod-eu #2,web/prod-us #1,payments/prod #2,web/prod-eu #1,payments/staging #1,payments/prod #1" && !document.querySelector("[data-new-rows] button") && document.activeElement.title === "payments/prod #2"`)

	// Filters by stack and project, by text, and by state.
	tb.click(".filters summary[title='Stack or project']")
	tb.click("#stack")
	tb.do("typing a project", chromedp.KeyEvent("payments"+kb.Enter))
	tb.wait("the project is listed", "document.readyState === 'complete' && "+deployed+`.join() === "payments/prod #2,payments/staging #1,payments/prod #1"`)
	tb.do("opening the menu of a row", chromedp.Evaluate[chromedp.Void](`document.querySelector(".l-dep .row[id] details").open = true`))
	tb.click(".l-dep details[open] a[href*='stack=payments%2Fprod']")
	tb.wait("the stack is listed", "document.readyState === 'complete' && "+deployed+`.join() === "payments/prod #2,payments/prod #1"`)
	tb.open(path + "?q=web/prod-u")
	tb.wait("the list is filtered by text", "document.readyState === 'complete' && "+deployed+`.join() === "web/prod-us #1"`)
	tb.open(path)
	tb.click(".chips a[href*='status=bad']")
	tb.wait("failures are listed with their cause", "document.readyState === 'complete' && "+deployed+`.join() === "payments/prod #1" && document.querySelector(".l-dep .say").innerText.startsWith("value could not be created")`)
	tb.check()
}
