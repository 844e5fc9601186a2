package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

type object = map[string]any

// town is an organization with stacks in many states.
type town struct {
	*consoletest.Server
	t    *testing.T
	pool string
}

// deploy starts a deployment of a stack.
func (w *town) deploy(stack string) *consoletest.Job {
	w.t.Helper()
	project, name, _ := strings.Cut(stack, "/")
	return w.StartRequest(w.pool, project, name, object{
		"operation":        "update",
		"operationContext": object{"options": object{"skipInstallDependencies": true}},
		"sourceContext":    object{"git": object{"repoURL": "https://github.com/acme/payments", "branch": "refs/heads/main"}},
	})
}

// fail ends a deployment as a resource cannot be created.
func (w *town) fail(job *consoletest.Job, stack string) {
	w.t.Helper()
	var events []json.RawMessage
	for line := range strings.Lines(recording(w.t, "resource.jsonl")) {
		events = append(events, json.RawMessage(line))
	}
	w.RunUpdate(consoletest.Update{Access: job.Token, Stack: stack, Kind: "update", Message: "Add charge-queue " + hostile, Events: events, Result: "failed"})
	w.steps(job, 2)
	one := 1
	job.Step(2, workflow.StepRunning, nil)
	job.PrintLines(2, strings.Split(strings.TrimSuffix(recording(w.t, "resource.log"), "\n"), "\n")...)
	job.Step(2, workflow.StepFailed, &one)
	job.Finish(protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode, ExitCode: &one})
}

func (w *town) steps(job *consoletest.Job, n int) {
	zero := 0
	for step := range n {
		job.Step(step, workflow.StepRunning, nil)
		job.Step(step, workflow.StepSucceeded, &zero)
	}
}

func newTown(t *testing.T) *town {
	t.Helper()
	w := &town{Server: consoletest.With(t, nil, "deployments", "references"), t: t}
	return w
}

// state is a state of a stack whose outputs are hostile, with resources of some types, and that reads other stacks.
func state(project, name string, reads ...string) object {
	urn := func(kind, resource string) string {
		return fmt.Sprintf("urn:pulumi:%s::%s::%s::%s", name, project, kind, resource)
	}
	root := urn("pulumi:pulumi:Stack", project+"-"+name)
	secret := object{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "c2VjcmV0"}
	resources := []object{{"urn": root, "custom": false, "type": "pulumi:pulumi:Stack", "outputs": object{
		"endpoint": "https://pay.acme.example", "dbPassword": secret, "queueArn": "arn:aws:sqs:eu-west-1:402911223344:charges-of-a-long-name", "release": "2026.11.3",
		"outputOf" + strings.Repeat("ALongName", 9): "value", "evil": hostile, "file": "gnp.\u202eexe", "script": "javascript:alert(1)", "ports": object{"http": 80, "https": []int{443, 8443}},
		"readme": "**Payments, production.** Takes card payments.\n\n" + hostile + "\n\n[Runbook](https://acme.example/runbook)",
	}}}
	for kind, n := range map[string]int{"aws:iam/rolePolicy:RolePolicy": 12, "aws:lambda/function:Function": 7, "random:index/randomPassword:RandomPassword": 2, "kubernetes:apps/v1:Deployment": 3} {
		for i := range n {
			resources = append(resources, object{"urn": urn(kind, fmt.Sprintf("r%d", i)), "custom": true, "type": kind, "id": "x", "parent": root})
		}
	}
	for i, read := range reads {
		resources = append(resources, object{"urn": urn("pulumi:pulumi:StackReference", fmt.Sprintf("ref%d", i)), "custom": true, "type": "pulumi:pulumi:StackReference", "id": read, "parent": root, "inputs": object{"name": read}})
	}
	return object{"manifest": object{"time": "2026-01-01T00:00:00Z", "magic": "", "version": "v3.0.0"}, "resources": resources}
}

