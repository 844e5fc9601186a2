package stack

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/values"
	"workflowagent/internal/server/stacks/rawjson"
)

// state is what the page of a stack shows of its state.
type state struct {
	Outputs []values.Value
	Pending []string // operations that an earlier update has left open
	Types   []typeCount
	Root    string // URN of the resource with the outputs
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
				s.Root, s.Outputs = textOf(rawjson.Member(r, "urn")), values.Of(rawjson.Member(r, "outputs"))
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

// listed returns the outputs that the page lists: all but the README.
func (s state) listed() []values.Value {
	return slices.DeleteFunc(slices.Clone(s.Outputs), func(o values.Value) bool { return o.Name == "readme" && !o.Secret })
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

// ShortType returns a type without what its parts repeat: aws:iam/role for aws:iam/role:Role, and random:RandomPassword for
// random:index/randomPassword:RandomPassword.
func ShortType(kind string) string {
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
