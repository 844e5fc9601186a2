package complete

import (
	"slices"
	"strings"
)

// element is the name of an element of a list in a path.
const element = "[]"

// line is a line of a definition in block style.
type line struct {
	comment bool
	// indent is the column of the key or scalar, and dash that of the element of a list that begins in the line, or -1.
	indent, dash int
	key          string // "" for a line without a key
	rest         string // what follows the key, or the scalar
}

// parseLine parses a line. In an incomplete one, a colon at the end can be part of a key such as fn::open.
func parseLine(text string, incomplete bool) line {
	text = strings.TrimRight(text, "\r")
	rest := strings.TrimLeft(text, " ")
	l := line{dash: -1, indent: len(text) - len(rest), comment: strings.HasPrefix(rest, "#")}
	for rest == "-" || strings.HasPrefix(rest, "- ") {
		if l.dash < 0 {
			l.dash = l.indent
		}
		next := strings.TrimLeft(rest[1:], " ")
		l.indent += max(2, len(rest)-len(next))
		rest = next
	}
	l.rest = rest
	if l.comment {
		return l
	}
	end := strings.Index(rest, ": ")
	if end < 0 && !incomplete && strings.HasSuffix(strings.TrimRight(rest, " "), ":") {
		end = len(strings.TrimRight(rest, " ")) - 1
	}
	if end > 0 && !strings.ContainsAny(rest[:1], "[{") {
		l.key = strings.Trim(rest[:end], `"'`)
		l.rest = strings.TrimLeft(rest[end+1:], " ")
	}
	return l
}

// ancestors returns the path of what a line belongs to, from the lines before it: keys, and [element] for elements of lists.
func ancestors(lines []string, at line) []string {
	var path []string
	keys, dashes := at.indent, at.indent // ancestors are at lower columns
	enter := func(dash int) {
		path = append(path, element)
		keys, dashes = dash+1, dash // a list can be in the column of its key
	}
	if at.dash >= 0 {
		enter(at.dash)
	}
	for i := len(lines) - 1; i >= 0 && keys > 0; i-- {
		l := parseLine(lines[i], false)
		if l.comment || l.key == "" && l.rest == "" && l.dash < 0 {
			continue
		}
		if l.key != "" && l.indent < keys {
			path = append(path, l.key)
			keys, dashes = l.indent, l.indent
		}
		if l.dash >= 0 && l.dash < dashes {
			enter(l.dash)
		}
	}
	slices.Reverse(path)
	return path
}
