package drift_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

type m = map[string]any

// hostile is text that must stay text, with a control that changes the order of what follows.
const hostile = "<img src=x onerror=alert(1)>\u202egnp"

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// fixture is a server with the stack web/prod, whose program is known.
type fixture struct {
	*consoletest.Server
	t       *testing.T
	browser *consoletest.Browser
	pool    string
}

const (
	stackPath = "/acme/web/prod"
	prefix    = "urn:pulumi:prod::web::"
	bucket    = prefix + "aws:s3/bucket:Bucket::logs"
	route     = prefix + "aws:ec2/route:Route::nat-route"
	group     = prefix + "aws:ec2/securityGroup:SecurityGroup::nodes"
)

func newFixture(t *testing.T, settings map[string]string) *fixture {
	t.Helper()
	f := &fixture{Server: consoletest.With(t, settings), t: t}
	f.Stack("web", "prod")
	f.browser, f.pool = f.SignIn(), f.Pool()
	f.API(http.MethodPost, "/api/stacks"+stackPath+"/import", m{"version": 3, "deployment": declared()}, nil)
	return f
}

// configure stores where the program is.
func (f *fixture) configure() {
	f.t.Helper()
	f.API(http.MethodPost, "/api/stacks"+stackPath+"/deployments/settings", m{"sourceContext": m{"git": m{"repoUrl": "https://git.example.com/web.git", "branch": "main"}}}, nil)
}

// stateOf returns a state with resources besides that of the stack, from their URNs to the members in which they differ.
func stateOf(resources map[string]m) m {
	list := []any{m{"urn": prefix + "pulumi:pulumi:Stack::web-prod", "type": "pulumi:pulumi:Stack"}}
	for _, urn := range []string{bucket, route, group} {
		if inputs := resources[urn]; inputs != nil {
			r := m{"urn": urn, "type": strings.Split(urn, "::")[2], "custom": true, "id": "id", "inputs": inputs, "outputs": inputs}
			if urn == bucket {
				r["dependencies"] = []string{group}
			}
			list = append(list, r)
		}
	}
	return m{"manifest": m{"time": "2026-01-02T03:04:05Z", "magic": "x", "version": "v3.0.0"}, "resources": list}
}

// declared is the state after an update, and found the one after a refresh.
func declared() m {
	return stateOf(map[string]m{bucket: {"acl": "private"}, route: {"cidr": "0.0.0.0/0"}, group: {"description": "nodes"}})
}

func found() m {
	return stateOf(map[string]m{bucket: {"acl": "public-read"}, group: {"description": "temp debug"}})
}

// step is the event of a refresh about a resource, whose new state is nil if it was deleted.
func step(t *testing.T, sequence int, urn string, old, new, detailed m) json.RawMessage {
	t.Helper()
	meta := m{"op": "update", "urn": urn, "type": strings.Split(urn, "::")[2], "old": m{"inputs": old, "outputs": old}, "detailedDiff": detailed}
	if new == nil {
		meta["op"] = "delete"
	} else {
		meta["new"] = m{"inputs": old, "outputs": new} // the provider leaves the inputs as they are
	}
	return must.Get(json.Marshal(m{"sequence": sequence, "timestamp": 1, "resOutputsEvent": m{"metadata": meta, "planning": true}}))(t)
}

// drift are the events of a detection that finds what [found] contains.
func drift(t *testing.T) []json.RawMessage {
	t.Helper()
	return []json.RawMessage{
		step(t, 0, bucket, m{"acl": "private"}, m{"acl": "public-read"}, m{"acl": m{"diffKind": "update"}}),
		step(t, 1, route, m{"cidr": "0.0.0.0/0"}, nil, nil),
		step(t, 2, group, m{"description": "nodes"}, m{"description": "temp debug"}, m{"description": m{"diffKind": "update-replace"}}),
	}
}

// detect runs a deployment that finds the drift of events.
func (f *fixture) detect(events []json.RawMessage, changes m) {
	f.t.Helper()
	job := f.StartOperation(f.pool, "web", "prod", workflow.OperationDetectDrift)
	f.RunUpdate(consoletest.Update{Access: job.Token, Stack: "web/prod", Kind: "refresh", DryRun: true, Events: events, Changes: changes, Result: "succeeded"})
	exit := 1
	job.Finish(protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode, ExitCode: &exit})
}

