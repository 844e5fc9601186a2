package journal

import (
	"strings"

	"workflowagent/internal/server/stacks/rawjson"
)

// dropDangling removes references to missing resources, which a refresh leaves behind. A resource
// must follow its dependencies, but its parent can be anywhere.
func dropDangling(resources [][]byte) {
	known := make(map[string]bool, len(resources))
	keep := func(urn []byte) []byte {
		if known[textOf(urn)] {
			return urn
		}
		return nil
	}
	for i, r := range resources {
		resources[i] = rewrite(r, func(name string, value []byte) []byte {
			switch name {
			case "dependencies", "replaceWith":
				return keepList(value, keep)
			case "propertyDependencies":
				return rewrite(value, func(_ string, list []byte) []byte {
					if list = keepList(list, keep); empty(list) {
						return nil
					}
					return list
				})
			case "deletedWith":
				return keep(value)
			}
			return value
		})
		known[textOf(rawjson.Member(r, "urn"))] = true
	}
	for i, r := range resources {
		resources[i] = rewrite(r, func(name string, value []byte) []byte {
			if name == "parent" {
				return keep(value)
			}
			return value
		})
	}
}

// keepList filters a list. It returns nil if it removes every element of a non-empty list.
func keepList(list []byte, keep func([]byte) []byte) []byte {
	if empty(list) {
		return list
	}
	if list = rewriteList(list, keep); empty(list) {
		return nil
	}
	return list
}

// aliases maps former URNs to current ones. It reserves memory for rewritten references, because a
// replay can repeat a long URN any number of times.
type aliases struct {
	current map[string]string
	kept    *keeper
}

// aliasesOf collects the aliases of resources. Children of a renamed resource are renamed with it.
// If two resources have the same alias, it belongs to the first one.
func aliasesOf(resources [][]byte, kept *keeper) aliases {
	a := aliases{map[string]string{}, kept}
	for _, r := range resources {
		var rawURN, rawParent, former []byte
		for name, value := range rawjson.Members(r) {
			switch name {
			case "urn":
				rawURN = value
			case "parent":
				rawParent = value
			case "aliases":
				former = value
			}
		}
		if len(a.current) == 0 && empty(former) {
			continue
		}
		urn := textOf(rawURN)
		for alias := range rawjson.Elements(former) {
			if alias := textOf(alias); a.current[alias] == "" {
				a.current[alias] = urn
			}
		}
		if current := a.current[textOf(rawParent)]; current != "" {
			a.adopt(urn, current)
		}
	}
	return a
}

// rootType is the type of the resource that represents a stack. Its children's types do not include
// it.
const rootType = "pulumi:pulumi:Stack"

// adopt renames a resource whose parent has a new URN.
func (a aliases) adopt(urn, parent string) {
	// A URN has the form urn:pulumi:STACK::PROJECT::PARENTTYPE$TYPE::NAME.
	parts, parentParts := strings.SplitN(urn, "::", 4), strings.SplitN(parent, "::", 4)
	if len(parts) < 4 || len(parentParts) < 4 || parentParts[2] == rootType {
		return
	}
	parts[2] = parts[2][strings.LastIndexByte(parts[2], '$')+1:]
	if !a.kept.take(len(urn) + len(parentParts[2])) {
		return
	}
	if parentParts[2] != "" {
		parts[2] = parentParts[2] + "$" + parts[2]
	}
	a.current[urn] = strings.Join(parts, "::")
}

func (a aliases) urn(value []byte) []byte {
	return a.replace(value, textOf(value), "")
}

// provider replaces the URN in a provider reference, which has the form URN::ID.
func (a aliases) provider(value []byte) []byte {
	ref := textOf(value)
	if i := strings.LastIndex(ref, "::"); i >= 0 {
		return a.replace(value, ref[:i], ref[i:])
	}
	return value
}

// replace returns the JSON string of a URN's current form with a suffix, or value if the URN is
// current.
func (a aliases) replace(value []byte, urn, suffix string) []byte {
	current, ok := a.current[urn]
	if !ok || a.kept.err != nil {
		return value
	}
	replaced := encode(current + suffix)
	if !a.kept.take(len(replaced)) {
		return value
	}
	return replaced
}

// resource replaces former URNs in a resource, and removes its aliases.
func (a aliases) resource(r []byte) []byte {
	return rewrite(r, func(name string, value []byte) []byte {
		switch name {
		case "urn", "parent", "deletedWith", "viewOf":
			return a.urn(value)
		case "provider":
			return a.provider(value)
		case "dependencies":
			return rewriteList(value, a.urn)
		case "propertyDependencies":
			return rewrite(value, func(_ string, list []byte) []byte { return rewriteList(list, a.urn) })
		case "aliases":
			if !empty(value) {
				return nil
			}
		}
		return value
	})
}

// snippets replaces former URNs in the references of snippets.
func (a aliases) snippets(list []byte) []byte {
	return rewriteList(list, func(snippet []byte) []byte {
		return rewrite(snippet, func(name string, value []byte) []byte {
			if name != "references" {
				return value
			}
			return rewrite(value, func(_ string, urn []byte) []byte { return a.urn(urn) })
		})
	})
}
