package stacks

import (
	"encoding/json"
	"testing"

	"workflowagent/internal/server/stacks/states"
)

func FuzzParseState(f *testing.F) {
	for _, s := range []string{
		`{"version":3,"deployment":{"resources":[{"urn":"a"},{"urn":"b"}]}}`, `{"version":4,"features":["x"],"deployment":null}`,
		`{"version":3,"deployment":{"secrets_providers":{"type":"service"},"x":{"ciphertext":"AAAA"}}}`, `{"deployment":{"ciphertext":"A"}}`, `{"version":1e3}`, `{"features":{}}`, `null`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		st, err := states.Parse(data, []byte{})
		if err != nil {
			return
		}
		out, err := st.MarshalJSON()
		if err != nil || !json.Valid(out) {
			t.Fatalf("%q is exported as %q, %v", data, out, err)
		}
		firstCiphertext(st.Deployment)
		again, err := states.Parse(out, []byte{})
		if err != nil || again.Schema != st.Schema || again.Resources != st.Resources || string(again.Deployment) != string(st.Deployment) {
			t.Errorf("%q is exported as %q, which is another state: %v", data, out, err)
		}
	})
}

func FuzzSummary(f *testing.F) {
	f.Add([]byte(`{"resourceChanges":{"create":1,"same":2}}`))
	f.Add([]byte(`{"resourceChanges":{"create":1e400}}`))
	f.Add([]byte(`{"resourceChanges":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return
		}
		var counts map[string]int64
		if err := json.Unmarshal([]byte(summaryChanges(data)), &counts); err != nil {
			t.Errorf("%q is kept as %q: %v", data, summaryChanges(data), err)
		}
	})
}
