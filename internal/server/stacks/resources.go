package stacks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
)

// secretSignature marks a secret in serialized properties.
const secretSignature = "1b47061264138c4ac30d75fd1eb44270"

// Resources are the resources in a version of a stack's state. They hold the memory of the state.
type Resources struct {
	Version int64 // version of the stack
	list    []byte
	ref     string
}

// Resources returns the resources in a version of a stack, or in the stack's current state for
// version 0.
func (s *Service) Resources(ctx context.Context, st store.Stack, version int64) (Resources, error) {
	var stored states.Stored
	var err error
	if version > 0 {
		stored, _, err = s.version(ctx, st, version)
	} else {
		// The version and the state must belong together.
		stored, st, err = s.current(ctx, st.ID)
		version = st.Version
	}
	if err != nil {
		return Resources{}, err
	}
	state, err := stored.State(ctx)
	if err != nil {
		return Resources{}, err
	}
	return Resources{version, rawjson.Member(state.Deployment, "resources"), st.Ref()}, nil
}

// All yields the resources as JSON objects, in the form of states. Pass them to [PublicResource]
// before you show them.
func (r Resources) All() iter.Seq[[]byte] { return rawjson.Elements(r.list) }

// Find returns the resource with a URN. If an old resource with the same URN waits for its deletion,
// Find returns the new one.
func (r Resources) Find(urn string) ([]byte, error) {
	var found []byte
	for res := range r.All() {
		var text string
		if raw := rawjson.Member(res, "urn"); json.Unmarshal(raw, &text) != nil || text != urn {
			continue
		}
		if string(rawjson.Member(res, "delete")) != "true" {
			return res, nil
		}
		found = res
	}
	if found == nil {
		return nil, fault.NotFound("version %d of stack '%s' has no resource %q", r.Version, r.ref, urn)
	}
	return found, nil
}

// PublicMemory returns the memory needed to respond with any one of some resources, in bytes.
func PublicMemory(resources iter.Seq[[]byte]) int64 {
	const perValue, copies = 256, 4
	most := int64(0)
	for res := range resources {
		n := copies * int64(len(res))
		if hasPlaintext(res) {
			n += perValue * countValues(res)
		}
		most = max(most, n)
	}
	return most
}

// PublicResource returns a resource in the form of the public API: required members are present,
// no member is null, and the plaintexts of secrets, which a hand-made state can contain, are
// replaced.
func PublicResource(res []byte) (json.RawMessage, error) {
	missing := map[string]string{"custom": "false", "delete": "false", "dependencies": "[]", "type": `""`, "urn": `""`}
	out := []byte("{")
	for name, value := range rawjson.Members(res) {
		if string(value) == "null" {
			continue
		}
		delete(missing, name)
		if hasPlaintext(value) {
			var err error
			if value, err = hideSecrets(value); err != nil {
				return nil, fmt.Errorf("hiding the secrets of a resource: %w", err)
			}
		}
		out = appendMember(out, name, value)
	}
	for name, value := range missing {
		out = appendMember(out, name, []byte(value))
	}
	return append(out, '}'), nil
}

// appendMember appends a member to an object without its last brace. name can contain escapes.
func appendMember(object []byte, name string, value []byte) []byte {
	if len(object) > 1 {
		object = append(object, ',')
	}
	object = append(append(append(object, '"'), name...), `":`...)
	return append(object, value...)
}

func hasPlaintext(value []byte) bool {
	return bytes.Contains(value, []byte(`"plaintext"`)) && bytes.Contains(value, []byte(secretSignature))
}

func hideSecrets(value []byte) ([]byte, error) {
	var v any
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(withoutSecrets(v))
}

func withoutSecrets(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = withoutSecrets(v[i])
		}
	case map[string]any:
		if _, plain := v["plaintext"]; plain && v[signatureKey] == secretSignature {
			return "[secret]"
		}
		for k := range v {
			v[k] = withoutSecrets(v[k])
		}
	}
	return v
}
