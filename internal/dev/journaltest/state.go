package journaltest

import (
	"cmp"
	"strings"
)

const stackURN = "urn:pulumi:dev::shop::pulumi:pulumi:Stack::shop-dev"

// urns returns the URNs of resources, some of which are children of others.
func urns() []string {
	out := []string{stackURN, providerURN}
	for _, kind := range []string{"test:index:Thing", "test:index:Group", "test:index:Group$test:index:Thing"} {
		for _, name := range []string{"a", "b", "c", `quoted "name" <&> é \ :: more`} {
			out = append(out, "urn:pulumi:dev::shop::"+kind+"::"+name)
		}
	}
	return out
}

const providerURN = "urn:pulumi:dev::shop::pulumi:providers:test::provider"

// former returns a former URN of the resource urn, which can be an alias.
func former(urn string) string {
	i := strings.LastIndex(urn, "::") + 2
	return urn[:i] + "was-" + urn[i:]
}

// urn returns a random URN, sometimes a former URN or the empty string.
func (g *generator) urn() string {
	all := urns()
	urn := all[g.IntN(len(all))]
	switch {
	case g.chance(5):
		return former(urn)
	case g.chance(30):
		return ""
	}
	return urn
}

func (g *generator) urns() []string {
	out := []string{}
	for range g.IntN(4) {
		out = append(out, g.urn())
	}
	return out
}

func (g *generator) document() object {
	if g.chance(8) {
		return object{"version": 3, "deployment": nil}
	}
	return object{"version": 3 + g.IntN(2), "features": []string{"views"}, "deployment": g.deployment()}
}

// deployment returns a random deployment, which becomes the base.
func (g *generator) deployment() object {
	resources := []object{}
	for range g.IntN(7) {
		resources = append(resources, g.resource())
	}
	g.base = len(resources)
	d := object{
		"manifest":    object{"time": "2026-01-01T00:00:00Z", "magic": "magic", "version": "v3.1.0"},
		"resources":   resources,
		"metadata":    object{},
		"laterMember": []int{1},
	}
	if !g.chance(3) {
		d["secrets_providers"] = g.secretsProvider()
	}
	if g.chance(2) {
		d["pending_operations"] = []object{g.operation(), g.operation()}
	}
	if g.chance(5) {
		d["metadata"] = object{"integrity_error": object{"version": "4", "error": "text"}}
	}
	if g.chance(5) {
		d["snippets"] = g.snippets()
	}
	if g.chance(3) {
		d["extensions"] = object{g.extensionRef(): g.extension(), g.extensionRef(): g.extension()}
	}
	return d
}

func (g *generator) secretsProvider() object {
	return object{"type": []string{"service", "passphrase"}[g.IntN(5)/4], "state": object{"project": []string{"shop", "other"}[g.IntN(2)]}}
}

func (g *generator) operation() object {
	kinds := []string{"creating", "creating", "updating", "deleting", "reading", "importing"}
	return object{"resource": g.resource(), "type": kinds[g.IntN(len(kinds))]}
}

func (g *generator) snippets() []object {
	out := []object{}
	for range g.IntN(3) {
		out = append(out, object{
			"uuid": "0f", "name": "snippet", "type": "test:index:Thing", "code": "a = 1", "descriptor": object{"name": "test"},
			"references": object{"one": g.urn(), "two": g.urn()},
		})
	}
	return out
}

func (g *generator) extensionRef() string { return []string{"x", "y", "z"}[g.IntN(3)] }

func (g *generator) extension() object {
	return object{"name": []string{"one", "two"}[g.IntN(2)], "version": "1.0.0", "value": "AAEC"}
}

func (g *generator) resource() object {
	urn := cmp.Or(g.urn(), stackURN)
	r := object{
		"urn": urn, "custom": true, "type": "test:index:Thing", "id": "id",
		"inputs":  object{"number": g.IntN(1000), "text": "<&>é\u2028", "empty": object{}},
		"outputs": object{"secret": object{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "AAAA"}},
	}
	if g.chance(2) {
		r["parent"] = g.urn()
	}
	if g.chance(2) {
		r["provider"] = g.provider()
	}
	g.setReferences(r)
	g.setAliases(r, urn)
	for _, name := range []string{
		"delete", "pendingReplacement", "protect", "taint", "external", "retainOnDelete", "refreshBeforeUpdate",
	} {
		if g.chance(25) {
			r[name] = !g.chance(4)
		}
	}
	for _, rare := range []struct {
		name  string
		value any
	}{
		{"resourceHooks", object{"before-create": []string{"hook"}}},
		{"resourceHooks", object{}},
		{"extensionRef", "x"},
		{"snippetID", "0f"},
		{"initErrors", []string{"failed"}},
		{"importID", "id"},
		{"created", "2026-01-01T00:00:00Z"},
		{"customTimeouts", object{"create": 5}},
		{"sourcePosition", "project:///main.go#1,2"},
		{"ignoreChanges", []string{"a"}},
		{"dependencies", nil},
		{"laterMember", object{"urn": "x"}},
	} {
		if g.chance(25) {
			r[rare.name] = rare.value
		}
	}
	return r
}

func (g *generator) provider() string {
	if g.chance(4) {
		return former(providerURN) + "::id"
	}
	return providerURN + "::id"
}

func (g *generator) setReferences(r object) {
	if g.chance(2) {
		r["dependencies"] = g.urns()
	}
	if g.chance(2) {
		dependencies := object{}
		for _, name := range []string{"number", "text", "list"}[:g.IntN(4)] {
			dependencies[name] = g.urns()
		}
		r["propertyDependencies"] = dependencies
	}
	if g.chance(6) {
		r["deletedWith"] = g.urn()
	}
	if g.chance(6) {
		r["replaceWith"] = g.urns()
	}
	if g.chance(12) {
		r["viewOf"] = g.urn()
	}
}

// setAliases gives some resources aliases. It rarely lets two resources claim the same alias,
// because the CLI rejects such a state. It never renames the provider to another type, because the
// CLI panics.
func (g *generator) setAliases(r object, urn string) {
	switch {
	case g.chance(8):
		r["aliases"] = []string{former(urn), former(urn)}
	case g.chance(20):
		r["aliases"] = []string{}
	case g.chance(60):
		all := urns()[2:]
		r["aliases"] = []string{all[g.IntN(len(all))], stackURN}[:1+g.IntN(10)/9]
	}
}
