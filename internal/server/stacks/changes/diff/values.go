package diff

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"workflowagent/internal/server/stacks/changes"
)

// signature is the member that marks special values; secretSignature is its value in secrets.
const (
	signature       = "4dabf18193072939515e22adb298388d"
	secretSignature = "1b47061264138c4ac30d75fd1eb44270"
)

// unknowns are the texts that stand for values that are not known before an update, by the type of
// the value.
var unknowns = map[string]bool{
	"04da6b54-80e4-46f7-96ec-b56ff0331ba9": true, "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7": true, "3eeb2bf0-c639-47a8-9e75-3b44932eb421": true,
	"6a19a0b0-7e62-4c92-b797-7f8e31da9cc2": true, "030794c1-ac77-496b-92df-f27374a8bd58": true, "e48ece36-62e2-4504-bad9-02848725956a": true,
	"output<string>": true,
}

// text returns a value as text for people, without secrets.
func text(v any) string {
	switch v := hide(v, 0).(type) {
	case nil:
		return "null"
	case string:
		if v == Secret || v == Unknown {
			return v
		}
		if strings.Contains(v, "\n") {
			return cut(changes.Plain(v), maxValue)
		}
		return cut(quote(changes.Plain(v)), maxValue)
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return v.String()
	default:
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if enc.Encode(v) != nil {
			return ""
		}
		plain := strings.TrimSpace(changes.Plain(out.String()))
		if short := strings.Join(strings.Fields(plain), " "); len(short) < 80 {
			plain = short
		}
		return cut(plain, maxValue)
	}
}

func quote(s string) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil {
		return s
	}
	return strings.TrimSpace(out.String())
}

// secret reports whether a value is a secret.
func secret(v any) bool {
	m, ok := v.(map[string]any)
	return v == Secret || ok && m[signature] == secretSignature
}

// besides returns a value as text next to another one. A value that has become a secret, or was one, can be that secret.
func besides(v, other any) string {
	if other != nil && v != nil && secret(other) && !secret(v) {
		return Hidden
	}
	return text(v)
}

// Hide replaces the secrets and unknown values in a decoded JSON value by [Secret] and [Unknown].
func Hide(v any) any { return hide(v, 0) }

// hide replaces secrets and unknown values by their names.
func hide(v any, depth int) any {
	if depth > maxDepth {
		return "…"
	}
	switch v := v.(type) {
	case string:
		if unknowns[v] {
			return Unknown
		}
		return v
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = hide(e, depth+1)
		}
		return out
	case map[string]any:
		if sig, ok := v[signature]; ok {
			return special(v, sig, depth)
		}
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = hide(e, depth+1)
		}
		return out
	default:
		return v
	}
}

func special(v map[string]any, sig any, depth int) any {
	if sig == secretSignature {
		return Secret
	}
	for _, member := range []string{"path", "uri", "urn", "id", "text"} {
		if s, ok := v[member].(string); ok {
			return s
		}
	}
	if assets, ok := v["assets"]; ok {
		return hide(assets, depth+1)
	}
	if value, ok := v["value"]; ok {
		return hide(value, depth+1)
	}
	return "…"
}

// lines compares two texts line by line.
func lines(before, after string) []Line {
	const most = 400
	a, b := split(before, most), split(after, most)
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	common := make([][]int16, len(a)+1)
	for i := range common {
		common[i] = make([]int16, len(b)+1)
	}
	for i, x := range slices.Backward(a) {
		for j, y := range slices.Backward(b) {
			if x == y {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []Line
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, Line{"", a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out = append(out, Line{Delete, a[i]})
			i++
		default:
			out = append(out, Line{Add, b[j]})
			j++
		}
	}
	return out
}

func split(text string, most int) []string {
	if text == "" {
		return nil
	}
	out := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(out) > most {
		out = append(out[:most:most], "…")
	}
	return out
}

// Path splits a property path, such as a.b[0]["c.d"], into its keys.
func Path(path string) []string {
	var out []string
	for path != "" {
		switch path[0] {
		case '.':
			path = path[1:]
		case '[':
			if len(path) > 1 && path[1] == '"' {
				end := strings.Index(path[2:], `"]`)
				if end < 0 {
					return append(out, path)
				}
				out, path = append(out, strings.ReplaceAll(path[2:2+end], `\"`, `"`)), path[2+end+2:]
				continue
			}
			end := strings.IndexByte(path, ']')
			if end < 0 {
				return append(out, path)
			}
			out, path = append(out, path[1:end]), path[end+1:]
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				return append(out, path)
			}
			out, path = append(out, path[:end]), path[end:]
		}
	}
	return out
}

func lookup(from map[string]any, keys []string) (any, bool) {
	if from == nil || len(keys) == 0 {
		return nil, false
	}
	var v any = from
	for _, key := range keys {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[key]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// plainName is a key that needs no quotes in a path.
func plainName(key string) bool { return key != "" && !strings.ContainsAny(key, `.[]" `) }

func join(path, key string) string {
	switch {
	case !plainName(key):
		return path + `["` + strings.ReplaceAll(key, `"`, `\"`) + `"]`
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