// window opens a path in a window of a size, and waits until it is loaded.
func (tb *tab) window(path, scheme string, width, height int64) {
	tb.t.Helper()
	tb.scheme(scheme, width)
	tb.do("resizing the window", chromedp.EmulateViewport(width, height))
	tb.open(path)
	tb.wait(path+" is loaded", "document.readyState === 'complete' && document.querySelector('main')")
}

// looks checks a page in both schemes, on a desktop and on a phone, and takes pictures.
func (tb *tab) looks(path, name string) {
	tb.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		tb.window(path, scheme, 1440, 900)
		tb.axe(path + " " + scheme)
		tb.shot(name + "-" + scheme)
	}
	tb.window(path, "light", 390, 844)
	tb.axe(path + " phone")
	tb.shot(name + "-phone")
	tb.scheme("light", 320)
	tb.fits(path)
	tb.check()
}

// rows are the heights of the rows of lists.
func (tb *tab) rows() []float64 {
	return evaluate[[]float64](tb, "[...document.querySelectorAll('main .list:not(.l-type) .row')].map((r) => r.getBoundingClientRect().height)")
}

// measured fails the test for rows of lists that are lower or, on a desktop, higher than a height.
func (tb *tab) measured(height float64) {
	tb.t.Helper()
	rows := tb.rows()
	if len(rows) == 0 {
		tb.t.Error("the page has no rows")
	}
	for i, h := range rows {
		if h < height || height < 44 && h > height {
			tb.t.Errorf("row %d has a height of %.1f px, want %.0f", i, h, height)
		}
	}
}

// top fails the test if an element begins below a position.
func (tb *tab) top(selector string, most float64) {
	tb.t.Helper()
	if top := evaluate[float64](tb, "document.querySelector("+quote(selector)+").getBoundingClientRect().top"); top > most {
		tb.t.Errorf("%s begins at %.0f px, want at most %.0f", selector, top, most)
	}
}

// TestHome opens the home of an organization with something in each of its parts.
func TestHome(t *testing.T) {
	w := newTown(t)
	tb := newTab(t, w.URL)
	signIn(tb, w.Token)
	tb.looks("/acme", "first-run")

	for _, name := range []string{"payments/prod", "payments/prod-dr", "network/eu-west-1", "web/staging", "web/prod-ap", "web/a-stack-with-a-name-that-is-as-long-as-names-of-stacks-are-allowed-to-be-in-this-product-1234567890"} {
		project, stack, _ := strings.Cut(name, "/")
		w.Stack(project, stack)
	}
	w.pool = w.Pool()
	w.RunUpdate(consoletest.Update{Stack: "web/staging", Kind: "update", Message: "Move checkout to the new price service", Changes: object{"create": 4, "update": 6, "delete": 1}, Result: "succeeded"})
	tb.looks("/acme", "first-run-2")
	tb.wait("commands have buttons that copy them, also after the page has changed", "document.querySelectorAll('.cmd').length > 0 && document.querySelectorAll('.cmd').length === document.querySelectorAll('.cmd .btn').length")
	if got := evaluate[string](tb, "[...document.querySelectorAll('.start > li')].map((l) => l.className).join()"); got != "done,now," {
		t.Errorf("the steps are %q", got)
	}
	w.RunUpdate(consoletest.Update{Stack: "web/a-stack-with-a-name-that-is-as-long-as-names-of-stacks-are-allowed-to-be-in-this-product-1234567890", Kind: "update", Message: hostile + "\u202e", Changes: object{"replace": 1}, Result: "failed"})
	w.RunUpdate(consoletest.Update{Stack: "network/eu-west-1", Kind: "refresh", DryRun: true, Changes: object{"update": 2, "delete": 1, "same": 4}, Result: "succeeded"})
	tb.window("/acme", "light", 1440, 900)
	for _, stack := range []string{"payments/prod", "payments/prod-dr"} {
		w.fail(w.deploy(stack), stack)
	}
	tb.wait("the open page shows the failures", "document.querySelector('.l-need')?.innerText.includes('The same error as payments/prod')")
	w.steps(w.deploy("web/prod-ap"), 1)
	w.BeginUpdate(consoletest.Update{Stack: "web/staging", Kind: "update", Message: "by hand"})
	w.API(http.MethodPost, "/api/stacks/acme/payments/prod/deployments", object{"operation": "preview"}, nil)
	w.API(http.MethodPost, "/api/orgs/acme/agent-pools", object{"name": "gpu"}, nil)
	w.API(http.MethodPost, "/api/orgs/acme/invites/link", object{"role": "member", "email": hostile}, nil)
	w.API(http.MethodPut, "/api/stacks/acme/payments/prod/deployments/settings", object{"sourceContext": object{"git": object{"repoUrl": "https://github.com/acme/payments.git", "branch": "refs/heads/main", "repoDir": "infra"}}}, nil)
	w.API(http.MethodPost, "/api/stacks/acme/payments/prod/deployments/drift/schedules", object{"scheduleCron": "0 3 * * *"}, nil)
	tb.looks("/acme", "home")
	tb.measured(44)
	tb.window("/acme", "light", 1440, 900)
	tb.measured(36)
	for selector, most := range map[string]float64{".l-need .row": 160, ".l-need .row .btn": 160, ".bars": 160} {
		tb.top(selector, most)
	}
	texts := evaluate[string](tb, "[...document.querySelectorAll('.l-need .say, .l-rec .cut')].map((e) => e.textContent).join('\\n')")
	for _, want := range []string{"value could not be created: creating the file's directory", "2 changed and 1 deleted outside Pulumi", "Not accepted yet by " + hostile, "failed to update " + hostile} {
		if !strings.Contains(texts, want) {
			t.Errorf("the page lacks %q: %s", want, texts)
		}
	}
	w.activity(tb)
}

