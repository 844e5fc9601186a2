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

// Bounds of the text and the name of a shown value, in bytes.
const (
	maxValue = 16 << 10
	maxName  = 1 << 10
)

// text returns a value without secrets as text: strings as they are, and embedded JSON and other values as JSON. That is
// indented only if it is short: nested values can be many times as long with indentation.
func text(v any, indent bool) string {
	if v == nil {
		return ""
	}
	text, ok := v.(string)
	if ok {
		trimmed := strings.TrimSpace(text)
		if (strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[")) && json.Valid([]byte(trimmed)) {
			v = decode([]byte(trimmed))
			text, ok = v.(string)
		}
	}
	if !ok {
		encoded, err := json.Marshal(v)
		if err == nil && indent && len(encoded) <= maxValue {
			encoded, err = json.MarshalIndent(v, "", "  ")
		}
		if err != nil {
			return ""
		}
		text = string(encoded)
	}
	return cut(text, maxValue)
}

func cut(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
