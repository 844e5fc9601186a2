package diff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// States returns the difference of a resource in two states, which are JSON objects, or nil if a state lacks the resource.
// Secrets differ if their ciphertexts do, which does not prove that a secret changed.
func States(before, after []byte) (Diff, error) {
	was, err := sideOf(before)
	if err != nil {
		return Diff{}, err
	}
	is, err := sideOf(after)
	if err != nil {
		return Diff{}, err
	}
	c := collector{ciphertexts: true}
	c.objects("", was.Outputs, is.Outputs, 0)
	// Outputs repeat most inputs. An input is named only if the output with its name does not differ, or does not exist.
	in := collector{ciphertexts: true}
	in.objects("", without(was, c.list), without(is, c.list), 0)
	for _, ch := range in.list {
		ch.Path += " (input)"
		c.list = append(c.list, ch)
	}
	d := Diff{Changes: c.list, More: c.more + in.more}
	if over := len(d.Changes) - maxChanges; over > 0 {
		d.Changes, d.More = d.Changes[:maxChanges], d.More+over
	}
	props := is.Outputs
	if after == nil {
		props = was.Outputs
	}
	d.Same = c.same(props)
	return d, nil
}

func sideOf(resource []byte) (side, error) {
	var s side
	if resource == nil {
		return s, nil
	}
	dec := json.NewDecoder(bytes.NewReader(resource))
	dec.UseNumber()
	if err := dec.Decode(&s); err != nil {
		return s, fmt.Errorf("decoding a resource: %w", err)
	}
	return s, nil
}

// without returns the inputs of a resource that no change is about.
func without(s side, list []Change) map[string]any {
	out := maps.Clone(s.Inputs)
	maps.DeleteFunc(out, func(name string, _ any) bool {
		path := cut(join("", name), maxPath)
		return slices.ContainsFunc(list, func(ch Change) bool { return within(ch.Path, path) })
	})
	return out
}
