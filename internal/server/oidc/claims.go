package oidc

import (
	"encoding/json"
	"errors"
	"strings"
)

// claimPath is where a claim stands: the names of nested objects.
type claimPath []string

// parsePath reads a path such as sub or "kubernetes.io".pod.name: names are
// separated by dots, and a name that holds a dot stands in double quotes.
func parsePath(text string) (claimPath, error) {
	var path claimPath
	for rest := text; ; {
		var name string
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			if name, rest, ok = strings.Cut(quoted, `"`); !ok {
				return nil, errors.New("a quote is not closed")
			}
			if rest != "" && rest[0] != '.' {
				return nil, errors.New("a dot is missing after a quote")
			}
		} else {
			end := strings.IndexByte(rest, '.')
			if end < 0 {
				end = len(rest)
			}
			name, rest = rest[:end], rest[end:]
			if strings.Contains(name, `"`) {
				return nil, errors.New("a quote stands inside a name")
			}
		}
		if name == "" {
			return nil, errors.New("a name is empty")
		}
		path = append(path, name)
		if rest == "" {
			return path, nil
		}
		rest = rest[1:]
	}
}

// values returns what a token says at a path, as texts: one for a text, a
// number or a boolean, several for a list of them, none for anything else.
func (p claimPath) values(claims map[string]any) []string {
	var at any = claims
	for _, name := range p {
		object, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = object[name]
	}
	list, ok := at.([]any)
	if !ok {
		list = []any{at}
	}
	var out []string
	for _, v := range list {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case json.Number:
			out = append(out, v.String())
		case bool:
			if v {
				out = append(out, "true")
			} else {
				out = append(out, "false")
			}
		}
	}
	return out
}

// match reports whether a pattern describes a whole text: * stands for any
// characters or none, ? for one character or none. With anyDot a dot stands for
// exactly one character, otherwise for itself.
//
// It takes time in proportion to the product of both lengths, whatever the
// pattern.
func match(pattern, text string, anyDot bool) bool {
	p := []rune(pattern)
	// reach[i] says that the first i characters of the pattern can describe
	// what was read of the text.
	reach, next := make([]bool, len(p)+1), make([]bool, len(p)+1)
	reach[0] = true
	skipOptional(p, reach)
	for _, c := range text {
		next[0] = false
		for i, r := range p {
			switch {
			case r == '*':
				next[i+1] = reach[i] || reach[i+1]
			case r == '?', r == '.' && anyDot:
				next[i+1] = reach[i]
			default:
				next[i+1] = reach[i] && r == c
			}
		}
		skipOptional(p, next)
		reach, next = next, reach
	}
	return reach[len(p)]
}

// skipOptional reaches what lies behind characters that may describe nothing.
func skipOptional(p []rune, reach []bool) {
	for i, r := range p {
		if (r == '*' || r == '?') && reach[i] {
			reach[i+1] = true
		}
	}
}
