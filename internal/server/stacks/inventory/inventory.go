// Package inventory reads what a list needs of each resource in a state. It holds one resource in memory at a time, so that
// large states need little of it.
package inventory

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/words"
)

// Resource is a resource of a state, without its properties.
type Resource struct {
	URN, Type, Name, ID, Parent string
	// Provider is the reference to the provider: its URN and id.
	Provider string
	// Created and Modified are the times that the engine has recorded; zero if it did not.
	Created, Modified time.Time
	// Delete reports that the resource was replaced and waits for its deletion.
	Delete bool
	// Replace reports that the resource was deleted and waits for its replacement.
	Replace bool
	// Protect, External, Taint and Retain are marks of the engine: it refuses to delete the resource, only reads it, replaces
	// it in the next update, or forgets it instead of deleting it. Failed reports that its creation was not completed.
	Protect, External, Taint, Retain, Failed bool
	// begin and size are where the state has the resource.
	begin int64
	size  int
	// needs are the places of the resources on which it depends.
	needs []int32
}

// State is a state, as far as this package reads it.
type State interface {
	Pieces(limit int64) iter.Seq2[states.Piece, error]
	At(begin int64, size int) ([]byte, error)
}

// List is the resources of a state, in its order. It never changes.
type List struct {
	All []Resource
	// places are those of resources by URN: of the new one if an old one waits for its deletion.
	places map[string]int32
	users  [][]int32
}

// Bounds of a list, and of its URNs in bytes.
const (
	MaxResources = changes.MaxRows
	maxURN       = 2 << 10
)

// Of returns the list of the resources of a state of at most limit bytes.
func Of(state State, limit int64) (List, error) {
	var l List
	var needs [][]string
	same := map[string]string{} // one text for equal types and providers
	for piece, err := range state.Pieces(limit) {
		if err != nil {
			return l, err
		}
		r, on := read(piece.Raw, same)
		r.begin, r.size = piece.Begin, len(piece.Raw)
		if r.URN == "" || len(r.URN) > maxURN {
			continue
		}
		if len(l.All) == MaxResources {
			return l, fault.New(fault.KindTooLarge, "the state has more than %s resources", words.Number(MaxResources))
		}
		l.All = append(l.All, r)
		needs = append(needs, on)
	}
	l.places = make(map[string]int32, len(l.All))
	for i, r := range l.All {
		if at, known := l.places[r.URN]; !known || l.All[at].Delete && !r.Delete {
			l.places[r.URN] = int32(i)
		}
	}
	l.users = make([][]int32, len(l.All))
	for i, list := range needs {
		for _, urn := range list {
			at, known := l.places[urn]
			if !known || int(at) == i || slices.Contains(l.All[i].needs, at) {
				continue
			}
			l.All[i].needs = append(l.All[i].needs, at)
			l.users[at] = append(l.users[at], int32(i))
		}
	}
	return l, nil
}

func read(raw []byte, same map[string]string) (r Resource, needs []string) {
	for name, value := range rawjson.Members(raw) {
		switch name {
		case "urn":
			r.URN = text(value)
		case "type":
			r.Type = shared(same, text(value))
		case "id":
			r.ID = text(value)
		case "parent":
			r.Parent = shared(same, text(value))
		case "provider":
			r.Provider = shared(same, text(value))
		case "created":
			r.Created = at(value)
		case "modified":
			r.Modified = at(value)
		case "delete":
			r.Delete = is(value)
		case "pendingReplacement":
			r.Replace = is(value)
		case "protect":
			r.Protect = is(value)
		case "external":
			r.External = is(value)
		case "taint":
			r.Taint = is(value)
		case "retainOnDelete":
			r.Retain = is(value)
		case "initErrors":
			for range rawjson.Elements(value) {
				r.Failed = true
			}
		case "dependencies":
			for one := range rawjson.Elements(value) {
				needs = append(needs, text(one))
			}
		}
	}
	kind, name := changes.Parts(r.URN)
	if r.Name = name; r.Type == "" {
		r.Type = kind
	}
	return r, needs
}

// text returns a JSON string; "" for another value.
func text(raw []byte) (out string) {
	_ = json.Unmarshal(raw, &out) // an absent text stays empty
	return out
}

func is(raw []byte) bool { return string(raw) == "true" }

func at(raw []byte) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text(raw))
	if err != nil {
		return time.Time{}
	}
	return t
}

func shared(same map[string]string, text string) string {
	if known, ok := same[text]; ok {
		return known
	}
	same[text] = text
	return text
}

// Size is the memory that a list needs, in bytes.
func (l List) Size() int {
	n := 0
	for _, r := range l.All {
		n += 400 + 2*len(r.URN) + len(r.ID) + 8*len(r.needs)
	}
	return n
}

// Find returns the place of a resource, or -1. old selects one that waits for its deletion.
func (l List) Find(urn string, old bool) int {
	if !old {
		if at, known := l.places[urn]; known {
			return int(at)
		}
		return -1
	}
	return slices.IndexFunc(l.All, func(r Resource) bool { return r.Delete && r.URN == urn })
}

// Needs returns the places of the resources on which one depends.
func (l List) Needs(place int) []int32 { return l.All[place].needs }

// NeededBy returns the places of the resources that depend on one.
func (l List) NeededBy(place int) []int32 { return l.users[place] }

// Raw returns a resource of a list of a state as a JSON object with the ciphertexts of its secrets, or nil. The state can
// be a later one than that of the list.
func Raw(state State, limit int64, wanted Resource) ([]byte, error) {
	raw, err := state.At(wanted.begin, wanted.size)
	if err != nil || wanted.is(raw) {
		return raw, err
	}
	for piece, err := range state.Pieces(limit) {
		if err != nil {
			return nil, err
		}
		// Most resources do not mention the name. A name with escapes is decoded in each.
		if (!plain(wanted.Name) || bytes.Contains(piece.Raw, []byte(wanted.Name))) && wanted.is(piece.Raw) {
			return piece.Raw, nil
		}
	}
	return nil, nil
}

// is reports whether a text is the resource as a JSON object.
func (r Resource) is(raw []byte) bool {
	return json.Valid(raw) && text(rawjson.Member(raw, "urn")) == r.URN && is(rawjson.Member(raw, "delete")) == r.Delete
}

// plain reports whether a text is the same in JSON.
func plain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"\/<>&`, r) })
}
