package oidc

import (
	"encoding/json"
	"errors"
	"strings"
)

// claimPath is the location of a claim: the names of nested objects.
type claimPath []string

// parsePath parses a path such as sub or "kubernetes.io".pod.name: dots separate names, and double
// quotes enclose a name that contains a dot.
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
				return nil, errors.New("a name contains a quotation mark")
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

// values returns the values of a claim as strings: one for a string, number or boolean, several for
// a list of these types, and none for any other value.
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

// match reports whether a pattern matches all of text: * matches any number of characters, ?
// matches at most one. A dot matches any character if anyDot is set, otherwise only a dot. The
// running time is proportional to the product of the lengths of pattern and text.
func match(pattern, text string, anyDot bool) bool {
	p := []rune(pattern)
	// reach[i] reports whether the first i characters of the pattern match the text read so far.
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

// skipOptional extends reach past wildcards, because they can match the empty string.
func skipOptional(p []rune, reach []bool) {
	for i, r := range p {
		if (r == '*' || r == '?') && reach[i] {
			reach[i+1] = true
		}
	}
}
