package stacks

import (
	"bytes"
	"iter"
	"strings"

	"workflowagent/internal/server/fault"
)

// States are large and arrive after every step of an update, so they are
// validated once and then looked into without being decoded. The functions of
// this file need valid JSON; they find the borders of values and nothing else.

// members yields the members of a JSON object: the key without its quotes,
// with escapes as they are, and the raw value. Other values have no members.
func members(data []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		i := skipSpace(data, 0)
		if i >= len(data) || data[i] != '{' {
			return
		}
		i = skipSpace(data, i+1)
		for i < len(data) && data[i] == '"' {
			end := skipString(data, i)
			key := string(data[i+1 : end-1])
			i = skipSpace(data, end)      // at ':'
			i = skipSpace(data, i+1)      // at the value
			end = skipValue(data, i)      // behind it
			if !yield(key, data[i:end]) { // i:end is the value
				return
			}
			i = skipSpace(data, end)
			if i < len(data) && data[i] == ',' {
				i = skipSpace(data, i+1)
			}
		}
	}
}

// member returns the raw value of one member of a JSON object, nil for none.
// As with encoding/json the last one of several counts.
func member(data []byte, key string) []byte {
	var out []byte
	for k, v := range members(data) {
		if k == key {
			out = v
		}
	}
	return out
}

// CutMember validates a JSON object and returns the raw value of one member, nil
// for none, and the object without it. The case of names does not count.
func CutMember(body []byte, name string) (value, rest []byte, err error) {
	if !validJSON(body) {
		return nil, nil, fault.Invalid("Bad Request: the body is not valid JSON")
	}
	rest = []byte("{")
	for k, v := range members(body) {
		if strings.EqualFold(k, name) {
			value = v
			continue
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(append(rest, '"'), k...), `":`...)
		rest = append(rest, v...)
	}
	return value, append(rest, '}'), nil
}

// elements yields the raw elements of a JSON array.
func elements(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		i := skipSpace(data, 0)
		if i >= len(data) || data[i] != '[' {
			return
		}
		i = skipSpace(data, i+1)
		for i < len(data) && data[i] != ']' {
			end := skipValue(data, i)
			if !yield(data[i:end]) {
				return
			}
			i = skipSpace(data, end)
			if i < len(data) && data[i] == ',' {
				i = skipSpace(data, i+1)
			}
		}
	}
}

// texts yields every string in a JSON value, at any depth and names of members
// too, without its quotes and with escapes as they are.
func texts(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			i := bytes.IndexByte(data, '"')
			if i < 0 {
				return
			}
			end := skipString(data, i)
			if !yield(data[i+1 : end-1]) {
				return
			}
			data = data[end:]
		}
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index behind the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; i < len(b); {
		q := bytes.IndexByte(b[i:], '"')
		if q < 0 {
			return len(b)
		}
		end := i + q
		slashes := 0
		for end-1-slashes >= i && b[end-1-slashes] == '\\' {
			slashes++
		}
		i = end + 1
		if slashes%2 == 0 {
			return i
		}
	}
	return len(b)
}

// skipValue returns the index behind the value that begins at i.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = skipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return len(b)
	default:
		for i < len(b) {
			switch b[i] {
			case ',', '}', ']', ' ', '\n', '\t', '\r':
				return i
			}
			i++
		}
		return len(b)
	}
}
