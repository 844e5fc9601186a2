package journal

import (
	"slices"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/rawjson"
)

// maxRebases limits the duration of a replay: each rebase processes all resources. The CLI sends at
// most two.
const maxRebases = 10

// maxMigrations does the same for migrations of the state, each of which is also replayed when it arrives.
const maxMigrations = 100

// Progress validates the references of entries in their order of arrival, and counts the state's
// resources. It holds no resources itself.
type Progress struct {
	base    int // number of resources of the base
	removed int // number of resources of the base that are removed
	added   int // number of resources of the journal, including removed ones

	rebases    int                // number of entries that change the base
	migrations int                // number of migrations of the state
	operations map[int64]int      // index of each of the journal's resources, by operation
	removedOld map[int64]struct{} // indexes in the base
	removedNew map[int64]struct{} // operations
}

// NewProgress returns the progress of an empty journal. resources is the number of resources of its
// base.
func NewProgress(resources int) *Progress {
	p := &Progress{}
	p.rebase(resources)
	return p
}

func (p *Progress) rebase(resources int) {
	*p = Progress{
		base: resources, rebases: p.rebases, migrations: p.migrations, operations: map[int64]int{}, removedOld: map[int64]struct{}{}, removedNew: map[int64]struct{}{},
	}
}

// Resources returns the number of resources of the state after the entries added so far.
func (p *Progress) Resources() int {
	return p.base - p.removed + p.added - len(p.removedNew)
}

// Add validates and adds an entry. After an error, the progress is unchanged.
func (p *Progress) Add(e Entry) error {
	if err := p.check(&e); err != nil {
		return err
	}
	p.apply(&e, &undoLog{})
	return nil
}

// AddAll adds all entries, or none if one of them is invalid.
func (p *Progress) AddAll(entries []Entry) error {
	before, undo := *p, undoLog{}
	for i := range entries {
		if err := p.check(&entries[i]); err != nil {
			undo.revert()
			*p = before
			return err
		}
		p.apply(&entries[i], &undo)
	}
	return nil
}

// check returns an error if an entry has a reference that a replay could not follow.
func (p *Progress) check(e *Entry) error {
	switch e.Kind {
	case Success:
		return p.known(e, reference{e.RemoveOld, e.RemoveNew}, reference{e.DeleteOld, e.DeleteNew},
			reference{e.PendingReplacementOld, e.PendingReplacementNew})
	case RefreshSuccess:
		return p.known(e, reference{e.RemoveOld, e.RemoveNew})
	case Outputs:
		if e.State != nil {
			return p.known(e, reference{e.RemoveOld, e.RemoveNew})
		}
	case Write, RebuiltBaseState:
		if p.rebases == maxRebases {
			return fault.Invalid("journal entry %d changes the base of the journal for more than the %dth time", e.SequenceID, maxRebases)
		}
	case StateMigration:
		if p.migrations == maxMigrations {
			return fault.Invalid("journal entry %d migrates the state for more than the %dth time", e.SequenceID, maxMigrations)
		}
		return p.checkMigration(e)
	}
	return nil
}

// reference is an index in the base, or an operation in the journal.
type reference struct{ index, operation *int64 }

// known returns an error if a reference is unknown. A successful entry can refer to its own
// operation.
func (p *Progress) known(e *Entry, references ...reference) error {
	for _, r := range references {
		if r.index != nil && (*r.index < 0 || *r.index >= int64(p.base)) {
			return p.unknownResource(e, *r.index)
		}
		if r.operation == nil || e.Kind == Success && e.State != nil && *r.operation == e.OperationID {
			continue
		}
		if _, ok := p.operations[*r.operation]; !ok {
			return fault.Invalid("journal entry %d refers to the unknown operation %d", e.SequenceID, *r.operation)
		}
	}
	return nil
}

func (p *Progress) unknownResource(e *Entry, index int64) error {
	return fault.Invalid("journal entry %d refers to the unknown resource %d; the state at the start of the update has %d resources",
		e.SequenceID, index, p.base)
}

func (p *Progress) apply(e *Entry, undo *undoLog) {
	switch e.Kind {
	case Success:
		if e.State != nil {
			put(p.operations, e.OperationID, p.added, undo)
			p.added++
		}
		p.remove(e, undo)
	case RefreshSuccess:
		if e.State == nil {
			p.remove(e, undo)
		}
	case Write:
		p.rebases++
		p.base = 0
		for range rawjson.Elements(rawjson.Member(e.NewSnapshot, "resources")) {
			p.base++
		}
		p.removed = 0
		for index := range p.removedOld {
			if index < int64(p.base) {
				p.removed++
			}
		}
	case RebuiltBaseState:
		p.rebases++
		p.rebase(p.Resources())
	case StateMigration:
		p.migrate(e.migration)
	}
}

func (p *Progress) remove(e *Entry, undo *undoLog) {
	if e.RemoveOld != nil {
		if put(p.removedOld, *e.RemoveOld, struct{}{}, undo) {
			p.removed++
		}
	}
	if e.RemoveNew != nil {
		put(p.removedNew, *e.RemoveNew, struct{}{}, undo)
	}
}

// undoLog holds functions that undo changes to maps.
type undoLog []func()

func (u undoLog) revert() {
	for _, undo := range slices.Backward(u) {
		undo()
	}
}

// put sets a key and reports whether it is new.
func put[V any](m map[int64]V, key int64, value V, undo *undoLog) bool {
	old, exists := m[key]
	m[key] = value
	*undo = append(*undo, func() {
		if exists {
			m[key] = old
		} else {
			delete(m, key)
		}
	})
	return !exists
}
