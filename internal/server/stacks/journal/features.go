package journal

import (
	"maps"
	"slices"

	"workflowagent/internal/server/stacks/rawjson"
)

// Schema versions of states. Clients read the feature list only in the newer version.
const (
	plainVersion    = 3
	featuresVersion = 4
)

// features is the set of a state's features that older clients do not understand.
type features map[string]bool

// add adds the features of a resource.
func (f features) add(resource []byte) {
	for name, value := range rawjson.Members(resource) {
		switch name {
		case "refreshBeforeUpdate":
			f.when(isTrue(value), "refreshBeforeUpdate")
		case "viewOf":
			f.when(textOf(value) != "", "views")
		case "resourceHooks":
			f.when(!empty(value), "hooks")
		case "taint":
			f.when(isTrue(value), "taint")
		case "replaceWith":
			f.when(!empty(value), "replaceWith")
		case "extensionRef":
			f.when(textOf(value) != "", "extensionParameterization")
		case "snippetID":
			f.when(textOf(value) != "", "snippets-prototype")
		}
	}
}

func (f features) when(used bool, name string) {
	if used {
		f[name] = true
	}
}

func (f features) version() int64 {
	if len(f) > 0 {
		return featuresVersion
	}
	return plainVersion
}

func (f features) names() []string { return slices.Sorted(maps.Keys(f)) }