// decide starts an operation as the form does, and returns its job.
func (f *fixture) decide(operation workflow.Operation, confirmed string) *consoletest.Job {
	f.t.Helper()
	p := f.browser.Post(stackPath+"/deploy", url.Values{"operation": {string(operation)}, "confirm": {confirmed}})
	if p.Status != http.StatusSeeOther {
		f.t.Fatalf("starting %s: status %d: %s", operation, p.Status, p.Body)
	}
	f.says("while the decision waits", stackPath+"/drift", "A deployment of the stack waits.", `disabled aria-describedby="drift-blocked"`)
	return f.Claim(f.pool, p.Location())
}

// says checks that the page, as text or else as HTML, contains texts.
func (f *fixture) says(when, path string, wants ...string) consoletest.Page {
	f.t.Helper()
	p := f.browser.Get(path)
	text := plain(p.Body)
	for _, want := range wants {
		if !strings.Contains(text, want) && !strings.Contains(p.Body, want) {
			f.t.Errorf("%s, %s does not say %q: %s", when, path, want, text)
		}
	}
	return p
}

var (
	tags   = regexp.MustCompile(`<[^>]*>`)
	spaces = regexp.MustCompile(`\s+`)
)

// plain returns the text of the content of a page.
func plain(page string) string {
	if at := strings.Index(page, "<main"); at >= 0 {
		page = page[at:]
	}
	return html.UnescapeString(spaces.ReplaceAllString(tags.ReplaceAllString(page, " "), " "))
}

// exported returns the values in the state of the stack.
func (f *fixture) exported() string {
	f.t.Helper()
	var state struct {
		Deployment struct {
			Resources []struct {
				URN    string
				Inputs m
			}
		}
	}
	f.API(http.MethodGet, "/api/stacks"+stackPath+"/export", nil, &state)
	var out []string
	for _, r := range state.Deployment.Resources {
		for name, value := range r.Inputs {
			out = append(out, name+"="+value.(string))
		}
	}
	return strings.Join(out, " ")
}

// postgres returns the settings of a server with a PostgreSQL database.
func postgres(t *testing.T) map[string]string {
	t.Helper()
	address := must.Get(url.Parse(storetest.PostgresDSN(t)))(t)
	password, _ := address.User.Password()
	file := filepath.Join(t.TempDir(), "password")
	must.OK(t, os.WriteFile(file, []byte(password), 0o600))
	address.User = url.User(address.User.Username())
	return map[string]string{"database": address.String(), "database_password_file": file}
}

