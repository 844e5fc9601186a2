package rawjson

import (
	"encoding/binary"
	"math/bits"
)

// maxNesting is the maximum depth of nested values, as in encoding/json.
const maxNesting = 10000

// Valid is a faster [encoding/json.Valid]; it runs over every byte of every checkpoint.
func Valid(data []byte) bool {
	i, ok := validValue(data, SkipSpace(data, 0), 0)
	return ok && SkipSpace(data, i) == len(data)
}

func validValue(b []byte, i, depth int) (int, bool) {
	if i >= len(b) || depth > maxNesting {
		return i, false
	}
	switch b[i] {
	case '{':
		return validObject(b, i, depth+1)
	case '[':
		return validArray(b, i, depth+1)
	case '"':
		return validString(b, i)
	case 't':
		return validWord(b, i, "true")
	case 'f':
		return validWord(b, i, "false")
	case 'n':
		return validWord(b, i, "null")
	default:
		return validNumber(b, i)
	}
}

func validObject(b []byte, i, depth int) (int, bool) {
	if depth > maxNesting {
		return i, false
	}
	i = SkipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, true
	}
	for {
		var ok bool
		if i >= len(b) || b[i] != '"' {
			return i, false
		}
		if i, ok = validString(b, i); !ok {
			return i, false
		}
		if i = SkipSpace(b, i); i >= len(b) || b[i] != ':' {
			return i, false
		}
		if i, ok = validValue(b, SkipSpace(b, i+1), depth); !ok {
			return i, false
		}
		if i = SkipSpace(b, i); i >= len(b) {
			return i, false
		}
		switch b[i] {
		case '}':
			return i + 1, true
		case ',':
			i = SkipSpace(b, i+1)
		default:
			return i, false
		}
	}
}

func validArray(b []byte, i, depth int) (int, bool) {
	if depth > maxNesting {
		return i, false
	}
	i = SkipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, true
	}
	for {
		var ok bool
		if i, ok = validValue(b, i, depth); !ok {
			return i, false
		}
		if i = SkipSpace(b, i); i >= len(b) {
			return i, false
		}
		switch b[i] {
		case ']':
			return i + 1, true
		case ',':
			i = SkipSpace(b, i+1)
		default:
			return i, false
		}
	}
}

func validString(b []byte, i int) (int, bool) {
	for i++; i < len(b); i++ {
		if i = SkipPlain(b, i); i >= len(b) {
			break
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, true
		case c < 0x20:
			return i, false
		case c == '\\':
			i++
			if i >= len(b) {
				return i, false
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if i+4 >= len(b) || !isHex(b[i+1]) || !isHex(b[i+2]) || !isHex(b[i+3]) || !isHex(b[i+4]) {
					return i, false
				}
				i += 4
			default:
				return i, false
			}
		}
	}
	return i, false
}

// SkipPlain skips the literal bytes of a string, eight at a time: it stops at a quote, a backslash
// or a control character, or less than eight bytes before the end.
func SkipPlain(b []byte, i int) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		// A term sets a byte's high bit where the byte is zero, or for the last term below 0x20;
		// false alarms occur only behind a true one.
		found := ((quote - ones) &^ quote) | ((slash - ones) &^ slash) | ((w - ones*0x20) &^ w)
		if found &= highs; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	return i
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func validWord(b []byte, i int, word string) (int, bool) {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return i, false
	}
	return i + len(word), true
}

func validNumber(b []byte, i int) (int, bool) {
	digits := func() bool {
		from := i
		for i < len(b) && '0' <= b[i] && b[i] <= '9' {
			i++
		}
		return i > from
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if !digits() {
		return i, false
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return i, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return i, false
		}
	}
	return i, true
}
