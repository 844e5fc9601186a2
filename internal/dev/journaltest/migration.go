package journaltest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// NewMigration is like [New], but the journal migrates the state. Unlike the journals of New, it is
// one that the CLI's replay can refuse: often nothing is wrong with it, and otherwise one thing is.
func NewMigration(seed uint64) Case {
	m := &migrator{generator: &generator{Rand: rand.New(rand.NewPCG(seed, 12)), removed: map[int]bool{}}}
	m.resources = []object{{"urn": providerURN, "custom": true, "type": "pulumi:providers:test", "id": "id"}}
	for range m.IntN(7) {
		m.resources = append(m.resources, m.tidy(m.name(), m.resources))
	}
	d := object{"manifest": object{"time": "2026-01-01T00:00:00Z"}, "resources": slices.Clone(m.resources)}
	if m.chance(25) {
		d["pending_operations"] = []object{m.operation()}
	}
	if !m.chance(4) {
		d["extensions"] = object{"x": m.extension()}
	}
	base := m.encode(object{"version": 3, "deployment": d})
	for range 1 + m.IntN(2) {
		for range m.IntN(5) {
			m.change()
		}
		m.migrate()
	}
	for range m.IntN(4) {
		m.change()
	}
	return Case{Base: base, Entries: m.encode(m.entries)}
}

// migrator generates journals whose states are valid.
type migrator struct {
	*generator
	resources []object // of the base
	added     []object // by the journal
	by        []int64  // operations that added them
	names     int
}

func (m *migrator) name() string {
	m.names++
	return fmt.Sprintf("urn:pulumi:dev::shop::test:index:Thing::r%d", m.names)
}

// tidy returns a resource that refers to some of those before it.
func (m *migrator) tidy(urn string, before []object) object {
	r := object{"urn": urn, "custom": true, "type": "test:index:Thing", "id": "id"}
	if m.chance(5) {
		delete(r, "id")
		r["custom"] = false
	}
	some := func() string {
		if m.chance(300) {
			return m.urn()
		}
		return before[m.IntN(len(before))]["urn"].(string)
	}
	if len(before) == 0 {
		return r
	}
	if before[0]["urn"] == providerURN && m.chance(2) {
		r["provider"] = providerURN + "::id"
	}
	if m.chance(3) {
		r["parent"] = some()
	}
	if m.chance(2) {
		r["dependencies"] = []string{some(), some()}
	}
	if m.chance(4) {
		r["propertyDependencies"] = object{"text": []string{some()}}
	}
	if m.chance(10) {
		r["deletedWith"] = some()
	}
	if m.chance(20) {
		r["delete"] = true
	}
	return r
}

// change adds an entry, or an operation with its end, that precedes or follows a migration.
func (m *migrator) change() {
	m.next++
	members := object{"operationID": m.next}
	old := m.IntN(len(m.resources))
	urn := m.resources[old]["urn"].(string)
	switch n := m.IntN(20); {
	case n < 6: // unchanged or updated
		members["state"], members["removeOld"] = m.tidy(urn, m.added), old
	case n < 10: // created
		members["state"] = m.tidy(m.name(), m.added)
	case n < 12:
		members["deleteOld"] = old
	case n < 13:
		members["removeOld"] = old
	case n < 14:
		members["pendingReplacementOld"] = old
	case n < 15 && len(m.by) > 0:
		members["removeNew"] = m.by[m.IntN(len(m.by))]
	case n < 17:
		members["removeOld"], members["state"] = old, m.tidy(urn, m.resources[:max(1, old)])
		m.emit([]int{outputs, refreshSuccess}[n%2], members)
		return
	case n < 18:
		m.emit(extensionParameterize, object{"extensionRef": m.extensionRef(), "extension": m.extension()})
		return
	default:
		m.emit(begin, object{"operationID": m.next, "operation": m.operation()})
		if !m.chance(10) {
			m.emit(failure, members)
		}
		return
	}
	if m.chance(2) {
		m.emit(begin, object{"operationID": m.next})
	}
	m.emit(success, members)
	if state, ok := members["state"].(object); ok {
		m.added, m.by = append(m.added, state), append(m.by, m.next)
	}
}

// migrate adds a migration that replaces a resource of the base.
func (m *migrator) migrate() {
	gone := m.IntN(len(m.resources)+1) - 1
	inserted := []object{}
	for range 1 + m.IntN(2) {
		inserted = append(inserted, object{"urn": m.name(), "custom": true, "type": "test:index:Thing", "id": "id"})
		if m.chance(12) {
			inserted[0]["extensionRef"] = "x"
		}
	}
	layout, now, base, added := []object{}, []object{}, []object{}, []object{}
	for i, r := range m.resources {
		if i == max(gone, 0) {
			for j, state := range inserted {
				layout, now = append(layout, object{"stateIndex": j}), append(now, state)
			}
		}
		if i == gone {
			continue
		}
		layout = append(layout, object{"baseIndex": i})
		if gone >= 0 && !m.chance(100) || m.chance(4) {
			r = maps.Clone(r)
			for _, name := range []string{"parent", "deletedWith", "propertyDependencies", "provider"} {
				delete(r, name)
			}
			if len(now) > 0 {
				r["dependencies"] = []string{now[len(now)-1]["urn"].(string)}
			}
			base = append(base, object{"index": i, "state": r})
		}
		now = append(now, r)
	}
	for i, operation := range m.by {
		if m.chance(3) && !slices.ContainsFunc(added, func(p object) bool { return p["operationID"] == operation }) {
			state := maps.Clone(m.added[i])
			state["outputs"] = object{"migrated": true}
			added = append(added, object{"operationID": operation, "state": state})
		}
	}
	members := object{"version": 2, "layout": layout, "states": inserted, "baseStatePatches": base, "newStatePatches": added}
	if m.chance(4) {
		m.spoil(members, inserted[len(inserted)-1], gone)
	}
	m.emit(stateMigration, members)
	m.resources = now
}

// spoil makes a migration one that must be refused.
func (m *migrator) spoil(members, inserted object, gone int) {
	layout := members["layout"].([]object)
	patch := func(name, key string, of any) {
		p := object{key: of, "state": m.tidy(m.name(), nil)}
		members[name] = append(members[name].([]object), p)
	}
	place := func(items ...object) { members["layout"] = append(slices.Clone(layout), items...) }
	switch m.IntN(18) {
	case 0:
		members["version"] = 1
	case 1:
		members["states"] = []object{}
	case 2:
		place(layout[0])
	case 3:
		place(object{"baseIndex": 1000})
	case 4:
		place(object{"stateIndex": 2})
	case 5:
		place(object{})
	case 6:
		layout[0] = object{"baseIndex": 0, "stateIndex": 0}
	case 7:
		members["states"] = append(members["states"].([]object), m.tidy(m.name(), nil))
	case 8:
		inserted["urn"] = "urn:pulumi:dev::shop::test:index:Thing"
	case 9:
		inserted["type"] = "test:index:Other"
	case 10:
		inserted["delete"] = true
	case 11:
		inserted["viewOf"] = providerURN
	case 12:
		delete(inserted, "id")
	case 13:
		inserted["extensionRef"] = "unknown"
	case 14:
		patch("baseStatePatches", "index", max(gone, 1000*(1-min(gone+1, 1))))
	case 15:
		patch("newStatePatches", "operationID", 1_000_000)
	case 16:
		inserted["dependencies"] = []string{"urn:pulumi:dev::shop::test:index:Thing::missing"}
	case 17:
		inserted["urn"] = m.resources[len(m.resources)-1]["urn"]
	}
}
