package providers

import "encoding/json"

// fields are the properties in a schema, by their names.
type fields map[string]map[string]any

func objectOf(description string, required []string, f fields) map[string]any {
	schema := map[string]any{"type": "object", "description": description, "properties": f}
	if required != nil {
		schema["required"] = required
	}
	return schema
}

// mapOf returns the schema of an object whose members have names of the author's choice.
func mapOf(description string, element any) map[string]any {
	return map[string]any{"type": "object", "description": description, "additionalProperties": element}
}

func textOf(description string) map[string]any {
	return map[string]any{"type": "string", "description": description}
}

func textsOf(description string) map[string]any {
	return map[string]any{"type": "array", "description": description, "items": map[string]any{"type": "string"}}
}

func flagOf(description string) map[string]any {
	return map[string]any{"type": "boolean", "description": description}
}

// secretOf returns the schema of an output that is a secret text.
func secretOf(description string) map[string]any {
	return map[string]any{"type": "string", "description": description, "secret": true}
}

// encode encodes a schema of this package.
func encode(schema map[string]any) json.RawMessage {
	text, _ := json.Marshal(schema) // maps and texts can be encoded
	return text
}

// Public returns a schema in the form of the public API, in which a schema for any value is left out.
func Public(schema json.RawMessage) json.RawMessage {
	var tree any
	_ = json.Unmarshal(schema, &tree) // it is one of this package
	text, _ := json.Marshal(withoutAny(tree))
	return text
}

func withoutAny(v any) any {
	members, _ := v.(map[string]any)
	for name, member := range members {
		if members[name] = withoutAny(member); name == "additionalProperties" && member == true {
			delete(members, name)
		}
	}
	return v
}
