package workflow

import "strings"

// Names are checked without regular expressions. Compiling expressions with such long repetitions took a quarter of the
// runner's start-up time, and a job starts several runners; the server kept a megabyte of them.

const alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// MadeOf reports whether text has 1 to limit bytes, of which the first is an ASCII letter, a digit or in first, and the
// others are ASCII letters, digits or in rest.
func MadeOf(text string, limit int, first, rest string) bool {
	return text != "" && len(text) <= limit &&
		strings.Contains(alphanumeric+first, text[:1]) &&
		strings.Trim(text[1:], alphanumeric+rest) == ""
}

// IsName reports whether text has the form of the public API's names of projects, stacks, environments, webhooks and
// policy packs: 1 to 100 letters, digits, hyphens, underscores and dots.
func IsName(text string) bool { return MadeOf(text, 100, "_.-", "_.-") }

// IsTagName reports whether text has the form of the name of a tag: 1 to 40 letters, digits, hyphens, underscores, dots
// and colons.
func IsTagName(text string) bool { return MadeOf(text, 40, "_.:-", "_.:-") }
