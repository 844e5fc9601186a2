package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"workflowagent/internal/dev/consoletest"
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
		"evil": hostile, "file": "gnp.\u202eexe", "script": "javascript:alert(1)", "ports": object{"http": 80, "https": []int{443, 8443}},
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
	w.RunUpdate(consoletest.Update{Stack: "web/a-stack-with-a-name-that-is-as-long-as-names-of-stacks-are-allowed-to-be-in-this-product-1234567890", Kind: "update", Message: hostile + "\u202e", Changes: object{"replace": 1}, Result: "failed"})
	w.RunUpdate(consoletest.Update{Stack: "network/eu-west-1", Kind: "refresh", DryRun: true, Changes: object{"update": 2, "delete": 1, "same": 4}, Result: "succeeded"})
	tb.open("/acme")
	for _, stack := range []string{"payments/prod", "payments/prod-dr"} {
		w.fail(w.deploy(stack), stack)
	}
	w.steps(w.deploy("web/prod-ap"), 1)
	w.BeginUpdate(consoletest.Update{Stack: "web/staging", Kind: "update", Message: "by hand"})
	w.API(http.MethodPost, "/api/stacks/acme/payments/prod/deployments", object{"operation": "preview"}, nil)
	w.API(http.MethodPost, "/api/orgs/acme/agent-pools", object{"name": "gpu"}, nil)
	w.API(http.MethodPost, "/api/orgs/acme/invites/link", object{"role": "member", "email": hostile}, nil)
	w.API(http.MethodPut, "/api/stacks/acme/payments/prod/deployments/settings", object{"sourceContext": object{"git": object{"repoUrl": "https://github.com/acme/payments.git", "branch": "refs/heads/main", "repoDir": "infra"}}}, nil)
	w.API(http.MethodPost, "/api/stacks/acme/payments/prod/deployments/drift/schedules", object{"scheduleCron": "0 3 * * *"}, nil)
	tb.looks("/acme", "home")
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
	tb.looks("/acme/payments/prod", "drift")
	w.fail(w.deploy("payments/prod"), "payments/prod")
	tb.looks("/acme/payments/prod", "failed")
}
