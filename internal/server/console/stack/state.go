package stack

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/stacks/changes/diff"
	"workflowagent/internal/server/stacks/rawjson"
)

// state is what the page of a stack shows of its state.
type state struct {
	Outputs []output
	Pending []string // operations that an earlier update has left open
	Types   []typeCount
	Root    string // URN of the resource with the outputs
}

// output is an output of a stack.
type output struct {
	Name, Value string
	Secret      bool
}

// typeCount is a type of resources and their number.
type typeCount struct {
	Type  string
	Count int
}

// state returns what the page shows of a stack's state.
func (p *pages) state(v *page.Visit) (state, error) {
	var s state
	if v.Stack.StateBlob == "" {
		return s, nil
	}
	stored, err := p.Stacks.Export(v.Context(), v.Stack.ID)
	if err != nil || stored.Empty() {
		return s, err
	}
	for r := range rawjson.Elements(rawjson.Member(stored.Deployment, "pending_operations")) {
		s.Pending = append(s.Pending, textOf(rawjson.Member(r, "type"))+" "+textOf(rawjson.Member(rawjson.Member(r, "resource"), "urn")))
	}
	counts := map[string]int{}
	for r := range rawjson.Elements(rawjson.Member(stored.Deployment, "resources")) {
		kind := textOf(rawjson.Member(r, "type"))
		if kind == stackType {
			if s.Root == "" {
				s.Root, s.Outputs = textOf(rawjson.Member(r, "urn")), outputsOf(r)
			}
			continue
		}
		counts[kind]++
	}
	for kind, n := range counts {
		s.Types = append(s.Types, typeCount{kind, n})
	}
	slices.SortFunc(s.Types, func(a, b typeCount) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Type, b.Type)) })
	return s, nil
}

const stackType = "pulumi:pulumi:Stack"

// textOf returns a JSON string; "" for another value.
func textOf(raw []byte) (text string) {
	_ = json.Unmarshal(raw, &text) // an absent string stays empty
	return text
}

func outputsOf(resource []byte) (list []output) {
	for name, value := range rawjson.Members(rawjson.Member(resource, "outputs")) {
		var key string
		if json.Unmarshal([]byte(`"`+name+`"`), &key) != nil {
			key = name
		}
		text := valueText(value)
		list = append(list, output{Name: key, Value: text, Secret: text == diff.Secret})
	}
	slices.SortFunc(list, func(a, b output) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// link returns the address that an output is, or "" if it is none of a web page.
func (o output) link() string {
	u, err := url.Parse(o.Value)
	if err != nil || o.Secret || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.ContainsFunc(o.Value, func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' }) {
		return ""
	}
	return o.Value
}

// short reports whether an output is a name of one line, of which the end says as much as the beginning.
func (o output) short() bool { return len(o.Value) <= 120 && !strings.ContainsAny(o.Value, " \t\r\n") }

// listed returns the outputs that the page lists: all but the README.
func (s state) listed() []output {
	return slices.DeleteFunc(slices.Clone(s.Outputs), func(o output) bool { return o.Name == "readme" && !o.Secret })
}

// maxTitle bounds the title of an output, in characters.
const maxTitle = 400

// title returns the beginning of an output.
func (o output) title() string {
	if utf8.RuneCountInString(o.Value) <= maxTitle {
		return o.Value
	}
	return string([]rune(o.Value)[:maxTitle]) + "…"
}

// The numbers of outputs and types on the page.
const (
	shownOutputs = 20
	shownTypes   = 10
)

// types returns the most frequent types, and the number of the others with their resources.
func (s state) types() (list []typeCount, others, resources int) {
	list = s.Types
	if len(list) > shownTypes {
		list = list[:shownTypes-1]
		others = len(s.Types) - len(list)
		for _, t := range s.Types[len(list):] {
			resources += t.Count
		}
	}
	return list, others, resources
}

// shortType returns a type without what its parts repeat: aws:iam/role for aws:iam/role:Role, and random:RandomPassword for
// random:index/randomPassword:RandomPassword.
func shortType(kind string) string {
	parts := strings.SplitN(kind, ":", 3)
	if len(parts) != 3 {
		return kind
	}
	module, file, nested := strings.Cut(parts[1], "/")
	first, size := utf8.DecodeRuneInString(parts[2])
	same := nested && file == string(unicode.ToLower(first))+parts[2][size:]
	switch {
	case module == "index" && (same || !nested):
		return parts[0] + ":" + parts[2]
	case same:
		return parts[0] + ":" + parts[1]
	default:
		return kind
	}
}
