// Package journaltest generates states and journals for replay tests. Each journal is one that an
// update of the state could send, but has more unusual steps than the journals of real updates.
package journaltest

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
)

// Case is a state and a journal that refers to it.
type Case struct {
	Base    []byte // JSON document of the state
	Entries []byte // JSON array
}

// object is a JSON object.
type object = map[string]any

// New returns the test case generated from seed. The same seed always yields the same case.
func New(seed uint64) Case {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 11)), removed: map[int]bool{}}
	base := g.document()
	for range g.IntN(30) {
		g.step()
	}
	if len(g.entries) == 0 || g.chance(4) {
		g.finishAll()
	}
	if g.chance(6) {
		g.emit(rebuiltBaseState, object{})
	}
	return Case{Base: g.encode(base), Entries: g.encode(g.entries)}
}

// The kinds of entries.
const (
	begin = iota
	success
	failure
	refreshSuccess
	outputs
	write
	secretsManager
	rebuiltBaseState
	extensionParameterize
	snippets
	stateMigration
)

type generator struct {
	*rand.Rand
	entries  []object
	sequence int64
	next     int64 // operation
	base     int   // resources of the base
	removed  map[int]bool
	open     []int64 // operations that have begun
	known    []int64 // operations with a new resource
}

// chance returns true in one of n cases.
func (g *generator) chance(n int) bool { return g.IntN(n) == 0 }

// encode returns the JSON of v, sometimes indented.
func (g *generator) encode(v any) []byte {
	data, _ := json.Marshal(v) // generated values have a JSON form
	if g.chance(10) {
		data, _ = json.MarshalIndent(v, " ", "\t")
	}
	return data
}

// emit adds an entry. Sequence numbers have gaps and can be out of order.
func (g *generator) emit(kind int, members object) {
	g.sequence += 1 + int64(g.IntN(3)/2)
	e := object{"version": 1, "kind": kind, "sequenceID": g.sequence, "operationID": 0, "removeOld": nil, "removeNew": nil}
	maps.Copy(e, members)
	if g.chance(40) {
		e["requiresByteString"] = true
	}
	if g.chance(20) {
		e["laterMember"] = object{"kind": "unknown"}
	}
	g.entries = append(g.entries, e)
	if n := len(g.entries); n > 1 && g.chance(10) {
		last, previous := g.entries[n-1], g.entries[n-2]
		last["sequenceID"], previous["sequenceID"] = previous["sequenceID"], last["sequenceID"]
	}
}

func (g *generator) step() {
	switch n := g.IntN(100); {
	case n < 35:
		g.begin()
	case n < 75 && len(g.open) > 0:
		g.finish(g.IntN(len(g.open)))
	case n < 80:
		g.outputs()
	case n < 82, n < 90 && len(g.entries) == 0:
		document := g.deployment()
		g.emit(write, object{"newSnapshot": document})
	case n < 93:
		g.emit(secretsManager, object{"secretsProvider": g.secretsProvider()})
	case n < 94:
		g.emit(snippets, object{"snippets": g.snippets()})
	case n < 96:
		g.emit(extensionParameterize, object{"extensionRef": g.extensionRef(), "extension": g.extension()})
	case n < 100 && len(g.known) == 0:
		// After an entry with a new resource, this entry would have to be the last one.
		g.emit(rebuiltBaseState, object{})
		before := g.base
		for index := range g.removed {
			if index < before {
				g.base--
			}
		}
		clear(g.removed)
	}
}

func (g *generator) begin() {
	g.next++
	members := object{"operationID": g.next}
	if !g.chance(3) {
		members["operation"] = g.operation()
	}
	g.emit(begin, members)
	g.open = append(g.open, g.next)
}

func (g *generator) finishAll() {
	for len(g.open) > 0 {
		g.finish(0)
	}
}

// finish ends an open operation.
func (g *generator) finish(i int) {
	id := g.open[i]
	g.open = append(g.open[:i], g.open[i+1:]...)
	members := object{"operationID": id}
	state := g.chance(2)
	switch n := g.IntN(20); {
	case n < 2:
		// A failed operation can refer to operations without resources.
		members["state"] = g.resource()
		members["removeNew"] = 1_000_000
		g.emit(failure, members)
		return
	case n < 4: // same, update
		state = true
		g.either(members, "removeOld", "removeNew")
	case n < 8: // create
		state = true
	case n < 10: // create before delete
		state = true
		g.either(members, "deleteOld", "deleteNew")
	case n < 12: // delete
		g.either(members, "removeOld", "removeNew")
	case n < 13: // delete before create
		g.either(members, "pendingReplacementOld", "pendingReplacementNew")
	case n < 16: // refresh
		g.either(members, "removeOld", "removeNew")
		members["isRefresh"] = true
		if state {
			members["state"] = g.resource()
		}
		if g.chance(4) && state { // persisted
			g.succeed(id, members)
			return
		}
		g.emit(refreshSuccess, members)
		if !state {
			g.remove(members)
		}
		return
	default:
		for _, pair := range [][2]string{
			{"removeOld", "removeNew"}, {"deleteOld", "deleteNew"}, {"pendingReplacementOld", "pendingReplacementNew"},
		} {
			if g.chance(2) {
				g.either(members, pair[0], pair[1])
			}
		}
	}
	if state {
		members["state"] = g.resource()
	}
	g.succeed(id, members)
}

func (g *generator) succeed(id int64, members object) {
	g.emit(success, members)
	g.remove(members)
	if members["state"] != nil {
		g.known = append(g.known, id)
	}
	if g.chance(40) {
		g.open = append(g.open, id) // ends twice
	}
}

func (g *generator) remove(members object) {
	if index, ok := members["removeOld"].(int); ok {
		g.removed[index] = true
	}
}

// either adds a reference to a resource: as the member old for one of the base, or as the member
// new for one of the journal.
func (g *generator) either(members object, old, new string) {
	if g.base > 0 && (len(g.known) == 0 || g.chance(2)) {
		members[old] = g.IntN(g.base)
	} else if len(g.known) > 0 {
		members[new] = g.known[g.IntN(len(g.known))]
	}
}

func (g *generator) outputs() {
	g.next++
	members := object{"operationID": g.next}
	if len(g.open) > 0 && g.chance(3) {
		members["operationID"] = g.open[0]
	}
	g.either(members, "removeOld", "removeNew")
	if !g.chance(10) {
		members["state"] = g.resource()
	}
	g.emit(outputs, members)
}
