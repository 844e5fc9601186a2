package complete

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/esc/wire"
)

// reference suggests names within ${…}, which begins at an offset of the line.
func (p *place) reference(ctx context.Context, at int) (Answer, error) {
	r, ok := parseReference(p.current[at+2:])
	a := Answer{Word: r.word}
	if !ok {
		return a, nil
	}
	switch {
	case len(r.path) == 0:
		values, err := p.evaluated(ctx, at)
		a.Options = append(members(wire.Value{Value: values}), roots...)
		return a, err
	case r.path[0] == "context":
		a.Options = members(find(aboutCaller, r.path[1:]))
	case r.path[0] == "environments" && len(r.path) < 3:
		prefix := strings.Join(r.path[1:], "/")
		names, err := p.source.Environments(ctx, prefix)
		a.Options = below(names, prefix)
		if err != nil {
			return a, err
		}
	case r.path[0] == "environments":
		values, err := p.source.Values(ctx, "imports:\n- "+r.path[1]+"/"+r.path[2]+"\n")
		a.Options = members(find(wire.Value{Value: map[string]wire.Value(values)}, r.path[3:]))
		if err != nil {
			return a, err
		}
	case r.path[0] == "imports" && len(r.path) == 1:
		for _, name := range p.imported() {
			a.Options = append(a.Options, Option{Text: name})
		}
	case r.path[0] == "imports":
		values, err := p.source.Values(ctx, "imports:\n- "+r.path[1]+"\n")
		a.Options = members(find(wire.Value{Value: map[string]wire.Value(values)}, r.path[2:]))
		if err != nil {
			return a, err
		}
	default:
		values, err := p.evaluated(ctx, at)
		a.Options = members(find(wire.Value{Value: values}, r.path))
		if err != nil {
			return a, err
		}
	}
	for i, o := range a.Options {
		a.Options[i].Insert = r.insert(o.Text)
	}
	if r.dotted && slices.ContainsFunc(a.Options, func(o Option) bool { return !plainName.MatchString(o.Text) }) {
		// A name that needs brackets takes the place of the dot, too.
		for i, o := range a.Options {
			if plainName.MatchString(o.Text) {
				a.Options[i].Insert = "." + o.Text
			}
		}
		a.Back++
	}
	return a, nil
}

// roots are the names that every definition has.
var roots = []Option{
	{Text: "context", Insert: "context.", Note: "who opens the environment"},
	{Text: "environments", Insert: "environments.", Note: "values of other environments"},
	{Text: "imports", Insert: "imports", Note: "values of one of the imports"},
}

// aboutCaller has the names of the values of context.
var aboutCaller = func() wire.Value {
	text := wire.Value{Value: ""}
	object := func(names ...string) wire.Value {
		all := map[string]wire.Value{}
		for _, name := range names {
			all[name] = text
		}
		return wire.Value{Value: all}
	}
	pulumi := wire.Value{Value: map[string]wire.Value{"organization": object("id", "login"), "user": object("id", "login")}}
	return wire.Value{Value: map[string]wire.Value{"pulumi": pulumi, "rootEnvironment": object("name"), "currentEnvironment": object("name")}}
}()

// evaluated returns the values of the definition without the reference at the place.
func (p *place) evaluated(ctx context.Context, at int) (map[string]wire.Value, error) {
	end, _, _ := strings.Cut(p.after, "\n")
	rest := p.after[len(end):]
	if _, closed, ok := strings.Cut(end, "}"); ok {
		rest = closed + rest
	}
	values, err := p.source.Values(ctx, p.before[:len(p.before)-len(p.current)+at]+rest)
	if err != nil || len(values) > 0 {
		return values, err
	}
	return p.written(), nil
}

var memberLine = regexp.MustCompile(`^( +)["']?([^\s"'#:-][^\s"':]*)["']?:(?: |$)`)

