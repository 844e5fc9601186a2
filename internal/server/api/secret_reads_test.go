package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
)

// canary is part of every secret of the tests in this file.
const canary = "canary-7f3a"

// readEntry is an entry of the audit log about reads of secrets.
type readEntry struct {
	Event, Description, SourceIP, TokenID, ActorName, ActorURN string
	Timestamp, LastTimestamp, Count                            int64
}

// readsOf returns the entries about reads of a stack's secrets.
func (f *fixture) readsOf(stack string) []readEntry {
	f.t.Helper()
	var page struct {
		Events []readEntry `json:"auditLogEvents"`
	}
	f.do("GET", "/api/orgs/acme/auditlogs", nil).want(200, &page)
	return slices.DeleteFunc(page.Events, func(e readEntry) bool {
		return e.Count == 0 || !strings.Contains(e.Description, ": acme/proj/"+stack+" ")
	})
}

// secretStack creates a stack with a secret in its state, in plaintext and encrypted. It returns the
// stack's path and the ciphertext.
func (f *fixture) secretStack(name string) (path, ciphertext string) {
	f.t.Helper()
	path = f.stack(name)
	var sealed struct{ Ciphertext string }
	f.do("POST", path+"/encrypt", map[string][]byte{"plaintext": []byte(`"` + canary + `"`)}).want(200, &sealed)
	outputs := map[string]any{
		"plain":  map[string]string{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "plaintext": `"` + canary + `"`},
		"sealed": map[string]string{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": sealed.Ciphertext},
	}
	f.do("POST", path+"/import", map[string]any{"version": 3, "deployment": map[string]any{
		"manifest": map[string]any{}, "secrets_providers": map[string]any{"type": "service"},
		"resources": []any{map[string]any{"urn": "urn:pulumi:" + name + "::proj::pulumi:pulumi:Stack::proj-" + name, "type": "pulumi:pulumi:Stack", "outputs": outputs}},
	}}).want(200, nil)
	return path, sealed.Ciphertext
}

// secretRead is a request that reads secrets.
type secretRead struct {
	method, route string
	body          func(ciphertext string) any
	action        string
	says          string // part of the description
}

func none(string) any { return nil }

// secretReads lists every route that answers with secrets, or by which a client reports that it has
// decrypted some. definitionRoute is the other one.
var secretReads = []secretRead{
	{"POST", "STACK/decrypt", func(c string) any { return map[string]string{"ciphertext": c} }, "stack.secrets-decrypted", ""},
	{"POST", "STACK/batch-decrypt", func(c string) any { return map[string][]string{"ciphertexts": {c, c}} }, "stack.secrets-decrypted", ""},
	{"POST", "STACK/decrypt/log-decryption", func(string) any { return map[string]string{"secretName": "proj:password"} }, "stack.decryption-reported", "proj:password"},
	{
		"POST", "STACK/decrypt/log-batch-decryption", func(string) any { return map[string]string{"commandName": "pulumi config"} },
		"stack.decryption-reported", "pulumi config",
	},
	{"GET", "STACK/export", none, "stack.state-exported", ""},
	{"GET", "STACK/export/{version}", none, "stack.state-exported", "version 1"},
	{"GET", "STACK/outputs", none, "stack.state-exported", "outputs"},
}

const definitionRoute = "GET /api/workflow/jobs/{jobID}"

// revealed reports whether an answer contains a canary, as it is or in base64.
func revealed(body []byte) bool {
	if bytes.Contains(body, []byte(canary)) {
		return true
	}
	for _, text := range strings.FieldsFunc(string(body), func(r rune) bool { return !strings.ContainsRune("+/=", r) && (r < '0' || r > 'z') }) {
		if plain, err := base64.StdEncoding.DecodeString(text); err == nil && bytes.Contains(plain, []byte(canary)) {
			return true
		}
	}
	return false
}

// TestEveryReadOfASecretIsAudited reads secrets through every route that answers with them. While the
// audit log refuses entries, the server must refuse the reads.
func TestEveryReadOfASecretIsAudited(t *testing.T) {
	var clock storetest.Clock // stands still
	f := newFixtureOn(t, storetest.SQLiteAt(t, &clock), options{})
	for i, r := range secretReads {
		name := "s" + string(rune('a'+i))
		path, ciphertext := f.secretStack(name)
		target := strings.NewReplacer("STACK", path, "{version}", "1").Replace(r.route)
		body := r.body(ciphertext)

		allow := storetest.RefuseInserts(t, f.db, "audit_entries")
		refused := f.do(r.method, target, body)
		allow()
		if refused.Status < 500 || revealed(refused.Body) {
			t.Errorf("%s %s: status %d although the audit log refuses entries: %s", r.method, r.route, refused.Status, refused.Body)
		}
		for range 3 {
			if a := f.do(r.method, target, body); a.Status >= 300 || a.Status == 200 && strings.Contains(r.action, "secrets-") && !revealed(a.Body) {
				t.Fatalf("%s %s: status %d, without the secret: %s", r.method, r.route, a.Status, a.Body)
			}
		}
		got := f.readsOf(name)
		if len(got) != 1 {
			t.Errorf("%s %s left %d entries, want 1: %+v", r.method, r.route, len(got), got)
			continue
		}
		e, now := got[0], clock.Now().Unix()
		if e.Event != r.action || e.Count != 3 || e.ActorName != "admin" || e.SourceIP != "127.0.0.1" || e.TokenID == "" ||
			e.Timestamp != now || e.LastTimestamp != now || !strings.Contains(e.Description, r.says) || revealed([]byte(e.Description)) {
			t.Errorf("%s %s left the entry %+v, want %s by the administrator, 3 times, with %q", r.method, r.route, e, r.action, r.says)
		}
	}
}

// TestReadsWithoutASecretLeaveNoEntry makes requests that fail, or that find nothing.
func TestReadsWithoutASecretLeaveNoEntry(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	f.do("GET", path+"/export", nil).want(200, nil) // there is no state
	f.do("GET", path+"/export/7", nil).want(404, nil)
	f.do("POST", path+"/decrypt", map[string][]byte{"ciphertext": []byte("x")}).want(400, nil)
	f.do("POST", path+"/batch-decrypt", map[string][]string{"ciphertexts": {"eA=="}}).want(400, nil)
	f.do("POST", path+"/batch-decrypt", map[string][]string{"ciphertexts": {}}).want(200, nil)
	ann := f.person("ann", "", "")
	f.send(call{Method: "GET", Path: path + "/export", Auth: ann}).want(404, nil)
	if got := f.readsOf("dev"); len(got) != 0 {
		t.Errorf("entries although no secret was read: %+v", got)
	}
}

// TestReadsAreCountedByTokenAndHour reads secrets with two tokens in two hours.
func TestReadsAreCountedByTokenAndHour(t *testing.T) {
	var clock storetest.Clock
	f := newFixtureOn(t, storetest.SQLiteAt(t, &clock), options{})
	path, ciphertext := f.secretStack("dev")
	other := f.person("ann", "acme", identity.RoleAdmin)
	decrypt := func(auth string) {
		t.Helper()
		f.send(call{Method: "POST", Path: path + "/decrypt", Body: map[string]string{"ciphertext": ciphertext}, Auth: auth}).want(200, nil)
	}
	first := clock.Now().Unix()
	decrypt("")
	decrypt(other)
	clock.Pass(time.Hour - time.Second)
	last := clock.Now().Unix()
	decrypt("")
	clock.Pass(time.Second)
	next := clock.Now().Unix()
	decrypt("")

	got := f.readsOf("dev")
	if len(got) != 3 {
		t.Fatalf("entries %+v, want 3", got)
	}
	for _, e := range got {
		switch {
		case e.ActorName == "ann" && e.Count == 1 && e.Timestamp == first && e.LastTimestamp == first:
		case e.ActorName == "admin" && e.Count == 2 && e.Timestamp == first && e.LastTimestamp == last:
		case e.ActorName == "admin" && e.Count == 1 && e.Timestamp == next && e.LastTimestamp == next:
		default:
			t.Errorf("an unexpected entry: %+v", e)
		}
	}

	// Downloads contain the counts.
	file := string(f.do("GET", "/api/orgs/acme/auditlogs/export?format=csv&eventFilter=stack.secrets-decrypted", nil).want(200, nil).Body)
	records, err := csv.NewReader(strings.NewReader(file)).ReadAll()
	if err != nil || len(records) != 4 {
		t.Fatalf("the CSV file: %v\n%s", err, file)
	}
	count, until := slices.Index(records[0], "count"), slices.Index(records[0], "lastTime")
	if count < 0 || until < 0 || !slices.ContainsFunc(records, func(r []string) bool {
		return r[count] == "2" && r[until] == time.Unix(last, 0).UTC().Format(time.RFC3339)
	}) {
		t.Errorf("the CSV file has no entry with the count 2:\n%s", file)
	}
	file = string(f.do("GET", "/api/orgs/acme/auditlogs/export?format=json&userFilter=admin&eventFilter=stack.secrets-decrypted", nil).want(200, nil).Body)
	var entry struct {
		Count    int64
		LastTime time.Time
	}
	lines := strings.Split(strings.TrimSpace(file), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &entry); err != nil || entry.Count != 2 || entry.LastTime.Unix() != last {
		t.Errorf("the JSON file: %+v, %v\n%s", entry, err, file)
	}
}

// TestReadsOfJobsAreCountedByDeployment lets two deployments read secrets of two stacks. Each leaves
// one entry per stack and kind, and one for the definition with its secrets.
func TestReadsOfJobsAreCountedByDeployment(t *testing.T) {
	var clock storetest.Clock
	l := newLabWith(t, storetest.SQLiteAt(t, &clock), options{deployments: deployments.Options{Lease: 1000 * time.Hour, Lost: 1000 * time.Hour}})
	own, ciphertext := l.secretStack("dev")
	other, foreign := l.secretStack("other")
	l.do("PUT", own+"/deployments/settings", map[string]any{
		"agentPoolID":      l.pool,
		"sourceContext":    map[string]any{"git": map[string]any{"repoUrl": "https://example.com/a/b.git", "branch": "main"}},
		"operationContext": map[string]any{"environmentVariables": map[string]any{"KEY": map[string]string{"secret": canary}}},
	}).want(200, nil)
	var ids []string
	for range 2 {
		ids = append(ids, l.deploy(own+"/deployments", "update"))
		job, runner := l.claim("agent")
		if job.TypeSpecificID != ids[len(ids)-1] {
			t.Fatalf("claimed %+v", job)
		}
		for range 2 { // agents repeat requests
			definition, err := runner.Definition(t.Context())
			if err != nil || definition.Env["KEY"] != canary {
				t.Fatalf("the definition is %+v, %v", definition, err)
			}
			auth := "token " + definition.Env["PULUMI_ACCESS_TOKEN"]
			for range 2 {
				l.send(call{Method: "POST", Path: own + "/decrypt", Body: map[string]string{"ciphertext": ciphertext}, Auth: auth}).want(200, nil)
				l.send(call{Method: "GET", Path: own + "/export", Auth: auth}).want(200, nil)
				clock.Pass(2 * time.Hour)
			}
			l.send(call{Method: "GET", Path: other + "/export", Auth: auth}).want(200, nil)
			l.send(call{Method: "POST", Path: other + "/batch-decrypt", Body: map[string][]string{"ciphertexts": {foreign}}, Auth: auth}).want(200, nil)
		}
		if _, err := runner.Heartbeat(t.Context(), "starting"); err != nil {
			t.Fatal(err)
		}
		l.end(runner, "succeeded")
	}
	for stack, want := range map[string]map[string]int64{
		"dev":   {"deployment.secrets-sent": 2, "stack.secrets-decrypted": 4, "stack.state-exported": 4},
		"other": {"stack.secrets-decrypted": 2, "stack.state-exported": 2},
	} {
		got := map[string]int64{}
		for _, e := range l.readsOf(stack) {
			_, id, _ := strings.Cut(e.ActorURN, ":")
			if !slices.Contains(ids, id) || !strings.HasPrefix(e.ActorURN, "job:") && !strings.HasPrefix(e.ActorURN, "runner:") {
				t.Errorf("an entry of another caller: %+v", e)
				continue
			}
			if _, twice := got[id+e.Event]; twice {
				t.Errorf("deployment %s has more than one entry %s of %s", id, e.Event, stack)
			}
			got[id+e.Event] = e.Count
			if n := want[e.Event]; e.Count != n {
				t.Errorf("%s of %s has the count %d, want %d", e.Event, stack, e.Count, n)
			}
		}
		if len(got) != 2*len(want) {
			t.Errorf("the entries of %s are %v, want %v for both deployments", stack, got, want)
		}
	}
}

// TestADefinitionWithSecretsIsAudited requests the definition of a job while the audit log refuses
// entries.
func TestADefinitionWithSecretsIsAudited(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	path := l.deployable("dev")
	l.deploy(path, "update")
	_, plain := l.claim("a")
	allow := storetest.RefuseInserts(t, l.db, "audit_entries")
	if _, err := plain.Definition(t.Context()); err != nil {
		t.Errorf("a definition without secrets: %v", err)
	}
	allow()
	if got := l.readsOf("dev"); len(got) != 0 {
		t.Errorf("a definition without secrets left the entries %+v", got)
	}
	for name, settings := range map[string]map[string]any{
		"variable": {"operationContext": map[string]any{"environmentVariables": map[string]any{"KEY": map[string]string{"secret": canary}}}},
		"registry": {"executorContext": map[string]any{"executorImage": map[string]any{
			"reference": "registry.example/x:1", "credentials": map[string]any{"username": "u", "password": map[string]string{"secret": canary}},
		}}},
		"repository": {"sourceContext": map[string]any{"git": map[string]any{
			"repoUrl": "https://example.com/a/b.git", "branch": "main", "gitAuth": map[string]any{"accessToken": map[string]string{"secret": canary}},
		}}},
	} {
		path := l.deployable(name)
		l.do("POST", path+"/settings", settings).want(200, nil)
		l.deploy(path, "update")
		_, runner := l.claim(name)
		allow := storetest.RefuseInserts(t, l.db, "audit_entries")
		if _, err := runner.Definition(t.Context()); err == nil {
			t.Errorf("%s: the definition was sent although the audit log refuses entries", name)
		}
		allow()
		if _, err := runner.Definition(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := l.readsOf(name); len(got) != 1 || got[0].Event != "deployment.secrets-sent" {
			t.Errorf("%s: the entries are %+v", name, got)
		}
	}
}

// TestNoOtherRouteRevealsSecrets requests every route that only reads, as the caller for whom it is
// made. An answer with a secret must come from a route in the tables above. A new such route must be
// added there, and leave an entry.
func TestNoOtherRouteRevealsSecrets(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{Lease: time.Hour})
	n := l.tenant("acme", "token "+l.admin)
	stack, _ := l.secretStack("sealed")
	n.names["stack"], n.names["urn"] = "sealed", url.PathEscape("urn:pulumi:sealed::proj::pulumi:pulumi:Stack::proj-sealed")
	hook := map[string]any{
		"name": "chat", "displayName": "chat", "payloadUrl": "https://127.0.0.1:1/x", "format": "raw", "active": true, "organizationName": "acme",
		"secret": canary + "-0123456789012345678901234567890123456789",
	}
	l.do("POST", "/api/orgs/acme/hooks", hook).want(201, nil)
	hook["projectName"], hook["stackName"] = "proj", "sealed"
	l.do("POST", stack+"/hooks", hook).want(201, nil)
	n.names["hook"] = "chat"
	var integration struct{ ID string }
	l.do("POST", integrationsPath+"/custom", map[string]any{"name": "it", "baseUrl": "https://git2.example", "accessToken": canary}).want(201, &integration)
	n.names["integration"], n.names["id"] = integration.ID, integration.ID
	l.do("PUT", stack+"/deployments/settings", map[string]any{
		"agentPoolID": l.pool,
		"sourceContext": map[string]any{"git": map[string]any{
			"repoUrl": "https://example.com/a/b.git", "branch": "main", "gitAuth": map[string]any{"accessToken": map[string]string{"secret": canary}},
		}},
		"operationContext": map[string]any{"environmentVariables": map[string]any{"KEY": map[string]string{"secret": canary}}},
	}).want(200, nil)
	n.names["deploymentID"] = l.deploy(stack+"/deployments", "update")
	job, runner := l.claim("a")
	n.names["jobID"], n.auth["runner"] = job.JobID, "token "+job.JobToken
	definition, err := runner.Definition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.auth["deployment"] = "token " + definition.Env["PULUMI_ACCESS_TOKEN"]

	known := []string{definitionRoute}
	for _, r := range secretReads {
		known = append(known, r.method+" "+r.route)
	}
	found := map[string]bool{}
	for _, methodRoute := range l.routes() {
		method, route, _ := strings.Cut(methodRoute, " ")
		name := method + " " + routeName(strings.TrimSuffix(route, "/"))
		if method != http.MethodGet || strings.ContainsRune(route, '*') {
			continue
		}
		for _, auth := range append(authorizations(n, route), n.auth["deployment"]) {
			a := l.send(call{Method: method, Path: n.path(t, route) + "?wait=0", Auth: auth})
			if !revealed(a.Body) {
				continue
			}
			found[name] = true
			if !slices.Contains(known, name) {
				t.Errorf("%s reveals a secret, but the tests of the audit log do not know the route: %.300s", name, a.Body)
			}
		}
	}
	for _, name := range []string{"GET STACK/export", "GET STACK/export/{version}", definitionRoute} {
		if !found[name] {
			t.Errorf("%s reveals no secret: this test checks nothing", name)
		}
	}
}
