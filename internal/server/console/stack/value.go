package stack

import (
	"bytes"
	"encoding/json"
	"strings"

	"workflowagent/internal/server/stacks/changes/diff"
)

// maxValue bounds a shown value, in bytes.
const maxValue = 16 << 10

// valueText returns a JSON value as text without secrets: strings as they are, embedded JSON and
// other values indented.
func valueText(raw []byte) string {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&v) != nil || v == nil {
		return ""
	}
	v = diff.Hide(v)
	text, ok := v.(string)
	if ok {
		var embedded any
		if trimmed := strings.TrimSpace(text); (strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[")) && json.Unmarshal([]byte(trimmed), &embedded) == nil {
			v, ok = embedded, false
		}
	}
	if !ok {
		encoded, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return ""
		}
		text = string(encoded)
	}
	if len(text) > maxValue {
		text = strings.ToValidUTF8(text[:maxValue], "") + "…"
	}
	return text
}
