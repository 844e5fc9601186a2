package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// maxWarnings is the number of unknown members that [Ignored] reports.
const maxWarnings = 10

// requestMembers are members of a request besides those of the settings: those of a deployment's
// request, and those of the answer, which clients send back.
var requestMembers = []string{"operation", "inheritSettings", "version", "source", "warnings"}

// Ignored returns a sentence for each member of a settings object, or of a deployment's request, that
// does not exist and therefore has no effect. Clients send members of other versions, so these are no
// errors.
func Ignored(data []byte) []string {
	var raw map[string]any
	if json.Unmarshal(data, &raw) != nil {
		return nil
	}
	for name := range raw {
		if slices.ContainsFunc(requestMembers, func(known string) bool { return strings.EqualFold(known, name) }) {
			delete(raw, name)
		}
	}
	var found []string
	unknown(reflect.TypeFor[Settings](), raw, "", &found)
	slices.Sort(found)
	if n := len(found); n > maxWarnings {
		found = append(found[:maxWarnings], fmt.Sprintf("%d more members do not exist and were ignored", n-maxWarnings))
	}
	return found
}

// unknown adds a sentence for each member of v, at path, that t does not have.
func unknown(t reflect.Type, v any, path string, found *[]string) {
	types := membersOf(objectType(t))
	m, ok := v.(map[string]any)
	if !ok || types == nil {
		return
	}
	for name, value := range m {
		known, t := name, types[name]
		for other, of := range types {
			if t == nil && strings.EqualFold(other, name) {
				known, t = other, of
			}
		}
		if t != nil {
			unknown(t, value, path+known+".", found)
			continue
		}
		// Another check refuses the operation in this place.
		if value == nil || path == "operationContext." && strings.EqualFold(name, "operation") {
			continue
		}
		names := strings.Join(slices.Sorted(maps.Keys(types)), ", ")
		*found = append(*found, fmt.Sprintf("%q does not exist and was ignored: the members here are %s", clip(path+name), names))
	}
}
