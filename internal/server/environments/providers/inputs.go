package providers

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/fault"
)

const (
	maxText  = 64 << 10 // bytes of an input
	maxTexts = 20       // elements of a list
)

// object reads the members of an object. The first problem stays, and the caller asks for it with done. Problems name members
// that are known, and never a value or an unknown name, because those can be secrets.
type object struct {
	provider, path string // path ends with a dot, or is empty
	values         map[string]wire.Value
	known          []string
	problem        *error // of the whole call
}

func (c *Call) inputs() *object {
	return &object{provider: c.provider, values: c.Inputs, problem: new(error)}
}

func (o *object) fail(format string, args ...any) {
	if *o.problem == nil {
		*o.problem = fault.Invalid("the provider "+o.provider+": "+format, args...)
	}
}

// member returns a member, or false if it is absent or null.
func (o *object) member(name string) (any, bool) {
	o.known = append(o.known, name)
	v := o.values[name].Value
	return v, v != nil
}

func (o *object) text(name string) string {
	v, ok := o.member(name)
	if !ok {
		return ""
	}
	text, ok := v.(string)
	if !ok || len(text) > maxText {
		o.fail("%s%s must be a text of at most %d bytes", o.path, name, maxText)
		return ""
	}
	return text
}

// required returns a text that is not empty.
func (o *object) required(name string) string {
	text := o.text(name)
	if text == "" {
		o.fail("%s%s is missing", o.path, name)
	}
	return text
}

// like returns a text that has a form.
func (o *object) like(name string, want form, example string) string {
	text := o.required(name)
	if *o.problem == nil && !want.MatchString(text) {
		o.fail("%s%s does not have the form of %s", o.path, name, example)
	}
	return text
}

func (o *object) texts(name string) []string {
	v, ok := o.member(name)
	if !ok {
		return nil
	}
	list, ok := v.([]wire.Value)
	if !ok || len(list) > maxTexts {
		o.fail("%s%s must be a list of at most %d texts", o.path, name, maxTexts)
		return nil
	}
	texts := make([]string, len(list))
	for i, element := range list {
		if texts[i], ok = element.Value.(string); !ok || len(texts[i]) > maxText {
			o.fail("%s%s must be a list of at most %d texts", o.path, name, maxTexts)
		}
	}
	return texts
}

func (o *object) flag(name string, otherwise bool) bool {
	v, ok := o.member(name)
	if !ok {
		return otherwise
	}
	flag, ok := v.(bool)
	if !ok {
		o.fail("%s%s must be true or false", o.path, name)
	}
	return flag
}

// number returns a number without a fraction as text.
func (o *object) number(name string) string {
	v, _ := o.member(name)
	text, _ := v.(string)
	if n, ok := v.(json.Number); ok {
		text = n.String()
	}
	if !digits.MatchString(text) {
		o.fail("%s%s must be a number without a fraction", o.path, name)
	}
	return text
}

var digits = newForm(`^[1-9][0-9]{0,19}$`)

// duration returns a duration in whole seconds.
func (o *object) duration(name string, shortest, longest, otherwise time.Duration) time.Duration {
	text := o.text(name)
	if text == "" {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < shortest || d > longest {
		o.fail("%s%s must be between %s and %s, in a form such as 30m or 1h", o.path, name, shortest, longest)
	}
	return d.Truncate(time.Second)
}

// object returns a member that is an object, or nil if it is absent.
func (o *object) object(name string) *object {
	v, ok := o.member(name)
	if !ok {
		return nil
	}
	members, ok := v.(map[string]wire.Value)
	if !ok {
		o.fail("%s%s must be an object", o.path, name)
	}
	return &object{provider: o.provider, path: o.path + name + ".", values: members, problem: o.problem}
}

// done returns the first problem, or one for a member that the provider does not know.
func (o *object) done() error {
	for name := range o.values {
		if !slices.Contains(o.known, name) {
			at := strings.TrimSuffix(o.path, ".")
			if at != "" {
				at = " in " + at
			}
			o.fail("there is an unknown input%s; the inputs are %s", at, strings.Join(o.known, ", "))
		}
	}
	return *o.problem
}

// exclusive returns the one object of two that is given.
func (o *object) exclusive(first, second string) (a, b *object) {
	a, b = o.object(first), o.object(second)
	if (a == nil) == (b == nil) {
		o.fail("give either %s or %s", first, second)
	}
	return a, b
}

func secret(text string) wire.Value { return wire.Value{Value: text, Secret: true} }

func plain(text string) wire.Value { return wire.Value{Value: text} }

func result(members map[string]wire.Value) wire.Value { return wire.Value{Value: members} }

// appendJSON appends a value in plain JSON, in time proportional to its size. Values of the evaluator are bounded.
func appendJSON(out []byte, v wire.Value) ([]byte, error) {
	var err error
	switch content := v.Value.(type) {
	case []wire.Value:
		out = append(out, '[')
		for i, element := range content {
			if i > 0 {
				out = append(out, ',')
			}
			if out, err = appendJSON(out, element); err != nil {
				return nil, err
			}
		}
		return append(out, ']'), nil
	case map[string]wire.Value:
		out = append(out, '{')
		for i, name := range slices.Sorted(maps.Keys(content)) {
			if i > 0 {
				out = append(out, ',')
			}
			key, _ := json.Marshal(name) // a text can be encoded
			out = append(append(out, key...), ':')
			if out, err = appendJSON(out, content[name]); err != nil {
				return nil, err
			}
		}
		return append(out, '}'), nil
	default:
		scalar, err := json.Marshal(content)
		return append(out, scalar...), err
	}
}
