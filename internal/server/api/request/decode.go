// Package request reads the bodies and parameters of requests. It bounds the memory of each
// request, and charges the memory before allocating it.
package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
)

// Decode decodes a JSON body into v, whose members are stored in text columns. As clients of the
// public API expect, member names are case-insensitive, and Decode ignores unknown members and the
// content type.
func Decode(w http.ResponseWriter, r *http.Request, v any) error {
	return decodeWithin(w, r, v, Ordinary(r))
}

// DecodeDocument is [Decode] for a body that is stored as JSON and can contain an escaped NUL.
func DecodeDocument(w http.ResponseWriter, r *http.Request, v any) error {
	return decodeWithin(w, r, v, documentBounds(r))
}

// DecodeBatch is [DecodeDocument] for batches of events or secrets.
func DecodeBatch(w http.ResponseWriter, r *http.Request, v any) error {
	return decodeWithin(w, r, v, Batch(r))
}

// DecodeOptional is [Decode] for routes whose body can be missing.
func DecodeOptional(w http.ResponseWriter, r *http.Request, v any) error {
	err := Decode(w, r, v)
	if errors.Is(err, errEmptyBody) {
		return nil
	}
	return err
}

var errEmptyBody = fault.Invalid("the body is empty, JSON is expected")

func decodeWithin(w http.ResponseWriter, r *http.Request, v any, b Bounds) error {
	data, err := Read(w, r, b)
	if err != nil {
		return err
	}
	return decodeBytes(r, data, v, b)
}

// DecodePart decodes a part of a body that was read earlier.
func DecodePart(r *http.Request, data []byte, v any) error {
	if err := checkText(data, textDocument); err != nil {
		return err
	}
	return decodeBytes(r, data, v, Ordinary(r))
}

func decodeBytes(r *http.Request, data []byte, v any, b Bounds) error {
	if err := charge(r, data, b, 2); err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return InvalidJSON(err)
	}
	return nil
}

// ReadJSON reads a body and charges the memory for decoding it.
func ReadJSON(w http.ResponseWriter, r *http.Request, b Bounds, copies int64) ([]byte, error) {
	data, err := Read(w, r, b)
	if err != nil {
		return nil, err
	}
	return data, charge(r, data, b, copies)
}

// charge returns an error if a body has more values than the bounds allow. Otherwise, it charges
// the memory for decoding the body: copies times its size, plus valueCost per value.
func charge(r *http.Request, data []byte, b Bounds, copies int64) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errEmptyBody
	}
	values, err := countValues(data, b.Values)
	if err != nil {
		return err
	}
	return budget.Of(r.Context()).Take(r.Context(), copies*(int64(len(data))+valueCost*values))
}

// Read reads and decompresses a body. It checks that the body is valid text if the bounds require
// it.
func Read(w http.ResponseWriter, r *http.Request, b Bounds) ([]byte, error) {
	sent, err := readSent(w, r, b)
	if err != nil {
		return nil, err
	}
	data, err := sent.inflate(r.Context(), b.Inflated)
	if err != nil {
		return nil, err
	}
	if sent.encoding != "" {
		budget.Of(r.Context()).Give(int64(cap(sent.data))) // only the inflated form is kept
		budget.Reuse(sent.data)
	}
	return data, checkText(data, b.text)
}

// ReadState reads a body that contains a state. packed is its compressed form if the client sent it
// as gzip.
func ReadState(w http.ResponseWriter, r *http.Request) (plain, packed []byte, err error) {
	b := State(r)
	sent, err := readSent(w, r, b)
	if err != nil {
		return nil, nil, err
	}
	plain, err = sent.inflate(r.Context(), b.Inflated)
	switch {
	case err != nil:
		return nil, nil, err
	case len(bytes.TrimSpace(plain)) == 0:
		return nil, nil, errEmptyBody
	case sent.encoding == "gzip":
		packed = sent.data
	}
	return plain, packed, checkText(plain, b.text)
}

// InvalidJSON returns the error for a decoding error. It omits the body's values, which might be
// secret.
func InvalidJSON(err error) error {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fault.Wrap(fault.KindInvalid, err, "the body is not valid JSON (at byte %d)", syntax.Offset)
	case errors.As(err, &typ) && typ.Field != "":
		return fault.Invalid("member %q of the body must not be a JSON %s", typ.Field, strings.Fields(typ.Value)[0])
	case errors.As(err, &typ):
		return fault.Invalid("the body must not be a JSON %s", strings.Fields(typ.Value)[0])
	default:
		return fault.Wrap(fault.KindInvalid, err, "the body does not have the expected form")
	}
}
