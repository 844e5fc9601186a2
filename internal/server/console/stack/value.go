package stack

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// The values that stand for secrets and for values that are known only after the update.
const (
	secretText  = "[secret]"
	unknownText = "known after apply"
)

const (
	signatureKey    = "4dabf18193072939515e22adb298388d"
	secretSignature = "1b47061264138c4ac30d75fd1eb44270"
)

// unknowns are the texts with which the engine marks unknown values, by their type.
var unknowns = []string{
	"04da6b54-80e4-46f7-96ec-b56ff0331ba9", "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7", "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
	"6a19a0b0-7e62-4c92-b797-7f8e31da9cc2", "030794c1-ac77-496b-92df-f27374a8bd58", "e48ece36-62e2-4504-bad9-02848725956a",
}

// maxValue bounds a shown value, in bytes.
const maxValue = 16 << 10

func hidden(v map[string]any) bool { return v[signatureKey] == secretSignature }

// show returns a value as text: strings as they are, embedded JSON and other values indented.
func show(v any) string {
	if v == nil {
		return ""
	}
	v = public(v)
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

// public replaces secrets and unknown values by words.
func public(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if hidden(v) {
			return secretText
		}
		out := make(map[string]any, len(v))
		for key, member := range v {
			out[key] = public(member)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, element := range v {
			out[i] = public(element)
		}
		return out
	case string:
		if slices.Contains(unknowns, v) {
			return unknownText
		}
	}
	return v
}

// valueText returns a JSON value as text, without secrets.
func valueText(raw []byte) string {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return ""
	}
	return show(v)
}