// activity opens the activity of the organization, with one click, and changes something while it is open.
func (w *town) activity(tb *tab) {
	tb.t.Helper()
	tb.looks("/acme/-/activity/calendar", "calendar")
	tb.looks("/acme/-/activity", "activity")
	tb.window("/acme", "light", 1440, 900)
	tb.click(".rail .nav a[href='/acme/-/activity']")
	tb.wait("the activity is open", "document.querySelector('.l-act .row time')")
	tb.measured(36)
	const texts = "[...document.querySelectorAll('.l-act .say')].map((e) => e.textContent).join('\\n')"
	before := evaluate[string](tb, texts)
	for _, want := range []string{"failed to update " + hostile, "began to update", "created a schedule"} {
		if !strings.Contains(strings.Join(strings.Fields(before), " "), want) {
			tb.t.Errorf("the activity lacks %q: %s", want, before)
		}
	}
	w.RunUpdate(consoletest.Update{Stack: "network/eu-west-1", Kind: "update", Message: "While it is open", Result: "succeeded"})
	tb.wait("the open page counts the update", "document.querySelector('#activity-new')?.textContent.includes('1 new')")
	if now := evaluate[string](tb, texts); now != before {
		tb.t.Errorf("the rows have changed: %s, before %s", now, before)
	}
	tb.click("#activity-new a")
	tb.wait("the update is in the list", "document.querySelector('.l-act .say')?.textContent.includes('While it is open')")
}

