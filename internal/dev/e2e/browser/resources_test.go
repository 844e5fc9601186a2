package browser

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"workflowagent/internal/dev/consoletest"
)

// shop is a stack with resources of many types, on one of which its last update failed.
func shop(t *testing.T, s *consoletest.Server) (of func(kind, name string) string) {
	t.Helper()
	s.Stack("network", "eu-west-1")
	s.Stack("payments", "prod")
	of = func(kind, name string) string { return "urn:pulumi:prod::payments::" + kind + "::" + name }
	root, part := of("pulumi:pulumi:Stack", "payments-prod"), of("acme:index:Charges", "charges")
	const queue = "aws:sqs/queue:Queue"
	resources := func(now string) []any {
		provider := of("pulumi:providers:aws", "default_7_4_0")
		secret := object{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "c2VjcmV0"}
		list := []any{
			object{"urn": root, "custom": false, "type": "pulumi:pulumi:Stack", "outputs": object{"endpoint": "https://pay.acme.example", "dbPassword": secret, "evil": hostile}},
			object{"urn": part, "custom": false, "type": "acme:index:Charges", "parent": root},
			object{"urn": provider, "custom": true, "type": "pulumi:providers:aws", "id": "p", "parent": root},
			object{"urn": of("pulumi:pulumi:StackReference", "net"), "custom": true, "type": "pulumi:pulumi:StackReference", "id": "acme/network/eu-west-1", "parent": root, "inputs": object{"name": "acme/network/eu-west-1"}},
		}
		add := func(kind, name, parent string, more object) {
			one := object{"urn": of(kind, name), "custom": true, "type": kind, "id": name + "-0f3a99c1d7", "parent": parent, "provider": provider + "::p", "created": now, "modified": now}
			maps.Copy(one, more)
			list = append(list, one)
		}
		for _, name := range []string{"charge-queue-dead", "ledger-in-dead", "refunds"} {
			add(queue, name, part, object{"protect": name == "refunds"})
		}
		add(queue, "ledger-in", part, object{
			"dependencies": []string{of(queue, "ledger-in-dead"), of("pulumi:pulumi:StackReference", "net")},
			"id":           "https://sqs.eu-west-1.amazonaws.com/402940294029/ledger-in", "inputs": object{"delaySeconds": 0, "name": "ledger-in"}, "outputs": object{
				"arn": "arn:aws:sqs:eu-west-1:402940294029:ledger-in", "delaySeconds": 0, "kmsMasterKeyId": secret, "maxMessageSize": 262144, "messageRetentionSeconds": 345600, "name": "ledger-in",
				"redrivePolicy": `{ "deadLetterTargetArn": "arn:aws:sqs:eu-west-1:402940294029:ledger-in-dead", "maxReceiveCount": 5, "why": "` + hostile + `" }`,
				"tags":          object{"owner": "payments"}, "visibilityTimeoutSeconds": 30,
			},
		})
		add(queue, hostile, of(queue, "ledger-in"), object{"taint": true, "external": true, "dependencies": []string{of(queue, "ledger-in")}})
		for kind, n := range map[string]int{
			"aws:iam/rolePolicy:RolePolicy": 38, "aws:iam/role:Role": 29, "aws:lambda/function:Function": 21, "aws:cloudwatch/metricAlarm:MetricAlarm": 14, "kubernetes:apps/v1:Deployment": 9,
			"aws:rds/clusterInstance:ClusterInstance": 6, "random:index/randomPassword:RandomPassword": 5,
		} {
			for i := range n {
				add(kind, fmt.Sprintf("thing-of-the-shop-%d", i), part, nil)
			}
		}
		return list
	}
	step := func(seq int, kind, op, name string) object {
		return object{"sequence": seq, "timestamp": time.Now().Unix(), kind: object{"metadata": object{"op": op, "urn": of(queue, name), "type": queue}}}
	}
	for _, run := range []struct {
		status string
		events []any
	}{
		{"succeeded", []any{step(0, "resourcePreEvent", "create", "ledger-in"), step(1, "resOutputsEvent", "create", "ledger-in")}},
		{"failed", []any{step(0, "resourcePreEvent", "create", "charge-queue"), step(1, "resOpFailedEvent", "create", "charge-queue")}},
	} {
		path, token := s.BeginUpdate(consoletest.Update{Stack: "payments/prod", Kind: "update"})
		state := object{"manifest": object{"time": "2026-01-01T00:00:00Z", "magic": "", "version": "v3.0.0"}, "resources": resources(time.Now().Format(time.RFC3339Nano))}
		for _, call := range []struct {
			method, path string
			body         object
		}{
			{http.MethodPatch, "/checkpoint", object{"version": 3, "deployment": state}}, {http.MethodPost, "/events/batch", object{"events": run.events}}, {http.MethodPost, "/complete", object{"status": run.status}},
		} {
			if status, answer := s.APIAs(token, call.method, path+call.path, call.body, nil); status >= http.StatusMultipleChoices {
				t.Fatalf("%s: status %d: %s", call.path, status, answer)
			}
		}
	}
	return of
}

