// Package rawjson finds value boundaries in JSON without decoding the values. States are large and
// arrive after every step of an update. A decoder would copy every value and use several times the
// memory that a request may use. All functions except [Cut] require valid JSON.
package rawjson

import (
	"bytes"
	"encoding/json"
	"iter"
	"strings"

	"workflowagent/internal/server/fault"
)

// Members yields the members of a JSON object: the key without quotes but with its escapes, and the
// raw value. It yields nothing for other values.
func Members(data []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		i := SkipSpace(data, 0)
		if i >= len(data) || data[i] != '{' {
			return
		}
		i = SkipSpace(data, i+1)
		for i < len(data) && data[i] == '"' {
			end := SkipString(data, i)
			key := string(data[i+1 : end-1])
			i = SkipSpace(data, end)      // at ':'
			i = SkipSpace(data, i+1)      // at the value
			end = skipValue(data, i)      // after the value
			if !yield(key, data[i:end]) { // b[i:end] is the value
				return
			}
			i = SkipSpace(data, end)
			if i < len(data) && data[i] == ',' {
				i = SkipSpace(data, i+1)
			}
		}
	}
}

// Member returns the raw value of a JSON object's member, or nil. If the member is repeated, Member
// returns the last value.
func Member(data []byte, key string) []byte {
	var out []byte
	for k, v := range Members(data) {
		if k == key {
			out = v
		}
	}
	return out
}

// Cut validates a JSON object. It returns the raw value of a member, or nil, and the object without
// that member. Member names are case-insensitive.
func Cut(body []byte, name string) (value, rest []byte, err error) {
	if !json.Valid(body) {
		return nil, nil, fault.Invalid("the body is not valid JSON")
	}
	rest = []byte("{")
	for k, v := range Members(body) {
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

// Elements yields the raw elements of a JSON array.
func Elements(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		i := SkipSpace(data, 0)
		if i >= len(data) || data[i] != '[' {
			return
		}
		i = SkipSpace(data, i+1)
		for i < len(data) && data[i] != ']' {
			end := skipValue(data, i)
			if !yield(data[i:end]) {
				return
			}
			i = SkipSpace(data, end)
			if i < len(data) && data[i] == ',' {
				i = SkipSpace(data, i+1)
			}
		}
	}
}

// Texts yields all strings in a JSON value at any depth, including member names. It omits the
// quotes and keeps the escapes.
func Texts(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			i := bytes.IndexByte(data, '"')
			if i < 0 {
				return
			}
			end := SkipString(data, i)
			if !yield(data[i+1 : end-1]) {
				return
			}
			data = data[end:]
		}
	}
}

// SkipSpace returns the index of the first byte at or after i that is not JSON white space.
func SkipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// SkipString returns the index after the string that starts at i.
func SkipString(b []byte, i int) int {
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

func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return SkipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				i = SkipString(b, i)
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
