package journal

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/rawjson"
)

// migration is the content of a [StateMigration] entry: a program replaces resources of the base by
// others, without an operation of a provider.
type migration struct {
	layout   []int64  // resources of the new base: indexes in the base, or ^index in inserted
	inserted [][]byte // resources that the base does not have
	base     []patch  // retained resources of the base, by index
	added    []patch  // resources of the journal, by operation
}

// patch is a resource that replaces the one that of refers to.
type patch struct {
	of    int64
	state []byte
}

// parseMigration parses the members of a migration. It checks everything that does not depend on
// the entries before.
func parseMigration(layout, inserted, base, added []byte) (*migration, error) {
	m := &migration{}
	for state := range rawjson.Elements(inserted) {
		if err := checkInserted(state); err != nil {
			return nil, fmt.Errorf("member \"states\", element %d, %w", len(m.inserted), err)
		}
		m.inserted = append(m.inserted, state)
	}
	if len(m.inserted) == 0 {
		return nil, errors.New("member \"states\" must have elements")
	}
	urns := map[string]bool{}
	for _, state := range m.inserted {
		urn := textOf(rawjson.Member(state, "urn"))
		if urns[urn] {
			return nil, errors.New("member \"states\" has two resources with the same URN")
		}
		urns[urn] = true
	}
	placed := map[int64]bool{}
	for item := range rawjson.Elements(layout) {
		at, err := parseLayoutItem(item, len(m.inserted))
		if err == nil && placed[at] {
			err = errors.New("places a resource for the second time")
		}
		if err != nil {
			return nil, fmt.Errorf("member \"layout\", element %d, %w", len(m.layout), err)
		}
		placed[at] = true
		m.layout = append(m.layout, at)
	}
	for i := range m.inserted {
		if !placed[^int64(i)] {
			return nil, fmt.Errorf("member \"layout\" does not place state %d", i)
		}
	}
	var err error
	if m.base, err = parsePatches(base, "index"); err != nil {
		return nil, fmt.Errorf("member \"baseStatePatches\" %w", err)
	}
	for _, p := range m.base {
		if p.of < 0 || !placed[p.of] {
			return nil, fmt.Errorf("member \"baseStatePatches\" replaces resource %d, which the layout does not have", p.of)
		}
	}
	if m.added, err = parsePatches(added, "operationID"); err != nil {
		return nil, fmt.Errorf("member \"newStatePatches\" %w", err)
	}
	return m, nil
}

// parseLayoutItem returns an index in the base, or ^index in the n inserted resources.
func parseLayoutItem(item []byte, n int) (at int64, err error) {
	fields := 0
	for name, value := range rawjson.Members(item) {
		if name != "baseIndex" && name != "stateIndex" || isNull(value) {
			continue
		}
		index, err := number(value)
		switch {
		case err != nil:
			return 0, err
		case index < 0 || name == "stateIndex" && index >= int64(n):
			return 0, fmt.Errorf("refers to the unknown resource %d", index)
		case name == "stateIndex":
			index = ^index
		}
		at = index
		fields++
	}
	return at, mustBe(fields == 1, "an object with either \"baseIndex\" or \"stateIndex\"")
}

func parsePatches(list []byte, key string) ([]patch, error) {
	var out []patch
	known := map[int64]bool{}
	for element := range rawjson.Elements(list) {
		p := patch{state: rawjson.Member(element, "state")}
		id := rawjson.Member(element, key)
		if id == nil || p.state == nil {
			return nil, fmt.Errorf("has an element without %q or \"state\"", key)
		}
		var err error
		if p.of, err = number(id); err == nil {
			err = checkResource(p.state)
		}
		if err != nil {
			return nil, fmt.Errorf("has a malformed element: it %w", err)
		}
		if known[p.of] {
			return nil, fmt.Errorf("replaces resource %d twice", p.of)
		}
		known[p.of] = true
		out = append(out, p)
	}
	return out, nil
}

func checkInserted(state []byte) error {
	if err := checkResource(state); err != nil {
		return err
	}
	urn, ok := typeOfURN(textOf(rawjson.Member(state, "urn")))
	switch {
	case !ok:
		return errors.New("has an invalid URN")
	case urn != textOf(rawjson.Member(state, "type")):
		return errors.New("has a type that is not the one in its URN")
	case is(state, "delete"):
		return errors.New("is marked for deletion")
	case textOf(rawjson.Member(state, "viewOf")) != "":
		return errors.New("is a view of another resource")
	case is(state, "custom") && textOf(rawjson.Member(state, "id")) == "":
		return errors.New("has no ID")
	}
	return nil
}

