// Package inventory reads what a list needs of each resource in a state. It holds one resource in memory at a time, so that
// large states need little of it.
package inventory

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/budget"
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
	// Omitted is the number of its dependencies beyond the bounds of a list.
	Omitted int
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
	size   int
}

// Bounds of a list. It has no resources with longer URNs, and cuts other texts at the same number of bytes.
const (
	MaxResources = changes.MaxRows
	maxText      = 2 << 10
	maxNeeds     = 10_000    // of a resource
	maxAllNeeds  = 1_000_000 // of all
)

// Memory of a list, in bytes, besides the bytes of its texts.
const (
	perResource = 400
	perText     = 80
	perNeed     = 48
	// perByte is the memory for each byte of the largest resource while it is read: the decoder's buffer, a copy and a text.
	perByte = 4
)

// Of returns the list of the resources of a state of at most limit bytes. It takes the memory from the budget while it reads.
func Of(ctx context.Context, state State, limit int64) (List, error) {
	r := reader{same: map[string]string{}}
	share := budget.Of(ctx)
	largest, held := 0, 0
	defer func() { share.Give(perByte * int64(largest)) }()
	for piece, err := range state.Pieces(limit) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && len(piece.Raw) > largest {
			if err = share.Take(ctx, perByte*int64(len(piece.Raw)-largest)); err == nil {
				largest = len(piece.Raw)
			}
		}
		if err == nil {
			err = r.read(piece)
		}
		if err == nil {
			err = share.Take(ctx, int64(r.list.size-held))
			held = r.list.size
		}
		if err != nil {
			return List{}, err
		}
	}
	err := r.connect(ctx)
	return r.list, err
}

// reader makes a list.
type reader struct {
	list List
	// needs are the URNs on which each resource depends, and all is their number.
	needs [][]string
	all   int
	same  map[string]string // one text for equal ones
}

// connect finds the dependencies of the resources.
func (r *reader) connect(ctx context.Context) error {
	l := &r.list
	l.places = make(map[string]int32, len(l.All))
	for i, r := range l.All {
		if at, known := l.places[r.URN]; !known || l.All[at].Delete && !r.Delete {
			l.places[r.URN] = int32(i)
		}
	}
	l.users = make([][]int32, len(l.All))
	seen := make([]int, len(l.All)) // by place: 1 + the last resource that depends on it
	for i, list := range r.needs {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, urn := range list {
			at, known := l.places[urn]
			if !known || int(at) == i || seen[at] == i+1 {
				continue
			}
			seen[at] = i + 1
			l.All[i].needs = append(l.All[i].needs, at)
			l.users[at] = append(l.users[at], int32(i))
		}
	}
	return nil
}

// read adds a resource to the list, if it has a valid URN.
func (r *reader) read(piece states.Piece) error {
	one := Resource{begin: piece.Begin, size: len(piece.Raw)}
	var dependencies []byte
	for name, value := range rawjson.Members(piece.Raw) {
		switch name {
		case "urn":
			one.URN = text(value)
		case "type":
			one.Type = text(value)
		case "id":
			one.ID = text(value)
		case "parent":
			one.Parent = text(value)
		case "provider":
			one.Provider = text(value)
		case "created":
			one.Created = at(value)
		case "modified":
			one.Modified = at(value)
		case "delete":
			one.Delete = is(value)
		case "pendingReplacement":
			one.Replace = is(value)
		case "protect":
			one.Protect = is(value)
		case "external":
			one.External = is(value)
		case "taint":
			one.Taint = is(value)
		case "retainOnDelete":
			one.Retain = is(value)
		case "initErrors":
			for range rawjson.Elements(value) {
				one.Failed = true
			}
		case "dependencies":
			dependencies = value
		}
	}
	if one.URN == "" || len(one.URN) > maxText {
		return nil
	}
	if len(r.list.All) == MaxResources {
		return fault.New(fault.KindTooLarge, "the state has more than %s resources", words.Number(MaxResources))
	}
	one.URN = r.shared(one.URN)
	kind, name := changes.Parts(one.URN)
	if one.Name = name; one.Type == "" {
		one.Type = kind
	}
	r.list.size += perResource
	for _, t := range []*string{&one.Type, &one.ID, &one.Parent, &one.Provider} {
		*t = r.shared(*t)
	}
	var needs []string
	for raw := range rawjson.Elements(dependencies) {
		if len(needs) == maxNeeds || r.all == maxAllNeeds {
			one.Omitted++
			continue
		}
		r.all++
		r.list.size += perNeed
		needs = append(needs, r.shared(text(raw)))
	}
	r.list.All = append(r.list.All, one)
	r.needs = append(r.needs, needs)
	return nil
}

// shared returns a text, which it cuts if it is too long.
func (r *reader) shared(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	if known, ok := r.same[text]; ok {
		return known
	}
	r.same[text] = text
	r.list.size += perText + len(text)
	return text
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

// Size is the memory that a list needs, in bytes.
func (l List) Size() int { return l.size }

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
func Raw(ctx context.Context, state State, limit int64, wanted Resource) ([]byte, error) {
	raw, err := state.At(wanted.begin, wanted.size)
	if err != nil || wanted.is(raw) {
		return raw, err
	}
	for piece, err := range state.Pieces(limit) {
		if err == nil {
			err = ctx.Err()
		}
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
