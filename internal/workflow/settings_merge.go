package workflow

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// Settings are merged as JSON trees, because a merge must distinguish a missing member from a null
// or empty one. A tree contains only members that Settings has, under their canonical names,
// because clients written in Go capitalize untagged fields.

// MergeSettings applies a patch to stored settings: null removes a member, objects are merged, and
// any other value replaces the stored one. Two exceptions match what authors of patches expect. A
// patch replaces the member vcs and each secret as a whole. Setting some of several exclusive members
// (kinds of source, modes of gitAuth, branch, commit and tag) removes the others. Stored
// credentials apply only to the address for which they were given. base may be nil.
func MergeSettings(base *Settings, patch []byte) (*Settings, error) {
	p, err := parseTree(patch)
	if err != nil {
		return nil, err
	}
	b, err := settingsTree(base)
	if err != nil {
		return nil, err
	}
	return mergeSettings(b, p)
}

func settingsTree(s *Settings) (map[string]any, error) {
	if s == nil {
		return map[string]any{}, nil
	}
	data, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return parseTree(data)
}

func parseTree(data []byte) (map[string]any, error) {
	var raw map[string]any
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, describeDecode(err)
	}
	known, _ := normalize(reflect.TypeFor[Settings](), raw).(map[string]any)
	if known == nil {
		known = map[string]any{}
	}
	return known, nil
}

var (
	secretType = reflect.TypeFor[Secret]()
	imageType  = reflect.TypeFor[ImageSettings]()
)

// objectType returns the type of the JSON object whose members have the names and types that t has.
func objectType(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == imageType {
		return reflect.TypeFor[imageObject]()
	}
	return t
}

// membersOf returns the types of an object's members by name, or nil if t does not list its members.
func membersOf(t reflect.Type) map[string]reflect.Type {
	if t.Kind() != reflect.Struct || t == secretType {
		return nil
	}
	members := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous { // their fields are in the list as well
			members[name] = f.Type
		}
	}
	return members
}

// normalize returns v with only the members that t has, under t's names, whatever their JSON type.
func normalize(t reflect.Type, v any) any {
	members := membersOf(objectType(t))
	m, ok := v.(map[string]any)
	if !ok || members == nil {
		return v
	}
	out := make(map[string]any, len(m))
	for name, t := range members {
		if value, ok := lookupFold(m, name); ok {
			out[name] = normalize(t, value)
		}
	}
	return out
}

// lookupFold returns the member with exactly this name, or else a member whose name differs only in
// case.
func lookupFold(m map[string]any, name string) (any, bool) {
	if v, ok := m[name]; ok {
		return v, true
	}
	for k, v := range m {
		if strings.EqualFold(k, name) {
			return v, true
		}
	}
	return nil, false
}

// exclusive lists members that exclude each other, by the path of their parent. Setting one removes
// the others. If a patch sets several, validation reports the conflict, except that a commit or a branch
// takes precedence over a tag, and that the runner chooses among credentials by the URL's scheme, a token
// before a password.
var exclusive = map[string][]string{
	"sourceContext":                  {"git", "hg", "template"},
	"sourceContext.git":              {"branch", "commit", "tag"},
	"sourceContext.hg":               {"branch", "revision"},
	"sourceContext.git.gitAuth":      {"accessToken", "sshAuth", "basicAuth"},
	"sourceContext.hg.hgAuth":        {"accessToken", "sshAuth", "basicAuth"},
	"sourceContext.template.gitAuth": {"accessToken", "sshAuth", "basicAuth"},
}

func mergeTree(base, patch map[string]any, path string) {
	dropRivals(base, patch, path)
	for name, value := range patch {
		at := strings.TrimPrefix(path+"."+name, ".")
		if value == nil {
			delete(base, name)
			continue
		}
		sub, isObject := value.(map[string]any)
		if !isObject || isWhole(path, at) {
			base[name] = value
			continue
		}
		old, ok := base[name].(map[string]any)
		if !ok {
			old = map[string]any{}
			if ref, isString := base[name].(string); isString && at == imagePath {
				old["reference"] = ref
			}
		}
		mergeTree(old, sub, at)
		base[name] = old
	}
}

const imagePath = "executorContext.executorImage"

// isWhole reports whether a patch replaces the object as a whole instead of merging it.
func isWhole(parent, at string) bool {
	switch at {
	case "vcs",
		imagePath + ".credentials.password":
		return true
	}
	if parent == "operationContext.environmentVariables" {
		return true
	}
	last := at[strings.LastIndexByte(at, '.')+1:]
	switch last {
	case "accessToken", "sshPrivateKey", "userName", "password":
		return strings.HasPrefix(at, "sourceContext.")
	}
	return false
}

func dropRivals(base, patch map[string]any, path string) {
	var set []string
	for _, name := range exclusive[path] {
		if v, ok := patch[name]; ok && v != nil && v != "" {
			set = append(set, name)
		}
	}
	if len(set) == 0 {
		return
	}
	for _, name := range exclusive[path] {
		if !slices.Contains(set, name) {
			delete(base, name)
		}
	}
}

// dropEmpty removes null, "", [] and {} from a request, except environment variables with empty
// values.
func dropEmpty(m map[string]any) {
	for name, value := range m {
		switch v := value.(type) {
		case nil:
			delete(m, name)
		case string:
			if v == "" {
				delete(m, name)
			}
		case []any:
			if len(v) == 0 {
				delete(m, name)
			}
		case map[string]any:
			if name == "environmentVariables" {
				for k, e := range v {
					if e == nil {
						delete(v, k)
					}
				}
			} else {
				dropEmpty(v)
			}
			if len(v) == 0 {
				delete(m, name)
			}
		}
	}
}
