package request

import "workflowagent/internal/server/fault"

// gauge counts the values of a JSON text and their depth without decoding it, which tells the
// memory of decoding in advance. For text that is not JSON the count is an upper bound.
type gauge struct {
	limit  int64
	values int64
	depth  int
	quoted bool // inside a string
	escape bool // after a backslash
}

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