// TestStack opens the page of a stack in several states.
func TestStack(t *testing.T) {
	w := newTown(t)
	for _, name := range []string{"payments/prod", "network/eu-west-1", "platform/cluster-a", "identity/prod", "web/prod-eu", "data-warehouse/prod"} {
		project, stack, _ := strings.Cut(name, "/")
		w.Stack(project, stack)
	}
	w.pool = w.Pool()
	tb := newTab(t, w.URL)
	signIn(tb, w.Token)
	tb.looks("/acme/payments/prod", "new")

	for _, name := range []string{"network/eu-west-1", "platform/cluster-a", "identity/prod"} {
		project, stack, _ := strings.Cut(name, "/")
		w.RunUpdate(consoletest.Update{Stack: name, Kind: "update", Message: "Begin", State: state(project, stack), Result: "succeeded"})
	}
	for _, name := range []string{"web/prod-eu", "data-warehouse/prod"} {
		project, stack, _ := strings.Cut(name, "/")
		w.RunUpdate(consoletest.Update{Stack: name, Kind: "update", Message: "Begin", State: state(project, stack, "acme/payments/prod"), Result: "succeeded"})
	}
	w.RunUpdate(consoletest.Update{
		Stack: "payments/prod", Kind: "update", Message: "Move ledger reads " + hostile, Changes: object{"create": 1, "update": 5, "replace": 1}, Result: "succeeded",
		State: state("payments", "prod", "acme/network/eu-west-1", "acme/platform/cluster-a", "acme/identity/prod"),
	})
	for name, value := range map[string]string{"owner": "payments", "env": "prod", "note": hostile} {
		w.API(http.MethodPost, "/api/stacks/acme/payments/prod/tags", map[string]string{"name": name, "value": value}, nil)
	}
	w.API(http.MethodPut, "/api/stacks/acme/payments/prod/deployments/settings", object{"sourceContext": object{"git": object{"repoUrl": "https://github.com/acme/payments.git", "branch": "refs/heads/main", "repoDir": "infra"}}}, nil)
	w.RunUpdate(consoletest.Update{Stack: "payments/prod", Kind: "refresh", DryRun: true, Changes: object{"update": 2, "delete": 1, "same": 4}, Result: "succeeded"})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must.OK(t, harness.Until(ctx, func() (bool, error) {
		var found object
		w.API(http.MethodGet, "/api/stacks/acme/payments/prod/downstreamreferences", nil, &found)
		list, _ := found["referencedStacks"].([]any)
		return len(list) == 2, nil
	}))
	tb.looks("/acme/payments/prod", "drift")
	if dots := evaluate[string](tb, "[...document.querySelectorAll('.graph circle')].map((c) => c.getAttribute('class')).join()"); dots != "doto,doto,doto,doto,doto,dotd" {
		t.Errorf("the graph shows the states %s", dots)
	}
	tb.window("/acme/payments/prod", "light", 1440, 900)
	tb.click(".starb")
	tb.wait("the star is set", "document.querySelector('.starb').getAttribute('aria-pressed') === 'true'")
	tb.open("/acme/payments/prod")
	tb.wait("the star is stored", loaded+"document.querySelector('.starb').getAttribute('aria-pressed') === 'true'")
	w.fail(w.deploy("payments/prod"), "payments/prod")
	tb.wait("the open page shows the cause", "document.querySelector('.note.n-bad')?.innerText.startsWith('value could not be created:')")
	tb.looks("/acme/payments/prod", "failed")
	tb.measured(44)
	tb.window("/acme/payments/prod", "light", 1440, 900)
	tb.measured(36)
	tb.top(".note.n-bad .btn", 160)
	tb.wait("the outputs have buttons that copy them", "document.querySelector('[aria-label=\"Copy queueArn\"]') && document.querySelector('[aria-label=\"Copy the command that shows dbPassword\"]')")
	outputs := evaluate[map[string]string](tb, `Object.fromEntries([...document.querySelectorAll("section[aria-labelledby=h-out] dt")].map((dt) => [dt.innerText, dt.nextElementSibling.querySelector("span:not(.hide)").textContent]))`)
	for name, want := range map[string]string{
		"dbPassword": "••••••••", "evil": hostile, "file": "gnp.\ufffdexe", "script": "javascript:alert(1)", "queueArn": "arn:aws:sqs:eu-west-1:402911223344:charges-of-a-long-name",
	} {
		if outputs[name] != want {
			t.Errorf("the output %s is %q, want %q", name, outputs[name], want)
		}
	}
	if n := evaluate[int](tb, "document.querySelectorAll('main img, main script, main a[href^=javascript]').length"); n > 0 {
		t.Errorf("the page has %d elements of its users", n)
	}
}
