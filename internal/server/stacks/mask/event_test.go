package mask

import (
	"encoding/json"
	"strings"
	"testing"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/stacks/rawjson"
)

func TestEventsAreMaskedAndStayJSON(t *testing.T) {
	set := redact.New([]redact.Secret{{Name: "a", Value: `hunter"2\`}, {Name: "b", Value: "sequence"}}...)
	text, err := json.Marshal(map[string]any{
		"sequence": 12, "timestamp": 1700000000,
		"diagnosticEvent": map[string]any{"message": `the password is hunter"2\ indeed`, "list": []any{"x", `hunter"2\`}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Event(set, text)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(got), "hunter") || !strings.Contains(string(got), "the password is [secret] indeed") {
		t.Errorf("masked event: %s", got)
	}
	if string(rawjson.Member(got, "sequence")) != "12" || string(rawjson.Member(got, "timestamp")) != "1700000000" {
		t.Errorf("the event lost its numbers: %s", got)
	}
	if _, err := Event(set, json.RawMessage(`{"a":"hunter\"2\\","a":1,`)); err == nil {
		t.Error("what is not JSON was stored")
	}
	plain := json.RawMessage(`{"timestamp": 1, "message":"nothing"}`)
	if got, err := Event(set, plain); err != nil || string(got) != string(plain) {
		t.Errorf("an event without secrets changed: %s, %v", got, err)
	}
	if got, err := Event(nil, plain); err != nil || string(got) != string(plain) {
		t.Errorf("without secrets: %s, %v", got, err)
	}
}

// TestSecretsInNamesAndNumbersOfEvents checks that secrets are masked in names and numbers that a
// program chose, in any JSON escaping.
func TestSecretsInNamesAndNumbersOfEvents(t *testing.T) {
	set := redact.New([]redact.Secret{
		{Name: "a", Value: "hunter2-secret"}, {Name: "b", Value: "outputs"}, {Name: "c", Value: "987654321"}, {Name: "d", Value: "message"},
	}...)
	for _, tt := range []struct{ name, event, want string }{
		{
			"member names", `{"sequence":1,"resOutputsEvent":{"metadata":{"new":{"outputs":{"hunter2-secret":"x","k":{"a hunter2-secret b":1}}}}}}`,
			`{"resOutputsEvent":{"metadata":{"new":{"outputs":{"[secret]":"x","k":{"a [secret] b":1}}}}},"sequence":1}`,
		},
		{
			"two names that become one", `{"preludeEvent":{"config":{"hunter2-secret":"1","outputs":"2","other":"3"}}}`,
			`{"preludeEvent":{"config":{"[secret]":"1","[secret] (2)":"2","other":"3"}}}`,
		},
		{
			"detailed differences", `{"resourcePreEvent":{"metadata":{"detailedDiff":{"env.hunter2-secret":{"diffKind":"add"}},"diffs":["hunter2-secret"]}}}`,
			`{"resourcePreEvent":{"metadata":{"detailedDiff":{"env.[secret]":{"diffKind":"add"}},"diffs":["[secret]"]}}}`,
		},
		{
			"names of the schema stay", `{"diagnosticEvent":{"message":"the message of outputs"},"timestamp":987654321}`,
			`{"diagnosticEvent":{"message":"the [secret] of [secret]"},"timestamp":987654321}`,
		},
		{
			"names that no schema has", `{"diagnosticEvent":{"hunter2-secret":1}}`, `{"diagnosticEvent":{"[secret]":1}}`,
		},
		{
			"numbers", `{"resOutputsEvent":{"metadata":{"new":{"inputs":{"pin":987654321,"n":12}}}}}`,
			`{"resOutputsEvent":{"metadata":{"new":{"inputs":{"n":12,"pin":"[secret]"}}}}}`,
		},
		{
			"letters as escapes", `{"diagnosticEvent":{"prefix":"\u0068unter2-secret"}}`, `{"diagnosticEvent":{"prefix":"[secret]"}}`,
		},
		{"nothing to mask", `{"diagnosticEvent": {"prefix":"\u0068unt"}}`, `{"diagnosticEvent": {"prefix":"\u0068unt"}}`},
	} {
		got, err := Event(set, json.RawMessage(tt.event))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s:\n got %s, %v\nwant %s", tt.name, got, err, tt.want)
		}
	}
}

// TestManyNamesThatBecomeOne masks names that differ only in their secrets. The cost must not be
// quadratic in their number.
func TestManyNamesThatBecomeOne(t *testing.T) {
	set := redact.New([]redact.Secret{{Name: "a", Value: "hunter2-secret"}, {Name: "b", Value: "another-secret"}}...)
	const n = 1 << 9
	names := map[string]int{}
	for i := range n {
		var name strings.Builder
		for bit := range 9 {
			name.WriteString([]string{"hunter2-secret.", "another-secret."}[i>>bit&1])
		}
		names[name.String()] = i
	}
	event, err := json.Marshal(map[string]any{"outputs": names})
	if err != nil {
		t.Fatal(err)
	}
	var got json.RawMessage
	cost := testing.AllocsPerRun(1, func() {
		if got, err = Event(set, event); err != nil {
			t.Fatal(err)
		}
	})
	if cost > 100*n {
		t.Errorf("masking %d names takes %.0f allocations", n, cost)
	}
	var out struct{ Outputs map[string]int }
	if err := json.Unmarshal(got, &out); err != nil || len(out.Outputs) != n {
		t.Errorf("%d of %d members are left: %v", len(out.Outputs), n, err)
	}
}