// written are the values that the lines of the definition name, if it cannot be evaluated.
func (p *place) written() map[string]wire.Value {
	all := map[string]wire.Value{}
	within, indent := false, ""
	for text := range strings.Lines(p.before + p.after) {
		text = strings.TrimRight(text, "\r\n")
		m := memberLine.FindStringSubmatch(text)
		switch {
		case text != "" && !strings.HasPrefix(text, " ") && !strings.HasPrefix(text, "#"):
			within, indent = strings.HasPrefix(text, "values:"), ""
		case within && m != nil && (indent == "" || indent == m[1]):
			indent = m[1]
			all[m[2]] = wire.Value{Unknown: true}
		}
	}
	return all
}

// imported are the names of the definition's imports, as far as each has its line.
func (p *place) imported() []string {
	var names []string
	text := p.before + p.after
	_, text, _ = strings.Cut("\n"+text, "\nimports:")
	for l := range strings.Lines(text) {
		one := parseLine(strings.TrimRight(l, "\n"), false)
		switch {
		case one.dash >= 0:
			names = append(names, strings.Trim(strings.TrimSpace(one.rest), `"'`))
		case one.key != "":
			return names
		}
	}
	return names
}

// below returns the next segments of names that begin with others.
func below(names []string, prefix string) []Option {
	var list []string
	for _, name := range names {
		project, environment, _ := strings.Cut(name, "/")
		switch prefix {
		case "":
			list = append(list, project)
		case project:
			list = append(list, environment)
		}
	}
	slices.Sort(list)
	return texts(slices.Compact(list))
}

// find returns the value at a path, or a value without members.
func find(v wire.Value, path []string) wire.Value {
	for _, key := range path {
		switch content := v.Value.(type) {
		case map[string]wire.Value:
			v = content[key]
		case []wire.Value:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(content) {
				return wire.Value{}
			}
			v = content[i]
		default:
			return wire.Value{}
		}
	}
	return v
}

// members are the names of the members of an object.
func members(v wire.Value) []Option {
	all, _ := v.Value.(map[string]wire.Value)
	var list []Option
	for _, name := range slices.Sorted(maps.Keys(all)) {
		o := Option{Text: name, Note: kind(all[name])}
		if !plainName.MatchString(name) {
			o.Insert = quoted(name)
		}
		list = append(list, o)
	}
	return list
}

func kind(v wire.Value) string {
	switch content := v.Value.(type) {
	case map[string]wire.Value:
		return "object"
	case []wire.Value:
		return "list of " + strconv.Itoa(len(content))
	}
	switch {
	case v.Secret:
		return "secret"
	case v.Unknown:
		return "known when opened"
	}
	switch v.Value.(type) {
	case bool:
		return "true or false"
	case json.Number:
		return "number"
	default:
		return "text"
	}
}

// plainName matches names that need no brackets.
var plainName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]*$`)

func quoted(name string) string { return `["` + strings.ReplaceAll(name, `"`, `\"`) + `"]` }

// symbol is a reference that is being written.
type symbol struct {
	path []string
	// word is the beginning of the next name. It follows a dot if dotted is set, and ["  if bracket is set.
	word            string
	dotted, bracket bool
}

// insert returns what is written for a name.
func (r symbol) insert(name string) string {
	switch {
	case r.bracket:
		return strings.ReplaceAll(name, `"`, `\"`) + `"]`
	case plainName.MatchString(name) && r.dotted:
		return name
	case plainName.MatchString(name):
		return "." + name // after a bracket
	default:
		return quoted(name)
	}
}

// parseReference parses the text after ${.
func parseReference(text string) (r symbol, ok bool) {
	for {
		end := strings.IndexAny(text, ".[")
		if end < 0 {
			r.word = text
			return r, !strings.ContainsAny(text, " \t")
		}
		if name := text[:end]; name != "" {
			r.path = append(r.path, name)
		}
		r.dotted = text[end] == '.'
		text = text[end+1:]
		if r.dotted {
			continue
		}
		name, rest, closed := strings.Cut(text, "]")
		if !closed {
			if r.bracket = strings.HasPrefix(text, `"`); r.bracket {
				r.word = text[1:]
			}
			return r, r.bracket
		}
		r.path = append(r.path, strings.Trim(name, `"`))
		text = rest
	}
}