// TestDecision finds drift, puts back what is declared, finds it again, and accepts what is there.
func TestDecision(t *testing.T) {
	for name, database := range map[string]func(t *testing.T) map[string]string{
		"sqlite":   func(*testing.T) map[string]string { return nil },
		"postgres": postgres,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, database(t))
			f.configure()
			const page = stackPath + "/drift"
			f.says("before a check", page, "Not checked yet", "on no schedule", "Check every night", `value="detect-drift"`)
			f.API(http.MethodPost, "/api/stacks"+stackPath+"/deployments/drift/schedules", m{"scheduleCron": "0 3 * * *"}, nil)

			counts := m{"update": 2, "delete": 1, "same": 1}
			f.detect(drift(t), counts)
			p := f.says("after drift was found", page,
				"drift: 2 changed, 1 deleted", "2 resources were changed and 1 was deleted outside Pulumi. Found", "by #1",
				"Deleted outside Pulumi 1", "nat-route aws:ec2/route:Route", "Putting back creates it again. Accepting removes it from the state.", `− cidr 0.0.0.0/0`,
				"Changed outside Pulumi 2, declared → found", `~ acl private → public-read`, "Putting back updates it in place.",
				"nodes aws:ec2/securityGroup:SecurityGroup put back replaces A property cannot change in place. 1 resource depends on it.",
				`description nodes → temp debug forces the replace`,
				"Runs every day at 03:00 UTC", "When found put nothing back", "Last checks 1 of 1 found drift", "drift found 2 changed, 1 deleted",
				`href="/acme/web/prod/deploy?operation=refresh"`, `href="/acme/web/prod/deploy?operation=remediate-drift"`, "Runs 2 Drift 3 Settings")
			if strings.Index(p.Body, ">nodes<") > strings.Index(p.Body, ">logs<") {
				t.Error("what must be replaced is not the first of what changed")
			}
			f.says("after drift was found", "/acme/-/stacks", "drift found")

			f.says("before putting back", stackPath+"/deploy?operation=remediate-drift",
				"Put back what is declared in web/prod", "An update restores what the program declares.", "1 resource is created again : nat-route.", "1 resource is replaced : nodes.",
				"1 resource is changed back : logs.", "Put back 3 resources", "Type prod to confirm")
			if p := f.browser.Post(stackPath+"/deploy", url.Values{"operation": {"remediate-drift"}}); p.Status != http.StatusUnprocessableEntity {
				t.Errorf("putting back with a replacement, without the name: status %d", p.Status)
			}
			job := f.decide(workflow.OperationRemediateDrift, "prod")
			f.says("while it is put back", page, "A deployment changes the stack now.", "Open #2", `disabled aria-describedby="drift-blocked"`)
			f.RunUpdate(consoletest.Update{Access: job.Token, Stack: "web/prod", Kind: "update", State: declared(), Changes: m{"update": 1, "create": 1, "replace": 1}, Result: "succeeded"})
			job.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded})
			p = f.says("after it was put back", page, "No drift", "An update has put back what is declared", "succeeded Put back what is declared", "Last checks 1 of 1 found drift")
			if p.Contains("Accept what is there") || strings.Contains(plain(p.Body), "Drift 3") {
				t.Errorf("after it was put back, the page offers a decision: %s", plain(p.Body))
			}
			if got := f.exported(); got != "acl=private cidr=0.0.0.0/0 description=nodes" {
				t.Errorf("after it was put back, the state has %s", got)
			}
			f.says("after it was put back", "/acme/-/stacks", "as declared")

			f.detect(drift(t), counts)
			f.says("before accepting", stackPath+"/deploy?operation=refresh",
				"Accept what is there in web/prod", "A refresh changes no resource.", "1 resource is removed from it : nat-route.", "2 resources are stored as they were found : nodes, logs.", "Type prod to confirm")
			if p := f.browser.Post(stackPath+"/deploy", url.Values{"operation": {"refresh"}}); p.Status != http.StatusUnprocessableEntity || !p.Contains("Type prod to confirm that resources are removed from the state") {
				t.Errorf("accepting a deletion, without the name: status %d: %s", p.Status, plain(p.Body))
			}
			job = f.decide(workflow.OperationRefresh, "prod")
			f.RunUpdate(consoletest.Update{Access: job.Token, Stack: "web/prod", Kind: "refresh", State: found(), Changes: counts, Result: "succeeded"})
			job.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded})
			f.says("after it was accepted", page, "No drift", "A refresh has written what was found to the state")
			if got := f.exported(); got != "acl=public-read description=temp debug" {
				t.Errorf("after it was accepted, the state has %s", got)
			}
			f.says("after it was accepted", "/acme/-/stacks", "as declared")
		})
	}
}

// TestConfirmation asks for the name of the stack only if something is deleted, replaced or unknown.
func TestConfirmation(t *testing.T) {
	f := newFixture(t, nil)
	f.configure()
	f.detect([]json.RawMessage{step(t, 0, bucket, m{"acl": "private"}, m{"acl": hostile}, m{"acl": m{"diffKind": "update"}})}, m{"update": 1})
	for _, operation := range []string{"refresh", "remediate-drift"} {
		if p := f.browser.Get(stackPath + "/deploy?operation=" + operation); p.Contains("to confirm") || !p.Contains("<strong>1 resource is ", ": logs.") {
			t.Errorf("%s of a change in place: %s", operation, plain(p.Body))
		}
	}
	job := f.decide(workflow.OperationRemediateDrift, "")
	f.RunUpdate(consoletest.Update{Access: job.Token, Stack: "web/prod", Kind: "update", State: declared(), Changes: m{"update": 1}, Result: "succeeded"})
	job.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded})
	if p := f.browser.Get(stackPath + "/deploy?operation=remediate-drift"); !p.Contains("does not know which resources", "Type <code>prod</code> to confirm") {
		t.Errorf("without drift: %s", plain(p.Body))
	}
	if p := f.browser.Get(stackPath + "/deploy?operation=refresh"); p.Contains("Accept what is there") || p.Contains("to confirm") {
		t.Errorf("a refresh without drift: %s", plain(p.Body))
	}
}

