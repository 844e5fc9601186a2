package journal

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"workflowagent/internal/server/stacks/rawjson"
)

// unknownID replaces the missing ID of a provider in references.
const unknownID = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

const providerModule = "pulumi:providers:"

// integrity returns an error if the CLI would refuse to read a state, as it does if a resource
// precedes one that it depends on.
func integrity(d *Deployment) error {
	urns, live, providers := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i, resource := range d.Resources {
		r := linksOf(resource)
		switch {
		case r.urn == "" || r.kind == "":
			return fmt.Errorf("resource %d has no URN or no type", i)
		case !r.custom && r.id != "":
			return fmt.Errorf("resource %d has an ID, but is a component", i)
		case r.provider != "" && !providers[r.provider] && !r.pending:
			return fmt.Errorf("resource %d refers to a provider that does not precede it", i)
		}
		for _, urn := range r.needs {
			if !urns[urn] {
				return fmt.Errorf("resource %d refers to a resource that does not precede it", i)
			}
		}
		if isProvider(r.kind) {
			if urnKind, ok := typeOfURN(r.urn); !ok || !isProvider(urnKind) {
				return fmt.Errorf("resource %d is a provider, but its URN is not one of a provider", i)
			}
			r.id = cmp.Or(r.id, unknownID)
			providers[r.urn+"::"+r.id] = true
		}
		if !r.deleted {
			if live[r.urn] {
				return fmt.Errorf("resource %d has the URN of another resource", i)
			}
			live[r.urn] = true
		}
		urns[r.urn] = true
	}
	uuids := map[string]bool{}
	for snippet := range rawjson.Elements(d.Member("snippets")) {
		uuid := textOf(rawjson.Member(snippet, "uuid"))
		if uuid == "" || uuids[uuid] {
			return errors.New("a snippet has no UUID or the UUID of another snippet")
		}
		uuids[uuid] = true
	}
	return nil
}

func isProvider(kind string) bool {
	return strings.HasPrefix(kind, providerModule) && len(kind) > len(providerModule)
}

// links are the members of a resource that [integrity] reads.
type links struct {
	urn, kind, id, provider  string
	custom, deleted, pending bool
	needs                    []string // URNs of resources that must precede it
}

func linksOf(resource []byte) links {
	var l links
	need := func(urn []byte) {
		if urn := textOf(urn); urn != "" {
			l.needs = append(l.needs, urn)
		}
	}
	for name, value := range rawjson.Members(resource) {
		switch name {
		case "urn":
			l.urn = textOf(value)
		case "type":
			l.kind = textOf(value)
		case "id":
			l.id = textOf(value)
		case "provider":
			l.provider = textOf(value)
		case "custom":
			l.custom = isTrue(value)
		case "delete":
			l.deleted = isTrue(value)
		case "pendingReplacement":
			l.pending = isTrue(value)
		case "parent", "deletedWith":
			need(value)
		case "dependencies":
			l.needs = append(l.needs, textsOf(value)...)
		case "propertyDependencies":
			for _, list := range rawjson.Members(value) {
				l.needs = append(l.needs, textsOf(list)...)
			}
		}
	}
	return l
}
