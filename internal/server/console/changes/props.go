package changes

import (
	"encoding/json"
	"slices"
	"strings"

	"workflowagent/internal/server/stacks/changes/diff"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// Difference returns what the steps of an update change in a resource.
func Difference(u store.Update, steps [][]byte) (out diff.Diff, err error) {
	list, err := diffsOf(u, steps)
	for i, d := range decisive(list) {
		if i == 0 {
			out = d
			continue
		}
		out.Op, out.Changes, out.More, out.Detailed = d.Op, append(out.Changes, d.Changes...), out.More+d.More, out.Detailed && d.Detailed
	}
	return out, err
}

// mark returns the mark of a line of a difference.
func (l line) mark() string {
	switch {
	case l.Path == "" && !l.Del && !l.Ins:
		return ""
	case !l.Del:
		return "+"
	case !l.Ins:
		return "−"
	default:
		return "~"
	}
}

// firstLines returns the lines that differ of the first properties, and the number of the properties that are left out.
func firstLines(d diff.Diff, most int) (list []line, more int) {
	for i, c := range d.Changes {
		lines := differing(c)
		if len(list) > 0 && len(list)+len(lines) > most {
			return list, len(d.Changes) - i + d.More
		}
		list = append(list, lines[:min(len(lines), most)]...)
	}
	return list, d.More
}

// differing returns the lines of a property that differ. A value that was added or removed as a whole is one line.
func differing(c diff.Change) []line {
	all := linesOf(diff.Diff{Changes: []diff.Change{c}})
	if len(all) < 2 {
		return all
	}
	if c.Kind == diff.Update {
		all = paired(all)
	}
	list := slices.DeleteFunc(slices.Clone(all), func(l line) bool { return !l.Del && !l.Ins })
	if len(list) == 0 {
		return all[:1]
	}
	list[0].Path, list[0].Replace = c.Path, c.Replace
	if c.Kind == diff.Update {
		return list
	}
	one := list[0]
	for _, l := range list[1:] {
		one.Old, one.New = strings.TrimSpace(one.Old+" "+strings.TrimSpace(l.Old)), strings.TrimSpace(one.New+" "+strings.TrimSpace(l.New))
	}
	return []line{one}
}

// bare returns a value, and a text without quotes if no other value looks like that.
func (l line) bare(value string) string {
	var v string
	if l.Path == "" || json.Unmarshal([]byte(value), &v) != nil {
		return value
	}
	if value == `"`+v+`"` && strings.TrimSpace(v) == v && v != "" && v != "none" && v != diff.Secret && v != diff.Unknown && v != diff.Hidden && !json.Valid([]byte(v)) {
		return v
	}
	return value
}

// paired returns the lines of a value, with each removed line next to the added one that replaces it.
func paired(lines []line) (out []line) {
	removed := 0 // lines at the end of out that no added one replaces
	for _, l := range lines {
		l.Part = true
		switch at := len(out) - removed; {
		case l.Del:
			removed++
		case l.Ins && removed > 0:
			out[at].New, out[at].Ins = l.New, true
			removed--
			continue
		default:
			removed = 0
		}
		out = append(out, l)
	}
	return out
}

// brief is [line.bare] for one line, with an object or list by its size.
func (l line) brief(value string) string {
	var v any
	if l.Path == "" || json.Unmarshal([]byte(value), &v) != nil {
		return value
	}
	switch v := v.(type) {
	case string:
		return l.bare(value)
	case map[string]any:
		if len(v) > 1 {
			return "{…} " + words.Number(len(v)) + " properties"
		}
	case []any:
		if len(v) > 1 {
			return "[…] " + words.Count(len(v), "value")
		}
	}
	return value
}

func moreProperties(n int) string {
	if n == 1 {
		return "1 more property"
	}
	return words.Number(n) + " more properties"
}