// is reports whether a member of an object is true.
func is(object []byte, name string) bool {
	value := rawjson.Member(object, name)
	return value != nil && isTrue(value)
}

// typeOfURN returns the type in a URN, without the types of parents, and whether the URN is valid.
func typeOfURN(urn string) (string, bool) {
	name, ok := strings.CutPrefix(urn, "urn:pulumi:")
	parts := strings.SplitN(name, "::", 4)
	if !ok || len(parts) < 4 {
		return "", false
	}
	return parts[2][strings.LastIndexByte(parts[2], '$')+1:], true
}

// checkMigration returns an error if a migration refers to resources that do not exist.
func (p *Progress) checkMigration(e *Entry) error {
	for _, index := range e.migration.layout {
		if index >= int64(p.base) {
			return p.unknownResource(e, index)
		}
	}
	for _, patch := range e.migration.added {
		if _, removed := p.removedNew[patch.of]; removed {
			return fault.Invalid("journal entry %d refers to operation %d, whose resource was removed", e.SequenceID, patch.of)
		}
		if _, ok := p.operations[patch.of]; !ok {
			return fault.Invalid("journal entry %d refers to the unknown operation %d", e.SequenceID, patch.of)
		}
	}
	return nil
}

// migrate makes the layout of a migration the base.
func (p *Progress) migrate(m *migration) {
	removed := map[int64]struct{}{}
	for i, index := range m.layout {
		if _, ok := p.removedOld[index]; ok {
			removed[int64(i)] = struct{}{}
		}
	}
	p.base, p.removedOld, p.removed = len(m.layout), removed, len(removed)
	p.migrations++
}

// checkMigration returns an error if the state at the time of a migration does not allow it.
func (r *replayer) checkMigration(e *Entry) error {
	if !empty(r.base.Member("pending_operations")) {
		return refuse(e, "the state at the start of the update has pending operations")
	}
	if slices.ContainsFunc(r.begins, func(operation []byte) bool { return operation != nil }) {
		return refuse(e, "an operation has not finished")
	}
	for _, state := range e.migration.inserted {
		if ref := textOf(rawjson.Member(state, "extensionRef")); ref != "" && !r.hasExtension(ref) {
			return refuse(e, "a resource refers to an unknown extension")
		}
	}
	return nil
}

// checkResult returns an error if the CLI would refuse to read the state after a migration.
func (r *replayer) checkResult(e *Entry) error {
	d := r.deployment()
	if r.kept.err != nil {
		return r.kept.err
	}
	if err := integrity(d); err != nil {
		return refuse(e, err.Error())
	}
	return nil
}

func refuse(e *Entry, reason string) error {
	return fault.Invalid("journal entry %d migrates the state, which is not possible: %s", e.SequenceID, reason)
}

func (r *replayer) migrate(e *Entry) error {
	if r.checks {
		if err := r.checkMigration(e); err != nil {
			return err
		}
	}
	m := e.migration
	patched := make(map[int64][]byte, len(m.base))
	for _, p := range m.base {
		patched[p.of] = r.kept.keep(p.state)
	}
	resources := resources{hold: r.options.Hold}
	replaced, deleted, pending := map[int64][]byte{}, map[int64]bool{}, map[int64]bool{}
	for i, index := range m.layout {
		at := int64(i)
		if index < 0 {
			if err := resources.add(r.kept.keep(m.inserted[^index])); err != nil {
				return err
			}
			continue
		}
		resource := r.base.Resources[index]
		if state, ok := patched[index]; ok {
			resource = state
		} else if state, ok := r.replaced[index]; ok {
			replaced[at] = state
		}
		if r.deleted[index] {
			deleted[at] = true
		}
		if r.pending[index] {
			pending[at] = true
		}
		if err := resources.add(resource); err != nil {
			return err
		}
	}
	for _, p := range m.added {
		r.added[r.progress.operations[p.of]] = addition{state: r.kept.keep(p.state)}
	}
	base := *r.base
	base.Resources = resources.list
	r.base, r.replaced, r.deleted, r.pending = &base, replaced, deleted, pending
	return nil
}

func (r *replayer) hasExtension(ref string) bool {
	for name := range rawjson.Members(r.allExtensions()) {
		if textOf([]byte(`"`+name+`"`)) == ref {
			return true
		}
	}
	return false
}
