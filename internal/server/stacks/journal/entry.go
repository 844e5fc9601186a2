// Package journal builds states from journals. The CLI sends an update's steps as journal entries,
// which refer to the resources of the base: the state at the start of the update. Package journal
// validates entries, replays them onto their base, and encodes the result as a difference from the
// base. It works on the raw JSON of resources, because states are large and an update changes
// little.
package journal

import (
	"errors"
	"fmt"
	"strconv"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/rawjson"
)

// Version is the newest supported journal version. Version 2 adds the kind [StateMigration]; all other
// entries of a client that speaks version 2 have version 1.
const Version = 2

// Kind is the kind of an entry.
type Kind int

// The entry kinds.
const (
	Begin                 Kind = iota // an operation begins
	Success                           // an operation succeeds
	Failure                           // an operation fails
	RefreshSuccess                    // a refresh replaces a resource in its place, or removes it
	Outputs                           // a resource gets new outputs
	Write                             // a new base replaces the base
	SecretsManager                    // the state's secrets provider changes
	RebuiltBaseState                  // the state so far becomes the base
	ExtensionParameterize             // an extension is added
	Snippets                          // the state's snippets change
	StateMigration                    // the base gets other resources
)

// Entry is a validated journal entry. Its slices are parts of Raw. They are nil if the member is
// absent or null.
type Entry struct {
	Raw         []byte // the JSON object as received, including unknown members
	Kind        Kind
	SequenceID  int64
	OperationID int64

	// Old refers to a resource of the base by its index, and New refers to a resource of this
	// journal by its operation.
	RemoveOld, RemoveNew                         *int64
	DeleteOld, DeleteNew                         *int64
	PendingReplacementOld, PendingReplacementNew *int64

	State           []byte // resource
	Operation       []byte // the operation that begins
	SecretsProvider []byte
	Snippets        []byte
	NewSnapshot     []byte // the new base
	ExtensionRef    []byte // JSON string
	Extension       []byte

	IsRefresh          bool
	RequiresByteString bool

	migration *migration
}

// ReadEntries reads and checks a JSON array of entries, which must be valid JSON. The entries share memory
// with the array. Empty input is an empty array, because the client omits an empty array.
func ReadEntries(entries []byte) ([]Entry, error) {
	if len(entries) == 0 || string(entries) == "null" {
		return nil, nil
	}
	if !isList(entries) {
		return nil, fault.Invalid("member \"entries\" must be an array of journal entries")
	}
	var out []Entry
	for raw := range rawjson.Elements(entries) {
		e, err := parseEntry(raw)
		if err != nil {
			return nil, fault.Invalid("entry %d of the batch: %s", len(out)+1, err)
		}
		out = append(out, e)
	}
	return out, nil
}

func parseEntry(raw []byte) (Entry, error) {
	if !isObject(raw) {
		return Entry{}, errors.New("a journal entry must be an object")
	}
	e := Entry{Raw: raw, Kind: -1}
	var version int64
	var layout, inserted, basePatches, newPatches []byte
	for name, value := range rawjson.Members(raw) {
		if isNull(value) {
			continue
		}
		var err error
		switch name {
		case "version":
			version, err = number(value)
		case "layout":
			layout, err = value, mustBe(isList(value), "an array")
		case "states":
			inserted, err = value, mustBe(isList(value), "an array")
		case "baseStatePatches":
			basePatches, err = value, mustBe(isList(value), "an array")
		case "newStatePatches":
			newPatches, err = value, mustBe(isList(value), "an array")
		default:
			err = e.set(name, value)
		}
		if err != nil {
			return Entry{}, fmt.Errorf("member %q %w", name, err)
		}
	}
	switch {
	case version < 1 || version > Version:
		return Entry{}, fmt.Errorf("the journal version %d is unknown; the server supports versions up to %d", version, Version)
	case e.Kind < Begin || e.Kind > StateMigration:
		return Entry{}, errors.New("member \"kind\" is missing or unknown; the server supports kinds 0 to 10")
	case e.Kind == StateMigration && version < 2:
		return Entry{}, errors.New("a migration of the state needs the journal version 2")
	case e.SequenceID < 1:
		return Entry{}, errors.New("member \"sequenceID\" must be 1 or greater")
	case e.Kind == Write && e.NewSnapshot == nil:
		return Entry{}, errors.New("member \"newSnapshot\" is missing")
	case e.Kind == ExtensionParameterize && (e.ExtensionRef == nil || e.Extension == nil):
		return Entry{}, errors.New("member \"extensionRef\" or \"extension\" is missing")
	}
	if e.Kind == StateMigration {
		m, err := parseMigration(layout, inserted, basePatches, newPatches)
		if err != nil {
			return Entry{}, err
		}
		e.migration = m
	}
	return e, nil
}

// set sets the field for a member. Raw retains unknown members.
func (e *Entry) set(name string, value []byte) (err error) {
	switch name {
	case "kind":
		var n int64
		n, err = number(value)
		e.Kind = Kind(n)
	case "sequenceID":
		e.SequenceID, err = number(value)
	case "operationID":
		e.OperationID, err = number(value)
	case "removeOld":
		e.RemoveOld, err = optional(value)
	case "removeNew":
		e.RemoveNew, err = optional(value)
	case "deleteOld":
		e.DeleteOld, err = optional(value)
	case "deleteNew":
		e.DeleteNew, err = optional(value)
	case "pendingReplacementOld":
		e.PendingReplacementOld, err = optional(value)
	case "pendingReplacementNew":
		e.PendingReplacementNew, err = optional(value)
	case "isRefresh":
		e.IsRefresh, err = flag(value)
	case "requiresByteString":
		e.RequiresByteString, err = flag(value)
	case "state":
		e.State, err = value, checkResource(value)
	case "operation":
		e.Operation, err = value, checkOperation(value)
	case "secretsProvider":
		e.SecretsProvider, err = value, check(value, secretsProviderShape)
	case "snippets":
		e.Snippets, err = value, checkSnippets(value)
	case "newSnapshot":
		e.NewSnapshot, err = value, checkSnapshot(value)
	case "extensionRef":
		e.ExtensionRef, err = value, mustBe(isText(value), "a string")
	case "extension":
		e.Extension, err = value, mustBe(isObject(value), "an object")
	}
	return err
}

func number(value []byte) (int64, error) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	return n, mustBe(err == nil, "a whole number")
}

func optional(value []byte) (*int64, error) {
	n, err := number(value)
	return &n, err
}

func flag(value []byte) (bool, error) {
	return isTrue(value), mustBe(isFlag(value), "true or false")
}
