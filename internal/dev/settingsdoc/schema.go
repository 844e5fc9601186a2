package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/settings"
)

// schema is a JSON Schema of draft 7, which the YAML extensions of editors support.
type schema struct {
	Schema      string             `json:"$schema,omitempty"`
	Title       string             `json:"title,omitempty"`
	Description string             `json:"description,omitempty"`
	Deprecated  bool               `json:"deprecated,omitempty"`
	Type        []string           `json:"type,omitempty"`
	Default     any                `json:"default,omitempty"`
	Enum        []any              `json:"enum,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	Minimum     *int64             `json:"minimum,omitempty"`
	Maximum     *int64             `json:"maximum,omitempty"`
	MinItems    int                `json:"minItems,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Additional  *bool              `json:"additionalProperties,omitempty"`
}

// An empty value means the default.
const (
	durationPattern = `^$|^[+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	sizePattern     = `^$|^[0-9]+ *[kKmMgGtT]?[iI]?[bB]?$`
)

// schemaText returns the JSON Schema of the configuration file. It accepts every file that the
// program accepts, except for values in an unusual notation, and finds misspelled keys and most
// wrong values.
func (p product) schemaText() ([]byte, error) {
	closed := false
	root := schema{
		Schema: "http://json-schema.org/draft-07/schema#", Title: p.title, Type: []string{"object", "null"},
		Properties: map[string]*schema{}, Additional: &closed,
	}
	for _, group := range p.table.Groups {
		if group.EnvOnly {
			continue
		}
		for _, f := range group.Fields {
			root.Properties[f.Key] = schemaOf(f)
		}
	}
	for key, warning := range p.table.Obsolete {
		root.Properties[key] = &schema{Description: strings.TrimSpace("Has no effect. " + warning), Deprecated: true}
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(root); err != nil {
		return nil, fmt.Errorf("encoding the schema: %w", err)
	}
	return b.Bytes(), nil
}

// schemaOf returns the schema of a setting. A key without a value has its default, so null is
// always allowed, except for lists that must not be empty.
func schemaOf(f settings.Field) *schema {
	s := &schema{Description: strings.Join(strings.Fields(f.Doc), " "), Type: []string{"string", "null"}}
	if f.Default == "" && f.DefaultText != "" {
		s.Description += " Default: " + f.DefaultText + "."
	}
	if f.Default != "" {
		s.Default = f.Default
	}
	for _, choice := range f.Choices {
		s.Enum = append(s.Enum, choice)
	}
	limits := func() {
		s.Minimum = &f.Min
		if f.Max != 0 {
			s.Maximum = &f.Max
		}
	}
	switch f.Value.(type) {
	case *settings.Secret:
		s.Type = []string{"string", "number", "null"} // such as a token of digits
	case *bool:
		s.Type, s.Default = []string{"boolean", "null"}, f.Default == "true"
	case *int, *int64:
		s.Type = []string{"integer", "null"}
		if n, err := strconv.ParseInt(f.Default, 10, 64); err == nil {
			s.Default = n
		}
		limits()
	case *settings.CPUs:
		s.Type = []string{"number", "null"}
	case *time.Duration:
		s.Pattern = durationPattern
		if f.Min == 0 { // 0 needs no unit
			s.Type, s.Minimum, s.Maximum = []string{"string", "integer", "null"}, new(int64), new(int64)
		}
	case *settings.Seconds:
		s.Type, s.Pattern = []string{"string", "integer", "null"}, durationPattern
	case *settings.Bytes:
		s.Type, s.Pattern = []string{"string", "integer", "null"}, sizePattern
		limits()
	case *[]string:
		s.Items = &schema{Type: []string{"string"}, Enum: s.Enum}
		s.Type, s.Enum, s.Default = []string{"array", "null"}, nil, nil
		if f.Default != "" {
			s.Default = strings.FieldsFunc(f.Default, func(r rune) bool { return r == ',' || r == ' ' })
		}
		if f.NotEmpty {
			s.Type, s.MinItems = []string{"array"}, 1
		}
	case *string, encoding.TextUnmarshaler:
		if f.Choices == nil {
			s.Type = []string{"string", "number", "null"}
		} else {
			s.Enum = append(s.Enum, nil)
			for _, choice := range f.Choices {
				if truth, err := strconv.ParseBool(choice); err == nil { // auto, true or false
					s.Type, s.Enum = []string{"string", "boolean", "null"}, append(s.Enum, truth)
				}
			}
		}
	}
	return s
}
