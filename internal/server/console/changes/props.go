package changes

import (
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

// firstLines returns the first lines of a difference, those of whole properties if possible, and the number of the
// properties that are left out.
func firstLines(d diff.Diff, most int) (list []line, more int) {
	for i, c := range d.Changes {
		lines := linesOf(diff.Diff{Changes: []diff.Change{c}})
		if len(list) > 0 && len(list)+len(lines) > most {
			return list, len(d.Changes) - i + d.More
		}
		list = append(list, lines[:min(len(lines), most)]...)
	}
	return list, d.More
}

func moreProperties(n int) string {
	if n == 1 {
		return "1 more property"
	}
	return words.Number(n) + " more properties"
}
