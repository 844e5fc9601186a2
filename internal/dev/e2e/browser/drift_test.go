package browser

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// drifted are the events of a detection: a resource of each kind, and one with hostile texts.
func drifted(t *testing.T) (events []json.RawMessage) {
	t.Helper()
	add := func(op, kind, name string, old, found, detailed object) {
		meta := object{
			"op": op, "urn": "urn:pulumi:eu-west-1::network::" + kind + "::" + name, "type": kind, "detailedDiff": detailed, "old": object{"inputs": old, "outputs": old},
		}
		if found != nil {
			meta["new"] = object{"inputs": old, "outputs": found}
		}
		events = append(events, must.Get(json.Marshal(object{"sequence": len(events), "timestamp": 1, "resOutputsEvent": object{"metadata": meta, "planning": true}}))(t))
	}
	kind := func(name string) object { return object{"diffKind": name} }
	rule := object{"protocol": "tcp", "fromPort": 22, "toPort": 22, "self": false, "cidrBlocks": []string{"0.0.0.0/0"}}
	add("update", "aws:ec2/securityGroup:SecurityGroup", "public-web",
		object{"ingress": []any{object{"cidrBlocks": []string{"10.0.0.0/8"}}}, "tags": object{"owner": "network"}},
		object{"ingress": []any{object{"cidrBlocks": []string{"0.0.0.0/0"}}, rule}, "tags": object{}},
		object{"ingress[0].cidrBlocks[0]": kind("update"), "ingress[1]": kind("add"), "tags.owner": kind("delete")})
	add("update", "aws:ec2/securityGroup:SecurityGroup", "nodes", object{"description": "nodes of cluster-a"}, object{"description": "temp debug"}, object{"description": kind("update-replace")})
	add("delete", "aws:ec2/route:Route", "nat-route", object{"destinationCidrBlock": "0.0.0.0/0", "natGatewayId": "nat-0c12"}, nil, nil)
	add("delete", "pkg:index:Thing", "a-name-as-long-as-names-can-be-"+strings.Repeat("x", 80)+hostile, object{hostile: hostile}, nil, nil)
	return events
}

// TestDrift puts back what drifted, from the page and the dialog that it opens, and shows the result in the open page.
func TestDrift(t *testing.T) {
	w := newTown(t)
	w.Stack("network", "eu-west-1")
	w.pool = w.Pool()
	const page, api = "/acme/network/eu-west-1/drift", "/api/stacks/acme/network/eu-west-1"
	w.RunUpdate(consoletest.Update{Stack: "network/eu-west-1", Kind: "update", Message: "Begin", State: state("network", "eu-west-1"), Result: "succeeded"})
	tb := newTab(t, w.URL)
	signIn(tb, w.Token)
	tb.looks(page, "unchecked")

	w.API(http.MethodPut, api+"/deployments/settings", object{"sourceContext": object{"git": object{"repoUrl": "https://github.com/acme/network.git", "branch": "refs/heads/main"}}}, nil)
	w.API(http.MethodPost, api+"/deployments/drift/schedules", object{"scheduleCron": "0 3 * * *"}, nil)
	w.RunUpdate(consoletest.Update{Stack: "network/eu-west-1", Kind: "refresh", DryRun: true, Changes: object{"same": 4}, Result: "succeeded"})
	w.RunUpdate(consoletest.Update{Stack: "network/eu-west-1", Kind: "refresh", DryRun: true, Result: "failed"})
	detection := w.StartOperation(w.pool, "network", "eu-west-1", workflow.OperationDetectDrift)
	w.RunUpdate(consoletest.Update{Access: detection.Token, Stack: "network/eu-west-1", Kind: "refresh", DryRun: true, Events: drifted(t), Changes: object{"update": 2, "delete": 2, "same": 90}, Result: "succeeded"})
	exit := 7
	detection.Finish(protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode, ExitCode: &exit})
	tb.looks(page, "found")
	tb.window(page, "light", 1440, 900)
	tb.top(".note.n-warn .btn", 160)
	if n := evaluate[int](tb, "document.querySelectorAll('main img, main script').length"); n > 0 {
		t.Errorf("the page has %d elements of its users", n)
	}

	tb.click(".note a[href$='operation=refresh']")
	tb.wait("the dialog says what it accepts", "document.querySelector('dialog')?.innerText.includes('A refresh changes no resource.')")
	tb.shot("accept")
	tb.click("dialog [data-close]")
	tb.wait("the dialog is closed", "!document.querySelector('dialog')")
	tb.click(".note a[href$='operation=remediate-drift']")
	tb.wait("the button waits for the name", "document.querySelector('dialog [data-typed]')?.disabled && document.querySelector('dialog').innerText.includes('1 resource is replaced: nodes.')")
	tb.shot("put-back")
	tb.axe("the dialog that puts back")
	tb.fill("dialog [name=confirm]", "eu-west-1")
	tb.click("dialog [data-typed]")
	tb.wait("the deployment is open", "location.pathname.endsWith('/deployments/2')")

	tb.open(page)
	job := w.Claim(w.pool, "/acme/network/eu-west-1/deployments/2")
	tb.wait("the open page says that it is put back", "document.querySelector('.mini-l')?.innerText.includes('Putting back') && document.querySelectorAll('.note.n-warn button:disabled').length === 2")
	tb.shot("running")
	w.RunUpdate(consoletest.Update{Access: job.Token, Stack: "network/eu-west-1", Kind: "update", State: state("network", "eu-west-1"), Changes: object{"update": 1, "replace": 1, "create": 2}, Result: "succeeded"})
	job.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded})
	tb.wait("the open page shows no drift", "document.querySelector('.empty h2')?.innerText === 'No drift' && !document.querySelector('.note.n-warn') && document.querySelector('.st-ok')")
	tb.looks(page, "none")
}
