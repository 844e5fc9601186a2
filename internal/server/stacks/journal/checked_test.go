package journal

import (
	"bytes"
	"encoding/json"
	"errors"
)

var errNotJSON = errors.New("the text is not valid JSON")

// checkedState is [ReadState] for documents that might not be JSON.
func checkedState(document []byte) (*Deployment, error) {
	if !json.Valid(document) {
		return nil, errNotJSON
	}
	return ReadState(document, nil)
}

// checkedEntries is [ReadEntries] for text that might not be JSON.
func checkedEntries(text []byte) ([]Entry, error) {
	if len(text) > 0 && !json.Valid(text) {
		return nil, errNotJSON
	}
	return ReadEntries(text)
}

// document returns the document of a state.
func (d *Deployment) document() []byte {
	var text bytes.Buffer
	_, _ = d.WriteTo(&text) // a buffer never fails
	return text.Bytes()
}
