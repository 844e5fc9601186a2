package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// MaxNesting bounds how deep lists and objects of values are nested.
const MaxNesting = 100

// Value is a value of an environment. Its JSON form is that of clients.
type Value struct {
	// Value is nil, a bool, a [json.Number], a string, a []Value or a map[string]Value.
	Value any
	// Secret is true if the value must be masked.
	Secret bool
	// Unknown is true if the value is not known, because a provider was not opened or failed.
	Unknown bool
	// Trace explains where the value comes from, as JSON. Clients get an empty object instead of nil.
	Trace json.RawMessage
}

// noTrace is the trace of values without one.
const noTrace = `{}`

var (
	errNesting = fmt.Errorf("values are nested more than %d deep", MaxNesting)
	errCount   = fmt.Errorf("there are more than %d values", MaxValues)
	errShape   = errors.New("a value of an environment does not have the expected form")
)

// MarshalJSON implements [json.Marshaler]. It takes time proportional to the size of the value, unlike nested
// calls by encoding/json, which read the output again on each level.
func (v Value) MarshalJSON() ([]byte, error) {
	return v.appendJSON(nil, 0)
}

func (v Value) appendJSON(out []byte, depth int) ([]byte, error) {
	if depth > MaxNesting {
		return nil, errNesting
	}
	out = append(out, `{"value":`...)
	var err error
	switch value := v.Value.(type) {
	case []Value:
		out = append(out, '[')
		for i, element := range value {
			if i > 0 {
				out = append(out, ',')
			}
			if out, err = element.appendJSON(out, depth+1); err != nil {
				return nil, err
			}
		}
		out = append(out, ']')
	case map[string]Value:
		out = append(out, '{')
		for i, key := range slices.Sorted(maps.Keys(value)) {
			if i > 0 {
				out = append(out, ',')
			}
			if out, err = appendPlain(out, key); err != nil {
				return nil, err
			}
			out = append(out, ':')
			if out, err = value[key].appendJSON(out, depth+1); err != nil {
				return nil, err
			}
		}
		out = append(out, '}')
	case nil, bool, json.Number, string:
		if out, err = appendPlain(out, value); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("a value of an environment cannot be a %T", value)
	}
	if v.Secret {
		out = append(out, `,"secret":true`...)
	}
	if v.Unknown {
		out = append(out, `,"unknown":true`...)
	}
	out = append(out, `,"trace":`...)
	if v.Trace == nil {
		out = append(out, noTrace...)
	} else {
		out = append(out, v.Trace...)
	}
	return append(out, '}'), nil
}

func appendPlain(out []byte, value any) ([]byte, error) {
	plain, err := json.Marshal(value)
	return append(out, plain...), err
}

// Values are named values. Reading them fails for more than [MaxValues], so that a short text cannot take a
// lot of memory.
type Values map[string]Value

// UnmarshalJSON implements [json.Unmarshaler].
func (v *Values) UnmarshalJSON(data []byte) error {
	content, err := newDecoder(data).content(0)
	if err != nil || content == nil {
		return err
	}
	object, ok := content.(map[string]Value)
	if !ok {
		return errShape
	}
	*v = object
	return nil
}

// UnmarshalJSON implements [json.Unmarshaler], also in time proportional to the size. It fails for more than
// [MaxValues] values.
func (v *Value) UnmarshalJSON(data []byte) error {
	return newDecoder(data).value(v, 0)
}

// decoder reads values without reading any part twice.
type decoder struct {
	*json.Decoder
	left int // values
}

func newDecoder(data []byte) *decoder {
	d := &decoder{Decoder: json.NewDecoder(bytes.NewReader(data)), left: MaxValues}
	d.UseNumber()
	return d
}

func (d *decoder) value(v *Value, depth int) error {
	if depth > MaxNesting {
		return errNesting
	}
	if d.left--; d.left < 0 {
		return errCount
	}
	*v = Value{}
	token, err := d.Token()
	if err != nil || token == nil {
		return err
	}
	if token != json.Delim('{') {
		return errShape
	}
	return d.members(func(name string) error {
		switch name {
		case "value":
			v.Value, err = d.content(depth)
			return err
		case "secret":
			return d.Decode(&v.Secret)
		case "unknown":
			return d.Decode(&v.Unknown)
		default:
			var raw json.RawMessage
			if err := d.Decode(&raw); err != nil {
				return err
			}
			if name == "trace" && string(raw) != noTrace && string(raw) != "null" {
				v.Trace = raw
			}
			return nil
		}
	})
}

func (d *decoder) content(depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		list := []Value{}
		for d.More() {
			var element Value
			if err := d.value(&element, depth+1); err != nil {
				return nil, err
			}
			list = append(list, element)
		}
		_, err := d.Token()
		return list, err
	case json.Delim('{'):
		object := map[string]Value{}
		err := d.members(func(name string) error {
			var member Value
			err := d.value(&member, depth+1)
			object[name] = member
			return err
		})
		return object, err
	}
	return token, nil
}

// members calls member for each name of the object whose opening brace was read, after the name.
func (d *decoder) members(member func(name string) error) error {
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name, ok := token.(string)
		if !ok {
			return errShape
		}
		if err := member(name); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}
