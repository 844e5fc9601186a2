package complete

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	openPrefix     = "fn::open::"
	stacksProvider = "pulumi-stacks"
)

// schema is a JSON schema, or a part of one.
type schema map[string]any

// provider returns the provider whose inputs contain a path, and the path within them.
func (p *place) provider(path []string) (name string, inputs []string) {
	for i, key := range slices.Backward(path) {
		switch {
		case strings.HasPrefix(key, openPrefix):
			return key[len(openPrefix):], path[i+1:]
		case key == "fn::open" && i+1 < len(path) && path[i+1] == "inputs":
			return p.named(), path[i+2:]
		case strings.HasPrefix(key, "fn::"):
			return "", nil
		}
	}
	return "", nil
}

var providerLine = regexp.MustCompile(`(?m)^ *(?:- )?provider: *["']?([A-Za-z0-9-]+)`)

// named returns the provider that is named last before the place.
func (p *place) named() string {
	if all := providerLine.FindAllStringSubmatch(p.before, -1); len(all) > 0 {
		return all[len(all)-1][1]
	}
	return ""
}

// schemas returns the schemas of the value at a path within the inputs of a provider, of which several can apply.
func (p *place) schemas(name string, path []string) []schema {
	i := slices.IndexFunc(p.source.Providers(), func(one Provider) bool { return one.Name == name })
	if i < 0 {
		return nil
	}
	var root schema
	if json.Unmarshal(p.source.Providers()[i].Inputs, &root) != nil {
		return nil
	}
	list := root.expand(root, 0)
	for _, key := range path {
		var next []schema
		for _, one := range list {
			next = append(next, one.member(key).expand(root, 0)...)
		}
		list = next
	}
	return list
}

// maxExpand bounds how deep schemas refer to each other.
const maxExpand = 8

// expand returns a schema with those that it combines.
func (s schema) expand(root schema, depth int) []schema {
	if s == nil || depth > maxExpand {
		return nil
	}
	list := []schema{s}
	if ref, ok := s["$ref"].(string); ok {
		definitions, _ := root["$defs"].(map[string]any)
		target, _ := definitions[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		list = append(list, schema(target).expand(root, depth+1)...)
	}
	for _, key := range []string{"oneOf", "anyOf", "allOf"} {
		all, _ := s[key].([]any)
		for _, one := range all {
			of, _ := one.(map[string]any)
			list = append(list, schema(of).expand(root, depth+1)...)
		}
	}
	return list
}

// member returns the schema of a member or element, or nil.
func (s schema) member(key string) schema {
	if key == element {
		items, _ := s["items"].(map[string]any)
		return items
	}
	properties, _ := s["properties"].(map[string]any)
	if one, ok := properties[key].(map[string]any); ok {
		return one
	}
	other, _ := s["additionalProperties"].(map[string]any)
	return other
}

// inputs suggests members of the inputs of a provider, the required ones first.
func (p *place) inputs(path []string) []Option {
	if path[len(path)-1] == "fn::open" {
		return p.indented([]Option{{"provider", ": ", "the name of the provider"}, {"inputs", ":", "what the provider needs"}})
	}
	name, path := p.provider(path)
	if name == "" {
		return nil
	}
	var required, optional []Option
	seen := map[string]bool{}
	for _, one := range p.schemas(name, path) {
		properties, _ := one["properties"].(map[string]any)
		needed, _ := one["required"].([]any)
		for key, value := range properties {
			of, _ := value.(map[string]any)
			o := Option{Text: key, Insert: ": ", Note: describe(of)}
			switch of["type"] {
			case "object":
				o.Insert = ":"
			case "array":
				o.Insert = ":" + p.newLine() + "- "
			}
			switch known := seen[key]; {
			case known:
			case slices.Contains(needed, any(key)):
				o.Note = strings.TrimPrefix(o.Note+" (required)", " ")
				required = append(required, o)
			default:
				optional = append(optional, o)
			}
			seen[key] = true
		}
	}
	slices.SortFunc(required, byText)
	slices.SortFunc(optional, byText)
	return p.indented(append(required, optional...))
}

func describe(s schema) string {
	text, _ := s["description"].(string)
	return sentence(text)
}

// values suggests the values that the key at the end of a path can have.
func (p *place) values(ctx context.Context, path []string) ([]Option, error) {
	key := path[len(path)-1]
	if len(path) > 1 && key == "provider" && path[len(path)-2] == "fn::open" {
		var list []Option
		for _, one := range p.source.Providers() {
			list = append(list, Option{Text: one.Name, Note: sentence(one.Description)})
		}
		return list, nil
	}
	name, inputs := p.provider(path)
	if name == "" {
		return nil, nil
	}
	if name == stacksProvider && key == "stack" {
		names, err := p.source.Stacks(ctx)
		return texts(names), err
	}
	var list []Option
	for _, one := range p.schemas(name, inputs) {
		known, _ := one["enum"].([]any)
		if constant, ok := one["const"]; ok {
			known = append(known, constant)
		}
		if one["type"] == "boolean" {
			known = append(known, true, false)
		}
		for _, value := range known {
			list = append(list, Option{Text: fmt.Sprint(value)})
		}
	}
	return list, nil
}
