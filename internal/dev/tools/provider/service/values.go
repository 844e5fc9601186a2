package main

import (
	"reflect"

	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

type object = map[string]any

// plain returns a property as a JSON value. A secret text becomes an object with a member "secret",
// as in deployment settings.
func plain(v property.Value) any {
	switch {
	case v.IsString() && v.Secret():
		return object{"secret": v.AsString()}
	case v.IsString():
		return v.AsString()
	case v.IsBool():
		return v.AsBool()
	case v.IsNumber():
		return v.AsNumber()
	case v.IsArray():
		list := make([]any, 0, v.AsArray().Len())
		for _, e := range v.AsArray().All {
			list = append(list, plain(e))
		}
		return list
	case v.IsMap():
		return plainMap(v.AsMap())
	default:
		return nil
	}
}

func plainMap(m property.Map) object {
	o := make(object, m.Len())
	for name, v := range m.All {
		if !v.IsNull() {
			o[name] = plain(v)
		}
	}
	return o
}

// text returns a member that is text or a secret text.
func (r record) text(name string) string {
	switch v := r[name].(type) {
	case string:
		return v
	case object:
		s, _ := v["secret"].(string)
		return s
	default:
		return ""
	}
}

// record is the inputs or the state of a resource.
type record object

func (r record) flag(name string) bool {
	b, _ := r[name].(bool)
	return b
}

// pick returns the named members that are present.
func (r record) pick(names ...string) object {
	o := object{}
	for _, name := range names {
		if v, ok := r[name]; ok {
			o[name] = v
		}
	}
	return o
}

// merge returns props with the values of a resource that was read. It keeps a property whose value
// is unchanged, and with it the mark of a secret. A value that is nil removes the property.
func merge(props property.Map, read object) (property.Map, error) {
	for name, value := range read {
		old, had := props.GetOk(name)
		switch {
		case had && reflect.DeepEqual(prune(plain(old)), prune(value)):
		case empty(value) && !had:
		case empty(value):
			props = props.Delete(name)
		default:
			v, err := property.Any(toProperty(value))
			if err != nil {
				return props, err
			}
			props = props.Set(name, v)
		}
	}
	return props, nil
}

// toProperty converts a JSON value to what [property.Any] accepts.
func toProperty(v any) any {
	switch v := v.(type) {
	case object:
		m := map[string]property.Value{}
		for name, e := range v {
			m[name], _ = property.Any(toProperty(e))
		}
		return m
	case []any:
		list := make([]property.Value, len(v))
		for i, e := range v {
			list[i], _ = property.Any(toProperty(e))
		}
		return list
	default:
		return v
	}
}

// prune removes what a JSON encoder omits when empty, so that absent and empty members are equal.
func prune(v any) any {
	switch v := v.(type) {
	case object:
		o := object{}
		for name, e := range v {
			if e = prune(e); !empty(e) {
				o[name] = e
			}
		}
		return o
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = prune(e)
		}
		return list
	default:
		return v
	}
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case object:
		return len(v) == 0
	case []any:
		return len(v) == 0
	case string:
		return v == ""
	case bool:
		return !v
	default:
		return false
	}
}
