package request

import "workflowagent/internal/server/fault"

// countValues returns the number of values in a JSON text. It does not decode the text, so that the
// memory needed for decoding is known in advance. For text that is not JSON, the result is an upper
// bound.
func countValues(text []byte, limit int64) (int64, error) {
	var values int64
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		if quoted {
			switch c {
			case '\\':
				i++ // the escaped byte
			case '"':
				quoted = false
			}
			continue
		}
		switch c {
		case '"':
			quoted = true
		case ',':
			values++
		case '[', '{':
			values++
			if depth++; depth > maxDepth {
				return 0, fault.Invalid("the body is nested deeper than %d levels", maxDepth)
			}
		case ']', '}':
			depth--
		}
	}
	if values > limit {
		return 0, fault.New(fault.KindTooLarge, "the body has more than %d values", limit)
	}
	return values, nil
}
