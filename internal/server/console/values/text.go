package values

import (
	"bytes"
	"encoding/json"
	"strings"

	"workflowagent/internal/server/stacks/changes/diff"
)

// decode returns a JSON value without secrets.
func decode(raw []byte) any {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return nil
	}
	return diff.Hide(v)
}

// maxValue bounds a shown value, in bytes.
const maxValue = 16 << 10

// text returns a value without secrets as text: strings as they are, embedded JSON and other values indented.
func text(v any) string {
	if v == nil {
		return ""
	}
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
