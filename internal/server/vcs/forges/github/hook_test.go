package github

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"workflowagent/internal/dev/forgetest"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
)

const (
	before = "1111111111111111111111111111111111111111"
	after  = "2222222222222222222222222222222222222222"
	object = "3333333333333333333333333333333333333333" // of an annotated tag
	null   = "0000000000000000000000000000000000000000"
)

func header(event string) map[string]string {
	return map[string]string{"x-github-event": event, "x-github-delivery": "d-1"}
}

func TestVerify(t *testing.T) {
	forgetest.Signatures(t, new(Forge), true, func(body, secret string) vcs.Delivery {
		return vcs.Delivery{
			Header: map[string]string{"x-hub-signature-256": "sha256=" + hex.EncodeToString(hook.MAC([]byte(secret), []byte(body)))},
			Body:   []byte(body),
		}
	})
}

func TestParse(t *testing.T) {
	const rest = `,"repository":{"id":7,"full_name":"acme/app","owner":{"login":"acme"}},"sender":{"id":12,"login":"ada","type":"User"},"pusher":{"name":"spoofed"}}`
	event := func(e vcs.Event) []vcs.Event {
		e.Repo, e.Sender = vcs.RepoID{ID: "7", Name: "acme/app"}, vcs.Account{ID: "12", Name: "ada"}
		return []vcs.Event{e}
	}
	push := func(ref, before, after, more string) string {
		return `{"ref":"` + ref + `","before":"` + before + `","after":"` + after + `"` + more + rest
	}
	forgetest.Hooks(t, new(Forge), header, map[string]forgetest.Delivery{
		"push": {
			Event: "push", Body: push("refs/heads/main", before, after, `,"forced":false,"head_commit":{"id":"`+after+`","message":"Fix","author":{"username":"root"}}`),
			Want: event(vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", Before: before, After: after, Message: "Fix"}),
		},
		"row 16: created": {
			Event: "push", Body: push("refs/heads/main", null, after, `,"created":true,"base_ref":null`),
			Want: event(vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", After: after}),
		},
		"row 19: deleted": {
			Event: "push", Body: push("refs/heads/main", before, null, `,"deleted":true,"head_commit":null`),
			Want: event(vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", Before: before, Deleted: true}),
		},
		"row 26: test": {Event: "push", Body: push("refs/heads/main", after, after, ""), Ignored: vcs.ReasonTest},
		"row 38: annotated tag": {
			Event: "push", Body: push("refs/tags/v1", null, object, `,"head_commit":{"id":"`+after+`","message":"Fix"}`),
			Want: event(vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1", After: after, Message: "Fix"}),
		},
		"row 42: deleted tag": {
			Event: "push", Body: push("refs/tags/v1", object, null, `,"head_commit":null`),
			Want: event(vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1", Deleted: true}),
		},
		"ping":           {Event: "ping", Body: `{"zen":"x"` + rest, Ignored: vcs.ReasonTest},
		"opened":         {Event: "pull_request", Body: `{"action":"opened","number":3,"pull_request":{"number":3}` + rest, Want: event(vcs.Event{Kind: vcs.KindPull, Pull: 3})},
		"labeled":        {Event: "pull_request", Body: `{"action":"labeled","pull_request":{"number":3}` + rest, Want: event(vcs.Event{Kind: vcs.KindPull, Pull: 3})},
		"assigned":       {Event: "pull_request", Body: `{"action":"assigned","pull_request":{"number":3}` + rest, Ignored: vcs.ReasonUnsupported},
		"without number": {Event: "pull_request", Body: `{"action":"opened","pull_request":null` + rest, Ignored: vcs.ReasonUnsupported},
		"rerun": {
			Event: "check_run", Body: `{"action":"rerequested","check_run":{"name":"infra/prod","head_sha":"` + after + `","pull_requests":[{"number":3},{"number":4}]}` + rest,
			Want: append(
				event(vcs.Event{Kind: vcs.KindRerun, Pull: 3, After: after, Check: "infra/prod"}),
				event(vcs.Event{Kind: vcs.KindRerun, Pull: 4, After: after, Check: "infra/prod"})...,
			),
		},
		"rerun of all": {
			Event: "check_suite", Body: `{"action":"rerequested","check_suite":{"head_sha":"` + after + `","pull_requests":[{"number":3}]}` + rest,
			Want: event(vcs.Event{Kind: vcs.KindRerun, Pull: 3, After: after}),
		},
		"rerun without pull requests": {Event: "check_run", Body: `{"action":"rerequested","check_run":{"head_sha":"` + after + `","pull_requests":[]}` + rest, Ignored: vcs.ReasonUnsupported},
		"completed check":             {Event: "check_run", Body: `{"action":"completed","check_run":{"head_sha":"` + after + `"}` + rest, Ignored: vcs.ReasonUnsupported},
		"row 68: merge queue": {
			Event: "merge_group", Body: `{"action":"checks_requested","merge_group":{"head_sha":"` + after + `","head_ref":"refs/heads/gh-readonly-queue/main/pr-3"}` + rest,
			Want: event(vcs.Event{Kind: vcs.KindMergeGroup, Ref: "refs/heads/gh-readonly-queue/main/pr-3", After: after}),
		},
		"row 66: comment": {Event: "issue_comment", Body: `{"action":"created","comment":{"body":"deploy"}` + rest, Ignored: vcs.ReasonComment},
		"row 32: renamed": {Event: "repository", Body: `{"action":"renamed"` + rest, Want: event(vcs.Event{Kind: vcs.KindAccess})},
		"row 34: suspended": {
			Event: "installation", Body: `{"action":"suspend","installation":{"id":88},"sender":{"id":12,"login":"ada"}}`,
			Want: []vcs.Event{{Kind: vcs.KindAccess, Sender: vcs.Account{ID: "12", Name: "ada"}}},
		},
		"other":           {Event: "star", Body: `{"action":"created"` + rest, Ignored: vcs.ReasonUnsupported},
		"row 94: nothing": {Event: "push", Body: `{"repository":null,"sender":null}`, Ignored: vcs.ReasonUnsupported},
	})
	parsed, err := new(Forge).Parse(vcs.Delivery{Header: header("push"), Body: []byte(`{"installation":{"id":88}}`)})
	if err != nil || parsed.Installation != "88" || parsed.ID != "d-1" {
		t.Errorf("%+v, %v", parsed, err)
	}
}

// TestExamples parses the payloads of the npm package @octokit/webhooks-examples, which the variable
// WORKFLOW_WEBHOOK_EXAMPLES locates. They are not part of this repository.
func TestExamples(t *testing.T) {
	dir := os.Getenv("WORKFLOW_WEBHOOK_EXAMPLES")
	if dir == "" {
		t.Skip("WORKFLOW_WEBHOOK_EXAMPLES does not name a copy of @octokit/webhooks-examples")
	}
	data, err := os.ReadFile(filepath.Join(dir, "api.github.com", "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var webhooks []struct {
		Name     string
		Examples []json.RawMessage
	}
	if err := json.Unmarshal(data, &webhooks); err != nil {
		t.Fatal(err)
	}
	kinds := map[vcs.Kind]int{}
	payloads := 0
	for _, w := range webhooks {
		for _, example := range w.Examples {
			payloads++
			parsed, err := new(Forge).Parse(vcs.Delivery{Header: header(w.Name), Body: example})
			if err != nil {
				t.Errorf("%s: %v", w.Name, err)
			}
			if w.Name == "push" && len(parsed.Events) == 0 && parsed.Ignored.Reason != vcs.ReasonTest {
				t.Errorf("a push was ignored: %+v", parsed)
			}
			for _, e := range parsed.Events {
				kinds[e.Kind]++
			}
		}
	}
	if payloads < 300 || kinds[vcs.KindPush] == 0 || kinds[vcs.KindTag] == 0 || kinds[vcs.KindPull] == 0 {
		t.Errorf("%d payloads with %v", payloads, kinds)
	}
}

func FuzzParse(f *testing.F) {
	forgetest.Fuzz(f, new(Forge), header, []string{"push", "pull_request", "check_run", "check_suite", "merge_group", "installation", "repository", ""},
		`{"ref":"refs/heads/main","before":"`+before+`","after":"`+after+`","repository":{"id":7,"full_name":"a/b"},"head_commit":null,"installation":null}`,
		`{"action":"rerequested","check_run":{"head_sha":"`+after+`","pull_requests":[null,{"number":-1}]},"repository":{"id":7}}`,
		`{"action":"checks_requested","merge_group":{},"repository":{"id":7}}`)
}
