package assets

import "regexp"

// jsNeedless are the lines of scripts with nothing but a comment, and indentation. No text in the scripts has several lines.
var jsNeedless = regexp.MustCompile(`(?m)^ *//.*\n|^ +`)

var (
	cssParts = regexp.MustCompile(`(?s)"[^"]*"|/\*.*?\*/\s*|\s*([{};,>])\s*|:\s+|\s+`)
	cssLast  = regexp.MustCompile(`;}`)
)

// squeeze removes from a style sheet what browsers do not need: comments, and spaces that separate nothing. The style
// sheets quote with ".
func squeeze(css []byte) []byte {
	css = cssParts.ReplaceAllFunc(css, func(part []byte) []byte {
		switch part[0] {
		case '"':
			return part
		case '/':
			return nil
		case ':':
			return []byte(":")
		}
		for _, b := range part {
			if b > ' ' {
				return []byte{b}
			}
		}
		return []byte(" ")
	})
	return cssLast.ReplaceAll(css, []byte("}"))
}
