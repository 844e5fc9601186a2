package webhooks

import (
	"encoding/json"
	"strings"
	"testing"
)

// hostile is a text that Slack, Teams and terminals would interpret.
const hostile = "<!channel> *x* [a](http://evil.example) <http://evil.example|y> & \x1b[31m\n\u202e"

func texts(v any) (out []string) {
	switch v := v.(type) {
	case string:
		out = append(out, v)
	case []any:
		for _, e := range v {
			out = append(out, texts(e)...)
		}
	case map[string]any:
		for _, e := range v {
			out = append(out, texts(e)...)
		}
	}
	return out
}

// TestFormats renders each kind of payload for Slack and Teams, with texts that must not become
// markup.
func TestFormats(t *testing.T) {
	for kind, test := range map[string]struct{ payload, title string }{
		"ping":            {`{"message":"hello"}`, "hello"},
		"stack":           {`{"action":"created"}`, "Stack acme/p/s created"},
		"stack_update":    {`{"kind":"update","result":"failed","resourceChanges":{"same":2,"create":1},"updateUrl":"https://server.test/u"}`, "acme/p/s: update failed"},
		"deployment":      {`{"version":4,"operation":"destroy","status":"running","deploymentUrl":"https://server.test/u"}`, "acme/p/s: deployment #4 (destroy) running"},
		"drift_detection": {`{"driftDetected":true,"status":"succeeded","referenceUrl":"https://server.test/u"}`, "acme/p/s: drift detection succeeded, drift detected"},
		"policy_violation_mandatory": {
			`{"kind":"update","violationCount":7,"violations":[{"policyPackName":"aws","policyName":"tags","resourceURN":"u","message":"<!channel> [a](http://evil.example)"}],"updateUrl":"https://server.test/u"}`,
			"acme/p/s: 7 violations of mandatory policies in update",
		},
		"policy_violation_advisory": {`{"kind":"preview","violationCount":1}`, "acme/p/s: 1 violation of advisory policies in preview"},
		"policy_not_evaluated":      {`{"kind":"update","policyPacks":["aws","gcp"]}`, "acme/p/s: update ended without required policy packs: aws, gcp"},
		"some_other_kind":           {`{"deploymentUrl":"javascript:alert(1)"}`, "acme/p/s: some_other_kind"},
	} {
		body := map[string]any{
			"user":         map[string]string{"name": hostile, "githubLogin": "ann"},
			"organization": map[string]string{"githubLogin": "acme"}, "projectName": "p", "stackName": "s",
		}
		if err := json.Unmarshal([]byte(test.payload), &body); err != nil {
			t.Fatal(err)
		}
		payload, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := render(FormatRaw, kind, string(payload)); err != nil || string(raw) != string(payload) {
			t.Errorf("%s: the raw body is %s, %v", kind, raw, err)
		}
		for _, format := range []string{FormatSlack, FormatTeams} {
			text, err := render(format, kind, string(payload))
			if err != nil {
				t.Errorf("%s for %s: %v", kind, format, err)
				continue
			}
			if !strings.Contains(string(text), test.title) {
				t.Errorf("%s for %s is %s, want the title %q", kind, format, text, test.title)
			}
			if strings.ContainsAny(strings.Join(texts(decoded(t, text)), ""), "\x1b\u202e") || strings.Contains(string(text), "javascript:") {
				t.Errorf("%s for %s has control characters or an unsafe link: %s", kind, format, text)
			}
			if linked := strings.Contains(string(text), "https://server.test/u"); linked != strings.Contains(test.payload, "https:") {
				t.Errorf("%s for %s has a link: %t", kind, format, linked)
			}
		}
	}
}

func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDriftInMessages(t *testing.T) {
	for want, m := range map[string]message{
		"//: drift detection succeeded, drift detected":    {Status: "succeeded", Drift: true},
		"//: drift detection succeeded, no drift detected": {Status: "succeeded"},
		"//: drift detection failed":                       {Status: "failed"}, // the result is unknown
	} {
		if m.kind = kindDriftDetection; m.title() != want {
			t.Errorf("the title is %q, want %q", m.title(), want)
		}
	}
}

// TestNoMarkup checks that texts of users appear only where chats do not interpret them, or
// escaped.
func TestNoMarkup(t *testing.T) {
	m := message{kind: kindPing, Message: hostile}
	slack, err := json.Marshal(m.slack())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts(decoded(t, slack)) {
		if strings.ContainsAny(text, "<>|") {
			t.Errorf("the message for Slack has the markup %q", text)
		}
	}
	teams, err := json.Marshal(m.teams())
	if err != nil {
		t.Fatal(err)
	}
	if s := string(teams); strings.Contains(s, `"TextBlock"`) || strings.Contains(s, `"Fact`) {
		t.Errorf("the message for Teams has texts that Teams renders as Markdown: %s", s)
	}
	m = message{kind: kindUpdate, Update: hostile, UpdateURL: "https://server.test/a|b>c"}
	blocks, err := json.Marshal(m.slack())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts(decoded(t, blocks)) {
		if strings.Count(text, "|") > 1 || strings.Count(text, ">") > 1 {
			t.Errorf("a URL ends the link early: %q", text)
		}
	}
}
