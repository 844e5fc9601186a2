package stacks

import (
	"bytes"
	"encoding/json"
	"strings"

	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/store"
)

// urnMember begins the URN of a resource in a state.
var urnMember = []byte(`"urn":`)

const (
	maxURN           = 4096
	maxResourceNames = 3000
)

// nameReader is a writer that collects the names and types of the resources in a state, without holding the state in
// memory. It takes every member of this name for one of a resource. What it leaves out is only not found by searches.
type nameReader struct {
	rest  []byte
	seen  map[store.ResourceName]bool
	found []store.ResourceName
}

// Write implements [io.Writer].
func (n *nameReader) Write(p []byte) (int, error) {
	text := append(n.rest, p...)
	for len(n.found) < maxResourceNames {
		at := bytes.Index(text, urnMember)
		if at < 0 {
			text = text[max(0, len(text)-len(urnMember)+1):]
			break
		}
		value := bytes.TrimLeft(text[at+len(urnMember):], " \t\r\n")
		begin := len(text) - len(value)
		end := endOfString(value)
		if end < 0 && len(text)-begin <= maxURN {
			text = text[at:] // the rest arrives later
			break
		}
		if end < 0 {
			end = min(1, len(value)) // it is too long, or no string
		}
		n.add(text[begin : begin+end])
		text = text[begin+end:]
	}
	n.rest = append(n.rest[:0:0], text...)
	return len(p), nil
}

// endOfString returns the length of the JSON string at the beginning of a text, 0 if there is another value, or -1 if it
// does not end in the text.
func endOfString(text []byte) int {
	if len(text) > 0 && text[0] != '"' {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

func (n *nameReader) add(text []byte) {
	var urn string
	if json.Unmarshal(text, &urn) != nil {
		return
	}
	kind, name := changes.Parts(urn)
	r := store.ResourceName{Type: kind, Name: name}
	if kind == "" || kind == rootStackType || strings.HasPrefix(kind, "pulumi:providers:") || n.seen[r] {
		return
	}
	if n.seen == nil {
		n.seen = map[store.ResourceName]bool{}
	}
	n.seen[r] = true
	n.found = append(n.found, r)
}
