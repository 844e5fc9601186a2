// Package complete suggests what can be written at a place in the definition of an environment, for editors. It reads no YAML:
// it looks at the lines before the place and at their indentation, and suggests nothing where they do not suffice.
package complete

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf16"

	"workflowagent/internal/esc/wire"
)

// Provider is a provider that fn::open opens.
type Provider struct {
	Name, Description string
	Inputs            json.RawMessage // a JSON schema
}

// Source knows what the author of a definition may use.
type Source interface {
	// Environments returns names of environments, as project/name, that contain a text.
	Environments(ctx context.Context, text string) ([]string, error)
	// Versions returns the version tags of an environment, which need not exist.
	Versions(ctx context.Context, environment string) ([]string, error)
	// Stacks returns names of stacks, as project/stack.
	Stacks(ctx context.Context) ([]string, error)
	Providers() []Provider
	// Values returns what a definition evaluates to, as far as it has no errors.
	Values(ctx context.Context, definition string) (wire.Values, error)
}

// Option is a suggestion.
type Option struct {
	Text   string `json:"text"`
	Insert string `json:"insert,omitempty"` // "" for the text
	Note   string `json:"note,omitempty"`
}

// Answer are the suggestions for a place.
type Answer struct {
	// Back is the length of the text before the place that an option replaces, in UTF-16 code units.
	Back int `json:"back"`
	// Word is the end of that text, with which the options that fit begin.
	Word string `json:"word"`
	// More reports that there are more options, so that another word has others.
	More    bool     `json:"more,omitempty"`
	Options []Option `json:"options"`
}

// most is the number of options in an answer.
const most = 200

// place is a place in a definition.
type place struct {
	source        Source
	before, after string // the definition around the place
	lines         []string
	current       string // the beginning of its line
	line          line
}

// At returns the suggestions for the place between two parts of a definition.
func At(ctx context.Context, source Source, before, after string) (Answer, error) {
	lines := strings.Split(before, "\n")
	last := len(lines) - 1
	p := &place{source: source, before: before, after: after, lines: lines[:last], current: lines[last], line: parseLine(lines[last], true)}
	var a Answer
	var err error
	switch at := strings.LastIndex(p.current, "${"); {
	case p.line.comment:
	case at >= 0 && !strings.Contains(p.current[at:], "}") && !strings.HasSuffix(p.current[:at], "$"):
		a, err = p.reference(ctx, at)
	default:
		a, err = p.structure(ctx)
	}
	a.Back += len(utf16.Encode([]rune(a.Word)))
	if a.Options == nil {
		a.Options = []Option{}
	}
	return a.bounded(), err
}

// bounded leaves out options if there are too many: those that do not fit the word, then the last ones.
func (a Answer) bounded() Answer {
	if len(a.Options) <= most {
		return a
	}
	a.More = true
	word := strings.ToLower(a.Word)
	a.Options = slices.DeleteFunc(a.Options, func(o Option) bool { return !strings.Contains(strings.ToLower(o.Text), word) })
	a.Options = a.Options[:min(len(a.Options), most)]
	return a
}

// structure suggests keys, elements of lists, and values that a schema knows.
func (p *place) structure(ctx context.Context) (Answer, error) {
	path := ancestors(p.lines, p.line)
	a := Answer{Word: p.line.rest}
	var err error
	switch {
	case p.line.key == "imports" && len(path) == 0 && strings.HasPrefix(a.Word, "["):
		a.Word = strings.TrimLeft(a.Word[strings.LastIndexAny(a.Word, "[,")+1:], " ")
		return p.imports(ctx, a)
	case slices.Equal(path, []string{"imports", element}):
		return p.imports(ctx, a)
	case p.line.key != "":
		a.Options, err = p.values(ctx, append(path, p.line.key))
	case len(path) == 0:
		a.Options = sections
	case slices.Equal(path, []string{"values"}):
		a.Options = p.indented(reserved)
	case path[0] == "values":
		a.Options = append(p.inputs(path), p.functions()...)
	}
	return a, err
}

// imports suggests environments, and after @ their versions.
func (p *place) imports(ctx context.Context, a Answer) (Answer, error) {
	name, version, versioned := strings.Cut(a.Word, "@")
	if versioned {
		tags, err := p.source.Versions(ctx, name)
		a.Word = version
		a.Options = texts(tags)
		return a, err
	}
	names, err := p.source.Environments(ctx, a.Word)
	a.Options = texts(names)
	return a, err
}

func texts(list []string) []Option {
	out := make([]Option, len(list))
	for i, text := range list {
		out[i].Text = text
	}
	return out
}

// sections are the members of a definition.
var sections = []Option{
	{"imports", "imports:\n- ", "environments whose values this one starts from"},
	{"values", "values:\n  ", "the values of this environment"},
}

// reserved are the values that clients use.
var reserved = []Option{
	{"environmentVariables", ":", "for pulumi env run, and for stacks"},
	{"pulumiConfig", ":", "configuration of stacks"},
	{"files", ":", "files whose paths are in environment variables"},
	{"policyConfig", ":", "configuration of policy packs"},
}

// functions are those of the language. What follows the name is what they begin with.
var functions = []Option{
	{"fn::secret", ": ", "a secret, which is stored as a ciphertext"},
	{"fn::open", ":", "the outputs of a provider"},
	{"fn::toString", ": ", "a value as text"},
	{"fn::toJSON", ": ", "a value as JSON"},
	{"fn::toYAML", ": ", "a value as YAML"},
	{"fn::toBase64", ": ", "a text in base64"},
	{"fn::fromJSON", ": ", "the value of JSON"},
	{"fn::fromBase64", ": ", "the text of base64"},
	{"fn::join", ": [", "a delimiter, and texts to join"},
	{"fn::split", ": [", "a delimiter, and a text to split"},
	{"fn::concat", ": [", "lists, one after the other"},
	{"fn::final", ": ", "a value that importers do not change"},
	{"fn::validate", ":", "a value, and a schema that it must have"},
}

// functions are the options for a function, also for those that open a provider.
func (p *place) functions() []Option {
	list := slices.Clone(functions)
	for _, provider := range p.source.Providers() {
		list = append(list, Option{"fn::open::" + provider.Name, ":", sentence(provider.Description)})
	}
	return p.indented(list)
}

// indented completes options that begin an object, whose insert is a colon, and those that insert something after their text.
func (p *place) indented(list []Option) []Option {
	list = slices.Clone(list)
	for i, o := range list {
		if o.Insert == ":" {
			o.Insert += p.newLine()
		}
		list[i].Insert = o.Text + o.Insert
	}
	return list
}

// newLine begins a line of an object under the key at the place.
func (p *place) newLine() string { return "\n" + strings.Repeat(" ", p.line.indent+2) }

// sentence is the beginning of a description.
func sentence(text string) string {
	const longest = 120
	text, _, _ = strings.Cut(text, "\n")
	text, _, _ = strings.Cut(text, ". ")
	if runes := []rune(text); len(runes) > longest {
		text = string(runes[:longest]) + "…"
	}
	return strings.TrimSuffix(text, ".")
}

func byText(a, b Option) int { return cmp.Compare(a.Text, b.Text) }
