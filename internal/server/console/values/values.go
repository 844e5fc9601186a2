// Package values shows the properties of resources, without secrets.
package values

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"workflowagent/internal/server/stacks/changes/diff"
)

// Value is a property, or an output of a stack.
type Value struct {
	Name, Text string
	Secret     bool
}

// Of returns the members of a JSON object by name. It indents only the first ones.
func Of(object []byte) (list []Value) {
	all, _ := decode(object).(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, of(name, all[name], len(list) < maxFlat))
	}
	return list
}

func of(name string, v any, indent bool) Value {
	s := text(v, indent)
	return Value{Name: name, Text: s, Secret: s == diff.Secret}
}

// Bounds of [Flat].
const (
	maxFlat  = 200
	maxDepth = 3
)

// Flat returns the members of a JSON object by name, with those of objects in it as properties of their own, such as
// tags.owner, and the number of those that are left out. Members that the engine adds for itself are no properties.
func Flat(object []byte) (list []Value, more int) {
	f := flat{most: maxFlat}
	f.add("", decode(object), 1)
	return f.list, f.count - len(f.list)
}

// Count returns the number of properties that [Flat] finds.
func Count(object []byte) int {
	var f flat
	f.add("", decode(object), 1)
	return f.count
}

// flat counts properties, and keeps the first most of them.
type flat struct {
	list        []Value
	count, most int
}

// add adds the members of an object. It cuts paths, because each member would repeat a long one.
func (f *flat) add(path string, object any, depth int) {
	members, _ := object.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if depth == 1 && strings.HasPrefix(name, "__") {
			continue
		}
		if inner, _ := members[name].(map[string]any); len(inner) > 0 && depth < maxDepth {
			f.add(cut(path+name, maxName)+".", inner, depth+1)
			continue
		}
		if f.count++; f.count <= f.most {
			f.list = append(f.list, of(cut(path+name, maxName), members[name], true))
		}
	}
}

// link returns the address that a value is, or "" if it is none of a web page.
func (v Value) link() string {
	u, err := url.Parse(v.Text)
	if err != nil || v.Secret || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.ContainsFunc(v.Text, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }) {
		return ""
	}
	return v.Text
}

// short reports whether a value is a name of one line, of which the end says as much as the beginning.
func (v Value) short() bool { return len(v.Text) <= 120 && !strings.ContainsAny(v.Text, " \t\r\n") }

// maxTitle bounds the title of a value, in characters.
const maxTitle = 400

// title returns the beginning of a value.
func (v Value) title() string {
	if utf8.RuneCountInString(v.Text) <= maxTitle {
		return v.Text
	}
	return string([]rune(v.Text)[:maxTitle]) + "…"
}

// names are those of outputs that need no quotes in a shell.
var names = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// Command returns the command that prints an output of a stack that is secret, or "" if its name would need quotes.
func (v Value) Command(stack string) string {
	if !names.MatchString(v.Name) {
		return ""
	}
	return "pulumi stack output " + v.Name + " --show-secrets --stack " + stack
}
