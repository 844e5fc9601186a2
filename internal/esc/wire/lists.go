package wire

import (
	"bytes"
	"encoding/json"
	"errors"
)

var (
	errList = errors.New("a list is too long")
	errText = errors.New("a text is too long")
)

// Diagnostics is a list of at most [MaxDiagnostics], with texts of at most [MaxText].
type Diagnostics []Diagnostic

// UnmarshalJSON implements [json.Unmarshaler].
func (d *Diagnostics) UnmarshalJSON(data []byte) error {
	list, err := decodeList[Diagnostic](data, MaxDiagnostics)
	*d = list
	for _, one := range list {
		if len(one.Summary) > MaxText || len(one.Detail) > MaxText || one.Range != nil && len(one.Range.Environment) > MaxText {
			return errText
		}
	}
	return err
}

// Names is a list of at most [MaxImports] names.
type Names []string

// UnmarshalJSON implements [json.Unmarshaler].
func (n *Names) UnmarshalJSON(data []byte) error {
	list, err := decodeList[string](data, MaxImports)
	*n = list
	return err
}

// decodeList stops at the first element that is too many, before the list takes much memory.
func decodeList[T any](data []byte, most int) ([]T, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	token, err := decoder.Token()
	if err != nil || token == nil {
		return nil, err
	}
	if token != json.Delim('[') {
		return nil, errShape
	}
	var list []T
	for decoder.More() {
		if len(list) == most {
			return nil, errList
		}
		var element T
		if err := decoder.Decode(&element); err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	_, err = decoder.Token()
	return list, err
}
