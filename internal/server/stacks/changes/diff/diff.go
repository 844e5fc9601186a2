// Package diff describes what a step of an update changes in a resource's properties.
package diff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Kind is what happens to a property.
type Kind string

// The kinds of changes.
const (
	Add    Kind = "add"
	Delete Kind = "delete"
	Update Kind = "update"
)

// Change is a changed property.
type Change struct {
	Path string
	Kind Kind
	// Replace reports that the change replaces the resource.
	Replace bool
	// Old and New are the values as text. They are empty if Lines is set.
	Old, New string
	// Lines compare values of several lines.
	Lines []Line
}

// Line is a line of a text: unchanged if Kind is "".
type Line struct {
	Kind Kind
	Text string
}

// Diff is what a step changes.
type Diff struct {
	Op string
	// Changes begin with those that replace the resource.
	Changes []Change
	// More is the number of changes that are left out.
	More int
	// Detailed reports that the provider has listed the changes, and so those that replace the resource.
	Detailed bool
	// Same are the properties that do not differ, with their values.
	Same []Property
}

// Property is a property of a resource and its value as text.
type Property struct{ Path, Value string }

// Bounds of a diff.
const (
	maxChanges = 300
	maxValue   = 8 << 10
	maxDepth   = 40
	maxPath    = 500
)

// Texts that stand for values.
const (
	Secret  = "[secret]"
	Unknown = "known after the update"
	// Hidden stands for a value whose other version is a secret, and which can be the same text.
	Hidden = "[not shown]"
)

type step struct {
	Op           string          `json:"op"`
	Keys         []string        `json:"keys"`
	Diffs        []string        `json:"diffs"`
	DetailedDiff map[string]kind `json:"detailedDiff"`
	Old          *side           `json:"old"`
	New          *side           `json:"new"`
}

type kind struct {
	Kind  string `json:"diffKind"`
	Input bool   `json:"inputDiff"`
}

type side struct {
	Inputs  map[string]any `json:"inputs"`
	Outputs map[string]any `json:"outputs"`
}

func (s *side) inputs() map[string]any {
	if s == nil {
		return nil
	}
	return s.Inputs
}

func (s *side) outputs() map[string]any {
	if s == nil {
		return nil
	}
	return s.Outputs
}

// Of returns the diff of a step: the member "metadata" of an engine event.
func Of(metadata []byte) (Diff, error) { return of(metadata, false) }

// OfRefresh is [Of] for a step of a refresh, in which the new values are those that the provider has found. A change
// replaces the resource if the next update has to replace it to put the old value back.
func OfRefresh(metadata []byte) (Diff, error) { return of(metadata, true) }

func of(metadata []byte, refresh bool) (Diff, error) {
	var s step
	dec := json.NewDecoder(bytes.NewReader(metadata))
	dec.UseNumber()
	if err := dec.Decode(&s); err != nil {
		return Diff{}, fmt.Errorf("decoding a step: %w", err)
	}
	c := collector{replace: s.Keys}
	switch {
	case len(s.DetailedDiff) > 0:
		c.detailed(s, refresh)
	case refresh && s.Old != nil && s.New != nil:
		c.compare("", s.Old.outputs(), s.New.outputs(), 0)
	default:
		c.compare("", s.Old.inputs(), s.New.inputs(), 0)
	}
	slices.SortStableFunc(c.list, func(a, b Change) int { return order(a) - order(b) })
	props := s.New.inputs()
	if s.New == nil {
		props = s.Old.inputs()
	}
	return Diff{Op: s.Op, Changes: c.list, More: c.more, Detailed: len(s.DetailedDiff) > 0, Same: c.same(props)}, nil
}

// same returns the properties that no change is about.
func (c *collector) same(props map[string]any) []Property {
	var list []Property
	for _, name := range slices.Sorted(maps.Keys(props)) {
		path := cut(join("", name), maxPath)
		if strings.HasPrefix(name, "__") || len(list) == maxChanges || slices.ContainsFunc(c.list, func(ch Change) bool { return within(ch.Path, path) }) {
			continue
		}
		list = append(list, Property{path, text(props[name])})
	}
	return list
}

