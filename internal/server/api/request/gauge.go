package request

import "workflowagent/internal/server/fault"

// gauge counts the values of a JSON text and how deep they are nested, without
// decoding it: the memory that decoding takes is known beforehand. For text that
// is not JSON the count is an upper bound.
type gauge struct {
	limit  int64
	values int64
	depth  int
	quoted bool // inside of a string
	escape bool // behind a backslash
}

// count counts a piece of the text.
func (g *gauge) count(p []byte) error {
	for i := range p {
		if g.quoted {
			if g.escape {
				g.escape = false
				continue
			}
			g.quoted, g.escape = p[i] != '"', p[i] == '\\'
			continue
		}
		switch p[i] {
		case '"':
			g.quoted = true
		case ',':
			g.values++
		case '[', '{':
			g.values++
			if g.depth++; g.depth > maxDepth {
				return fault.Invalid("Bad Request: the body is nested deeper than %d levels", maxDepth)
			}
		case ']', '}':
			g.depth--
		}
	}
	if g.values > g.limit {
		return fault.New(fault.KindTooLarge, "Request Entity Too Large: the body has more than %d values", g.limit)
	}
	return nil
}