// TestCheckOnlyDetects checks that a check changes nothing, whatever the settings of the stack say.
func TestCheckOnlyDetects(t *testing.T) {
	f := newFixture(t, nil)
	f.configure()
	f.API(http.MethodPost, "/api/stacks"+stackPath+"/deployments/settings", m{"operationContext": m{"options": m{"remediateIfDriftDetected": true}}}, nil)
	_, button, _ := strings.Cut(f.browser.Get(stackPath+"/drift").Body, `action="`+stackPath+`/deploy"`)
	sent := url.Values{"operation": {"detect-drift"}}
	for _, field := range regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)"`).FindAllStringSubmatch(strings.SplitN(button, "</form>", 2)[0], -1) {
		sent.Set(field[1], field[2])
	}
	for _, form := range []url.Values{sent, {"operation": {"detect-drift"}}} {
		p := f.browser.Post(stackPath+"/deploy", form)
		job := f.Claim(f.pool, p.Location())
		remediates := must.Get(job.Definition(t.Context()))(t).Deployment.Options.RemediateIfDriftDetected
		if remediates != (len(form) == 1) { // the form itself keeps the option of the stack
			t.Errorf("the form %v makes a deployment that remediates: %t", form, remediates)
		}
		job.Finish(protocol.ResultRequest{Status: workflow.StatusSucceeded})
	}
	sent.Set("pool", "missing")
	if p := f.browser.Post(stackPath+"/deploy", sent); p.Status != http.StatusUnprocessableEntity || !p.Contains(`name="check" value="1"`) {
		t.Errorf("after an error, status %d, and the form forgets that it only checks: %s", p.Status, p.Body)
	}
}

