package journal

import (
	"bytes"
	"encoding/json"

	"workflowagent/internal/server/stacks/rawjson"
)

// textOf returns the string that a raw JSON string encodes, or "" for other values.
func textOf(v []byte) string {
	if len(v) == 0 || !isText(v) {
		return ""
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1])
	}
	var s string
	if err := json.Unmarshal(v, &s); err != nil {
		return ""
	}
	return s
}

func textsOf(list []byte) []string {
	var out []string
	for v := range rawjson.Elements(list) {
		out = append(out, textOf(v))
	}
	return out
}

// encode returns the JSON form of v.
func encode[T string | []string | map[string]string](v T) []byte {
	data, _ := json.Marshal(v) // strings always have a JSON form
	return data
}

// rewrite returns an object with changed members, in their original order. change returns a
// member's new value, or nil to remove the member. If nothing changes, rewrite returns object
// itself and copies nothing.
func rewrite(object []byte, change func(name string, value []byte) []byte) []byte {
	var out []byte
	changed, same := false, 0
	for name, value := range rawjson.Members(object) {
		now := change(name, value)
		if !changed {
			if now != nil && bytes.Equal(now, value) {
				same++
				continue
			}
			changed, out = true, firstMembers(object, same)
		}
		if now != nil {
			out = appendMember(out, name, now)
		}
	}
	if !changed {
		return object
	}
	if out == nil {
		return []byte("{}")
	}
	out[0] = '{'
	return append(out, '}')
}

// firstMembers returns the first n members of an object, each after a comma.
func firstMembers(object []byte, n int) []byte {
	if n == 0 {
		return nil
	}
	out := make([]byte, 0, len(object))
	for name, value := range rawjson.Members(object) {
		if n == 0 {
			break
		}
		out = appendMember(out, name, value)
		n--
	}
	return out
}

func appendMember(out []byte, name string, value []byte) []byte {
	return append(append(append(append(out, ',', '"'), name...), '"', ':'), value...)
}

// rewriteList is [rewrite] for arrays.
func rewriteList(list []byte, change func(value []byte) []byte) []byte {
	var out []byte
	changed := false
	for value := range rawjson.Elements(list) {
		now := change(value)
		if changed = changed || now == nil || !bytes.Equal(now, value); now == nil {
			continue
		}
		out = append(append(out, ','), now...)
	}
	if !changed {
		return list
	}
	if out == nil {
		return []byte("[]")
	}
	out[0] = '['
	return append(out, ']')
}

// empty reports whether an object or array has no members.
func empty(v []byte) bool {
	return len(v) == 0 || isNull(v) || len(v) == rawjson.SkipSpace(v, 1)+1
}

// setTrue sets a member of an object to true.
func setTrue(object []byte, name string) []byte {
	exists := false
	out := rewrite(object, func(n string, value []byte) []byte {
		if n != name {
			return value
		}
		exists = true
		return []byte("true")
	})
	if exists || !isObject(object) {
		return out
	}
	separator := ","
	if empty(object) {
		separator = ""
	}
	end := len(object) - 1
	out = make([]byte, 0, len(object)+len(name)+8)
	out = append(append(append(out, object[:end]...), separator+`"`...), name...)
	return append(out, `":true}`...)
}