// within reports whether a path is one of a property, or of a part of it.
func within(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[' || rest[0] == ' ')
}

func order(c Change) int {
	if c.Replace {
		return 0
	}
	return 1
}

type collector struct {
	list    []Change
	more    int
	replace []string
	// ciphertexts reports that secrets differ if their ciphertexts do.
	ciphertexts bool
}

func (c *collector) add(path string, k Kind, replace bool, before, after any) {
	if len(c.list) >= maxChanges {
		c.more++
		return
	}
	ch := Change{Path: cut(path, maxPath), Kind: k, Replace: replace || c.replaces(path)}
	if k != Add {
		ch.Old = besides(before, after)
	}
	if k != Delete {
		ch.New = besides(after, before)
	}
	if strings.Contains(ch.Old, "\n") || strings.Contains(ch.New, "\n") {
		ch.Lines, ch.Old, ch.New = lines(ch.Old, ch.New), "", ""
	}
	c.list = append(c.list, ch)
}

func (c *collector) replaces(path string) bool {
	return slices.ContainsFunc(c.replace, func(key string) bool { return within(path, key) })
}

// detailed follows the provider's own list of changes.
func (c *collector) detailed(s step, refresh bool) {
	for _, path := range slices.Sorted(maps.Keys(s.DetailedDiff)) {
		d := s.DetailedDiff[path]
		name, replace := strings.CutSuffix(d.Kind, "-replace")
		k := Kind(name)
		if k != Add && k != Delete {
			k = Update
		}
		keys := Path(path)
		before, known := lookup(s.Old.outputs(), keys)
		if d.Input || !known {
			if in, ok := lookup(s.Old.inputs(), keys); ok {
				before = in
			}
		}
		after, otherwise := s.New.inputs(), s.New.outputs()
		if refresh && !d.Input { // the inputs are still the declared ones
			after, otherwise = otherwise, after
		}
		found, known := lookup(after, keys)
		if !known {
			found, _ = lookup(otherwise, keys)
		}
		if k != Update {
			c.add(path, k, replace, before, found)
			continue
		}
		from := len(c.list)
		c.compare(path, before, found, 0)
		if len(c.list) == from { // equal values: a secret, or a difference that only the provider sees
			c.add(path, Update, replace, before, found)
		}
		for i := from; i < len(c.list); i++ {
			c.list[i].Replace = c.list[i].Replace || replace
		}
	}
}

// compare adds the differences of two values.
func (c *collector) compare(path string, before, after any, depth int) {
	if depth > maxDepth {
		c.add(path, Update, false, before, after)
		return
	}
	a, aok := object(before)
	b, bok := object(after)
	if aok && bok || path == "" {
		c.objects(path, a, b, depth)
		return
	}
	if c.ciphertexts && secret(before) && secret(after) {
		if !reflect.DeepEqual(before, after) {
			c.add(path, Update, false, before, after)
		}
		return
	}
	x, xok := before.([]any)
	y, yok := after.([]any)
	if xok && yok {
		c.arrays(path, x, y, depth)
		return
	}
	if from, to, ok := embedded(before, after); ok {
		c.compare(path+" (JSON)", from, to, depth+1)
		return
	}
	switch {
	case before == nil && after == nil:
	case before == nil:
		c.add(path, Add, false, nil, after)
	case after == nil:
		c.add(path, Delete, false, before, nil)
	case text(before) != text(after):
		c.add(path, Update, false, before, after)
	}
}

func (c *collector) objects(path string, a, b map[string]any, depth int) {
	names := map[string]bool{}
	for k := range a {
		names[k] = true
	}
	for k := range b {
		names[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(names)) {
		if strings.HasPrefix(k, "__") {
			continue // members that providers keep for themselves
		}
		before, inA := a[k]
		after, inB := b[k]
		switch at := join(path, k); {
		case !inA:
			c.add(at, Add, false, nil, after)
		case !inB:
			c.add(at, Delete, false, before, nil)
		default:
			c.compare(at, before, after, depth+1)
		}
	}
}

func (c *collector) arrays(path string, a, b []any, depth int) {
	for i := range max(len(a), len(b)) {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case i >= len(a):
			c.add(at, Add, false, nil, b[i])
		case i >= len(b):
			c.add(at, Delete, false, a[i], nil)
		default:
			c.compare(at, a[i], b[i], depth+1)
		}
	}
}

// object returns a value's members, unless the value is special, such as a secret.
func object(v any) (map[string]any, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	_, special := m[signature]
	return m, !special
}

// embedded decodes two texts that are JSON objects or arrays.
func embedded(before, after any) (from, to any, ok bool) {
	a, aok := before.(string)
	b, bok := after.(string)
	if !aok || !bok || a == b {
		return nil, nil, false
	}
	from, aok = document(a)
	to, bok = document(b)
	return from, to, aok && bok
}

func document(text string) (any, bool) {
	text = strings.TrimSpace(text)
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return nil, false
	}
	var v any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if dec.Decode(&v) != nil || dec.More() {
		return nil, false
	}
	return v, true
}