// TestStates shows why a check or a decision is not possible, and that names and values stay text.
func TestStates(t *testing.T) {
	f := newFixture(t, nil)
	const page = stackPath + "/drift"
	f.says("without settings", page, "Not checked yet", "has no deployment settings", "Set up deployments", `disabled aria-describedby="check-blocked"`)
	f.API(http.MethodPost, "/api/stacks"+stackPath+"/deployments/settings", m{"operationContext": m{"preRunCommands": []string{"true"}}}, nil)
	f.says("without a source", page, "The settings do not say where the program is.")
	f.configure()

	job := f.StartOperation(f.pool, "web", "prod", workflow.OperationDetectDrift)
	f.says("during the first check", page, "A check runs.", "No result yet", "running Checking", "A check waits or runs.", "Open #1")
	exit := 1
	job.Step(1, workflow.StepRunning, nil)
	job.PrintLines(1, "error: credentials expired")
	job.Step(1, workflow.StepFailed, &exit)
	job.Finish(protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode, ExitCode: &exit})
	p := f.says("after a failed check", page, "credentials expired The last check, #1, failed 2", "Drift is not known", "failed Could not check:", "Open #1")
	if strings.Index(p.Body, "credentials expired") > strings.Index(p.Body, "Drift is not known") {
		t.Error("the cause is not the first of the page")
	}

	evil := prefix + "pkg:index:Thing::" + hostile
	event := step(t, 0, evil, m{hostile: hostile, "s": m{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "plaintext": "\"hunter2\""}}, nil, nil)
	f.RunUpdate(consoletest.Update{Stack: "web/prod", Kind: "refresh", DryRun: true, Events: []json.RawMessage{event}, Changes: m{"delete": 1}, Result: "succeeded"})
	p = f.says("after a preview by the CLI", page, "1 resource was deleted outside Pulumi.", "a preview by the CLI", "1 deleted", "<img src=x onerror=alert(1)>gnp pkg:index:Thing", "[secret]")
	for _, path := range []string{page, stackPath + "/deploy?operation=remediate-drift", stackPath + "/deploy?operation=refresh"} {
		if b := f.browser.Get(path).Body; strings.Contains(b, "<img src=x") || strings.Contains(b, "\u202e") || strings.Contains(b, "hunter2") {
			t.Errorf("%s contains the name or a value of a resource as it is", path)
		}
	}
	preview := regexp.MustCompile(`href="([^"]+/previews/[^"]+)"`).FindStringSubmatch(p.Body)
	if preview == nil {
		t.Fatal("the page does not link to the preview")
	}
	f.says("the preview", preview[1]+"?urn="+url.QueryEscape(evil), "Deleted outside Pulumi.", "Property declared found")
	if p.Contains("disabled aria") {
		t.Error("a decision is not possible although nothing prevents it")
	}

	f.API(http.MethodPost, "/api/stacks"+stackPath+"/deployments/pause", nil, nil)
	f.says("while paused", page, "Deployments of the stack are paused.", `disabled aria-describedby="drift-blocked"`, `disabled aria-describedby="check-blocked"`)
	f.API(http.MethodPost, "/api/stacks"+stackPath+"/deployments/resume", nil, nil)
	path, token := f.BeginUpdate(consoletest.Update{Stack: "web/prod", Kind: "update"})
	p = f.says("while locked", page, "The stack is locked: admin changes it from", `disabled aria-describedby="drift-blocked"`)
	// A dialog that was opened before starts nothing that would fail, and keeps its values.
	for _, operation := range []string{"refresh", "remediate-drift"} {
		p := f.browser.Post(stackPath+"/deploy", url.Values{"operation": {operation}, "confirm": {"prod"}, "ref": {"main"}})
		if p.Status != http.StatusUnprocessableEntity || !p.Contains("holds the stack with an update from", "Decide about the drift when that has ended", `value="main"`) {
			t.Errorf("%s while a client holds the stack: status %d: %s", operation, p.Status, p.Body)
		}
	}
	if !p.Contains(`name="operation" value="detect-drift"`) {
		t.Error("while locked, a check is not possible")
	}
	f.APIAs(token, http.MethodPost, path+"/complete", m{"status": "succeeded"}, nil)

	reader := f.AddUser("ann", "member")
	f.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 101}, nil)
	admin := f.browser
	f.browser = f.SignInWith(reader)
	p = f.says("for a reader", page, "You may see this stack, but not deploy it.", "1 resource was deleted outside Pulumi.", `disabled aria-describedby="drift-blocked"`)
	if p.Contains("operation=refresh") || p.Contains("Check every night") {
		t.Error("a reader is offered a decision or a schedule")
	}
	f.browser = admin

	must.OK(t, f.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE updates SET events_expired = 1")
		return err
	}))
	f.says("without events", page, "1 resource was deleted outside Pulumi.", "The differences are no longer kept")
	f.says("without events", stackPath+"/deploy?operation=remediate-drift", "does not know all resources that drifted", "Type prod to confirm")

	f.RunUpdate(consoletest.Update{Stack: "web/prod", Kind: "refresh", DryRun: true, Changes: m{"same": 3}, Result: "succeeded"})
	f.says("after a clean check", page, "No drift Checked 2", ": all resources were as the state says.", "1 of 2 found drift")
	f.RunUpdate(consoletest.Update{Stack: "web/prod", Kind: "refresh", DryRun: true, Events: drift(t), Changes: m{"update": 2, "delete": 1}, Result: "succeeded"})
	failed := must.Get(json.Marshal(m{"sequence": 0, "timestamp": 1, "diagnosticEvent": m{"severity": "error", "message": "the token is " + hostile}}))(t)
	f.RunUpdate(consoletest.Update{Stack: "web/prod", Kind: "refresh", DryRun: true, Events: []json.RawMessage{failed}, Result: "failed"})
	f.says("after drift and a failed check by the CLI", page, "the token is <img", "The last check, a preview by the CLI, failed 2", "; what is below is from the check 2", "; not there ", "Open the preview", "2 of 3 found drift", "failed Could not check")
}
