// Package versions compares two versions of a stack's state. It reads each resource once, and keeps only hashes, so that
// large states need little memory.
package versions

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"hash"
	"iter"
	"slices"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/words"
)

// OnlySecrets is the operation of a resource of which only the ciphertexts of secrets differ: whether a secret changed is
// unknown, because each encryption of the same secret differs.
const OnlySecrets = "secret"

// Resources yields the resources of a state as JSON objects.
type Resources = iter.Seq2[[]byte, error]

// digest is the hash of what a comparison reads of a resource.
type digest [sha256.Size]byte

// resource is what a comparison keeps of a resource.
type resource struct {
	row changes.Row
	id  string
	// whole is the hash of the properties, and plain the one without the ciphertexts of secrets.
	whole, plain digest
	at           int
	seen         bool
}

// Compare returns the resources of two states, with the operations that lead from one to the other: those of the new
// state in its order, and then the deleted ones.
func Compare(before, after Resources) (changes.Tree, error) {
	old := map[string]*resource{}
	for raw, err := range before {
		if err != nil {
			return changes.Tree{}, err
		}
		if r := read(raw); r != nil && old[r.row.URN] == nil {
			r.at = len(old)
			old[r.row.URN] = r
		}
		if len(old) > changes.MaxRows {
			return changes.Tree{}, errMany
		}
	}
	t := changes.Tree{Totals: map[string]int{}}
	add := func(row changes.Row, op string) {
		row.Op, row.State = op, changes.Done
		t.Rows = append(t.Rows, row)
		t.Totals[op]++
		t.Finished++
	}
	for raw, err := range after {
		if err != nil {
			return changes.Tree{}, err
		}
		r := read(raw)
		if r == nil {
			continue
		}
		was := old[r.row.URN]
		if was != nil {
			if was.seen {
				continue
			}
			was.seen = true
		}
		add(r.row, operation(was, r))
		if len(t.Rows) > changes.MaxRows {
			return changes.Tree{}, errMany
		}
	}
	gone := make([]*resource, len(old))
	for _, r := range old {
		gone[r.at] = r
	}
	for _, r := range gone {
		if !r.seen {
			add(r.row, "delete")
		}
	}
	return t, nil
}

var errMany = fault.New(fault.KindTooLarge, "a version has more than %s resources", words.Number(changes.MaxRows))

// operation returns what leads from a resource to its next version. A new id means that the resource was replaced.
func operation(was, is *resource) string {
	switch {
	case was == nil:
		return "create"
	case was.id != "" && is.id != "" && was.id != is.id:
		return "replace"
	case was.whole == is.whole:
		return "same"
	case was.plain == is.plain:
		return OnlySecrets
	default:
		return "update"
	}
}

// read returns a resource, or nil for one that waits for its deletion or has no valid URN.
func read(raw []byte) *resource {
	var r struct {
		URN, Type, Parent, ID string
		Delete                bool
	}
	for name, value := range rawjson.Members(raw) {
		switch name {
		case "urn":
			_ = json.Unmarshal(value, &r.URN) // no text means no URN
		case "type":
			_ = json.Unmarshal(value, &r.Type)
		case "parent":
			_ = json.Unmarshal(value, &r.Parent)
		case "id":
			_ = json.Unmarshal(value, &r.ID)
		case "delete":
			r.Delete = string(value) == "true"
		}
	}
	if r.URN == "" || r.Delete || len(r.URN) > maxURN {
		return nil
	}
	kind, name := changes.Parts(r.URN)
	if r.Type != "" {
		kind = r.Type
	}
	out := &resource{row: changes.Row{URN: r.URN, Type: kind, Name: name, Parent: r.Parent}, id: r.ID}
	out.whole, out.plain = digests(raw)
	return out
}

// maxURN bounds the URNs of resources, in bytes.
const maxURN = 2 << 10

// compared are the members of a resource that a comparison reads. Others change with each update, or say nothing about the
// resource, such as times.
var compared = []string{"id", "inputs", "outputs", "protect"}

func digests(raw []byte) (whole, plain digest) {
	a, b := sha256.New(), sha256.New()
	for _, name := range compared {
		value := rawjson.Member(raw, name)
		a.Write([]byte(name))
		b.Write([]byte(name))
		a.Write(value)
		withoutCiphertexts(b, value)
	}
	a.Sum(whole[:0])
	b.Sum(plain[:0])
	return whole, plain
}

const ciphertext = `"ciphertext"`

// withoutCiphertexts writes a JSON value without the texts of the members that contain ciphertexts.
func withoutCiphertexts(h hash.Hash, value []byte) {
	for {
		at := bytes.Index(value, []byte(ciphertext))
		if at < 0 {
			h.Write(value)
			return
		}
		at += len(ciphertext)
		h.Write(value[:at])
		value = value[at:]
		colon := rawjson.SkipSpace(value, 0)
		if colon >= len(value) || value[colon] != ':' {
			continue
		}
		if text := rawjson.SkipSpace(value, colon+1); text < len(value) && value[text] == '"' {
			value = value[rawjson.SkipString(value, text):]
		}
	}
}

// Pair is a resource in two versions.
type Pair struct {
	// Old and New are the resources as JSON objects, or nil.
	Old, New []byte
	// Dependents is the number of resources that depend on it in the new version, or in the old one if it was deleted.
	Dependents int
}

// Find returns a resource in two states.
func Find(before, after Resources, urn string) (Pair, error) {
	var p Pair
	var err error
	var then int
	if p.Old, then, err = find(before, urn); err != nil {
		return p, err
	}
	if p.New, p.Dependents, err = find(after, urn); err != nil {
		return p, err
	}
	if p.New == nil {
		p.Dependents = then
	}
	return p, nil
}

func find(list Resources, urn string) (found []byte, dependents int, err error) {
	_, name := changes.Parts(urn)
	for raw, err := range list {
		if err != nil {
			return nil, 0, err
		}
		// Most resources do not mention the name. A name with escapes is decoded in each.
		if plain(name) && !bytes.Contains(raw, []byte(name)) {
			continue
		}
		var r struct {
			URN          string
			Delete       bool
			Dependencies []string
		}
		if json.Unmarshal(raw, &r) != nil || r.Delete {
			continue
		}
		if r.URN == urn && found == nil {
			found = raw
		}
		if slices.Contains(r.Dependencies, urn) {
			dependents++
		}
	}
	return found, dependents, nil
}

// plain reports whether a text is the same in JSON.
func plain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"\/<>&`, r) })
}
