package stacks

import (
	"encoding/json"
	"strings"
	"testing"

	"workflowagent/internal/redact"
)

func TestEventsAreMaskedAndStayJSON(t *testing.T) {
	set := redact.New([]redact.Secret{{Name: "a", Value: `hunter"2\`}, {Name: "b", Value: "sequence"}}, redact.Options{})
	text, err := json.Marshal(map[string]any{
		"sequence": 12, "timestamp": 1700000000,
		"diagnosticEvent": map[string]any{"message": `the password is hunter"2\ indeed`, "list": []any{"x", `hunter"2\`}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := maskEvent(set, text)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(got), "hunter") || !strings.Contains(string(got), "the password is [secret] indeed") {
		t.Errorf("masked event: %s", got)
	}
	if string(member(got, "sequence")) != "12" || string(member(got, "timestamp")) != "1700000000" {
		t.Errorf("the event lost its numbers: %s", got)
	}
	plain := json.RawMessage(`{"timestamp": 1, "message":"nothing"}`)
	if got, err := maskEvent(set, plain); err != nil || string(got) != string(plain) {
		t.Errorf("an event without secrets changed: %s, %v", got, err)
	}
	if got, err := maskEvent(nil, plain); err != nil || string(got) != string(plain) {
		t.Errorf("without secrets: %s, %v", got, err)
	}
}