// TestResources uses the resources of a stack: by type, as a tree, and one of them.
func TestResources(t *testing.T) {
	s := consoletest.New(t)
	of := shop(t, s)
	tb := newTab(t, s.URL)
	signIn(tb, s.Token)
	const page = "/acme/payments/prod/resources"
	ledger := page + "?urn=" + url.QueryEscape(of("aws:sqs/queue:Queue", "ledger-in"))
	tb.looks(ledger, "resources")
	tb.looks(page+"?view=tree&part=neighbours&urn="+url.QueryEscape(of("aws:sqs/queue:Queue", "ledger-in")), "tree")
	tb.looks(page, "stack")
	for name, value := range map[string]string{"env": "production", "owner": "team-payments", "tier": "1", "note": hostile} {
		s.API(http.MethodPost, "/api/stacks/acme/payments/prod/tags", object{"name": name, "value": value}, nil)
	}
	tb.looks("/acme/payments/prod", "overview")

	tb.window(page, "light", 1440, 900)
	if heights := evaluate[[]float64](tb, "[...document.querySelectorAll('.steps .res')].map((r) => r.getBoundingClientRect().height)"); len(heights) < 10 || slices.ContainsFunc(heights, func(h float64) bool { return h != 36 }) {
		t.Errorf("the rows are %v high", heights)
	}
	tb.click(".steps a[href*='type=aws%3Asqs']")
	tb.wait("the queues are listed", "[...document.querySelectorAll('.steps .d1 .nm')].some((e) => e.innerText.includes('ledger-in'))")
	tb.click(".steps .d1 a[href*='charge-queue&'], .steps .d1 a[href$='charge-queue#res']")
	tb.wait("the resource that failed is explained", "document.querySelector('#res').innerText.includes('the last update failed on it')")

	// The window does not scroll, also with words for screen readers below its end.
	tb.window(page+"?view=tree&part=neighbours&urn="+url.QueryEscape(of("aws:sqs/queue:Queue", "ledger-in")), "light", 1440, 600)
	if over := evaluate[int](tb, "document.documentElement.scrollHeight - innerHeight"); over > 0 {
		t.Errorf("the page is %d px higher than the window", over)
	}

	// A tree folds below its resources.
	tb.window(page+"?view=tree", "light", 1440, 900)
	tb.wait("the tree has icons that fold", "document.querySelector('.steps [data-parent] > button svg use')?.getAttribute('href').endsWith('#down')")
	tb.click(".steps .d1[data-parent] > button")
	tb.wait("the resources below are folded", "document.querySelector('.steps .d1[data-parent] > button use').getAttribute('href').endsWith('#right') && document.querySelectorAll('.steps .d2[hidden]').length > 50")
	tb.check()

	// The list of a page keeps the selected resource in view.
	tb.window(page+"?view=tree&urn="+url.QueryEscape(of("random:index/randomPassword:RandomPassword", "thing-of-the-shop-4"))+"#res", "light", 1440, 900)
	tb.wait("the selected row is in the list", "((r, n) => r.top > n.top && r.bottom < n.bottom)(document.querySelector('.steps .res[aria-current]').getBoundingClientRect(), document.querySelector('.steps').getBoundingClientRect())")

	// A long value opens.
	tb.window(ledger, "light", 1440, 900)
	tb.do("opening a value", chromedp.Evaluate[chromedp.Void]("document.querySelector('.kv details summary').click()"))
	tb.wait("the value is open", "document.querySelector('.kv details[open] summary').offsetHeight > 30")
	tb.wait("values are copied", "document.querySelectorAll('.kv copy-text button').length > 5 && document.querySelectorAll('.pane copy-as button').length === 2")

	// The page follows the stack: its next update succeeds.
	tb.wait("the resource failed", "[...document.querySelectorAll('.steps .t')].some((e) => e.innerText === 'failed')")
	s.RunUpdate(consoletest.Update{Stack: "payments/prod", Kind: "update", Result: "succeeded"})
	tb.wait("no resource is marked", "![...document.querySelectorAll('.steps .t')].some((e) => e.innerText === 'failed')")
}

// TestResourcesAsDrawn compares the resources of a stack with their drawing.
func TestResourcesAsDrawn(t *testing.T) {
	s := consoletest.New(t)
	of := shop(t, s)
	drawn, built := newTab(t, site(t)), newTab(t, s.URL)
	drawn.ignore("favicon")
	signIn(built, s.Token)
	for _, width := range []int64{1440, phone} {
		drawn.window("/drawings/resources.html", "light", width, 900)
		built.window("/acme/payments/prod/resources?urn="+url.QueryEscape(of("aws:sqs/queue:Queue", "ledger-in")), "light", width, 900)
		for _, selector := range []string{
			".filters .inp", ".chip[aria-current]", ".split.tree", ".split.tree .steps", ".steps .d0 .res", ".steps .d1 .res", ".steps .res[aria-current]", ".steps .res .t", ".steps .nm > *",
			".pane", ".pane .sec h2", ".pane .sec .count", ".pane .btn.small", ".facts", ".facts dt", ".facts dd:not(.mono)", ".facts .lnk", ".tabs.gap", ".tabs.gap a[aria-current]", ".tabs.gap a:not([aria-current])",
			".kv.wide2", ".kv.wide2 dt", ".kv.wide2 dd span.mono, .kv.wide2 dd.mono",
		} {
			script := "(" + styles + ")(" + quote(selector) + ")"
			if want, got := evaluate[string](drawn, script), evaluate[string](built, script); want != got || got == "missing" {
				t.Errorf("%d px: %s is\n\t%s\nand in the drawing\n\t%s", width, selector, got, want)
			}
		}
	}
}
