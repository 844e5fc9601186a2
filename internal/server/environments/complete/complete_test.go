package complete

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/esc/wire"
)

// library is a source with environments, stacks and a provider.
type library struct {
	evaluated []string // definitions
	broken    bool     // no definition can be evaluated
}

func (l *library) Environments(_ context.Context, text string) ([]string, error) {
	list := []string{"app/base", "app/prod", "net/vpc.main"}
	return slices.DeleteFunc(list, func(name string) bool { return !strings.Contains(name, text) }), nil
}

func (l *library) Versions(_ context.Context, name string) ([]string, error) {
	if name != "app/base" {
		return nil, nil
	}
	return []string{"latest", "stable"}, nil
}

func (l *library) Stacks(context.Context) ([]string, error) {
	return []string{"web/dev", "web/prod"}, nil
}

const inputs = `{"type":"object","required":["oidc"],"properties":{"static":{"$ref":"#/$defs/static"},"oidc":{"type":"object","description":"Log in with a token. More.","required":["roleArn"],
	"properties":{"roleArn":{"type":"string"},"duration":{"type":"string","description":"How long"},"policyArns":{"type":"array","items":{"type":"string"}},"kind":{"enum":["a","b"]},"short":{"type":"boolean"}}}},
	"oneOf":[{"properties":{"region":{"type":"string"}}}],"$defs":{"static":{"type":"object","properties":{"accessKeyId":{"type":"string"}}}}}`

func (l *library) Providers() []Provider {
	return []Provider{
		{"cloud-login", "Credentials of a cloud", json.RawMessage(inputs)},
		{"pulumi-stacks", "Outputs", json.RawMessage(`{"type":"object","properties":{"stacks":{"type":"object","additionalProperties":{"type":"object","properties":{"stack":{"type":"string"}}}}}}`)},
	}
}

func (l *library) Values(_ context.Context, definition string) (wire.Values, error) {
	l.evaluated = append(l.evaluated, definition)
	if l.broken {
		return nil, nil
	}
	text := wire.Value{Value: "x"}
	return wire.Values{
		"plain": text, "password": {Secret: true, Unknown: true}, "app:key": text,
		"net": {Value: map[string]wire.Value{"id": text, "sub nets": {Value: []wire.Value{{Value: map[string]wire.Value{"cidr": text}}}}}},
	}, nil
}

func at(t *testing.T, l *library, definition string) Answer {
	t.Helper()
	before, after, _ := strings.Cut(definition, "|")
	return must.Get(At(t.Context(), l, before, after))(t)
}

// TestSuggestions completes at the place of | with the option that is named, to the text after the arrow.
func TestSuggestions(t *testing.T) {
	const login = "values:\n  aws:\n    fn::open::cloud-login:\n      "
	for _, tt := range []struct{ name, definition, option, want string }{
		{"a section", "im|", "imports", "imports:\n- "},
		{"an import", "imports:\n- app/b|\n", "app/base", "imports:\n- app/base\n"},
		{"an indented import", "imports:\n  - |", "net/vpc.main", "imports:\n  - net/vpc.main"},
		{"an import in a line", "imports: [app/prod, b|]", "app/base", "imports: [app/prod, app/base]"},
		{"a version", "imports:\n- app/base@s|", "stable", "imports:\n- app/base@stable"},
		{"what clients use", "imports:\n- app/base\nvalues:\n  env|", "environmentVariables", "imports:\n- app/base\nvalues:\n  environmentVariables:\n    "},
		{"a function", "values:\n  a:\n    fn::sec|", "fn::secret", "values:\n  a:\n    fn::secret: "},
		{"a provider", "values:\n  a:\n    fn::open::cl|", "fn::open::cloud-login", "values:\n  a:\n    fn::open::cloud-login:\n      "},
		{"a function in a list", "values:\n  a:\n  - b: 1\n  - fn::|", "fn::open", "values:\n  a:\n  - b: 1\n  - fn::open:\n      "},
		{"an input", login + "o|", "oidc", login + "oidc:\n        "},
		{"an input of a choice", login + "|", "region", login + "region: "},
		{"an input of a definition", login + "static:\n        |", "accessKeyId", login + "static:\n        accessKeyId: "},
		{"an input within another one", login + "oidc:\n        duration: 1h\n\n        # why\n        role|", "roleArn", login + "oidc:\n        duration: 1h\n\n        # why\n        roleArn: "},
		{"a list", login + "oidc:\n        pol|", "policyArns", login + "oidc:\n        policyArns:\n          - "},
		{"a value of an enumeration", login + "oidc:\n        kind: |", "b", login + "oidc:\n        kind: b"},
		{"a boolean", login + "oidc:\n        short: t|", "true", login + "oidc:\n        short: true"},
		{"a function in inputs", login + "oidc:\n        roleArn:\n          fn::|", "fn::secret", login + "oidc:\n        roleArn:\n          fn::secret: "},
		{"the parts of an opening", "values:\n  a:\n    fn::open:\n      |", "provider", "values:\n  a:\n    fn::open:\n      provider: "},
		{"a provider by name", "values:\n  a:\n    fn::open:\n      provider: |", "pulumi-stacks", "values:\n  a:\n    fn::open:\n      provider: pulumi-stacks"},
		{"an input of a named provider", "values:\n  a:\n    fn::open:\n      provider: cloud-login\n      inputs:\n        |", "static", "values:\n  a:\n    fn::open:\n      provider: cloud-login\n      inputs:\n        static: "},
		{"a stack", "values:\n  s:\n    fn::open::pulumi-stacks:\n      stacks:\n        net:\n          stack: web/|", "web/prod", "values:\n  s:\n    fn::open::pulumi-stacks:\n      stacks:\n        net:\n          stack: web/prod"},
		{"a value", "values:\n  a: x${pl|} y\n", "plain", "values:\n  a: x${plain} y\n"},
		{"a value with brackets", "values:\n  a: ${|}\n", "app:key", "values:\n  a: ${[\"app:key\"]}\n"},
		{"a member", "values:\n  a: ${net.|}\n", "id", "values:\n  a: ${net.id}\n"},
		{"a member with brackets", "values:\n  a: ${net.s|", "sub nets", "values:\n  a: ${net[\"sub nets\"]"},
		{"a member in brackets", "values:\n  a: ${net[\"s|", "sub nets", "values:\n  a: ${net[\"sub nets\"]"},
		{"a member of an element", "values:\n  a: ${net[\"sub nets\"][0].|}", "cidr", "values:\n  a: ${net[\"sub nets\"][0].cidr}"},
		{"the context", "values:\n  a: ${context.pulumi.user.|", "login", "values:\n  a: ${context.pulumi.user.login"},
		{"a project", "values:\n  a: ${environments.|", "net", "values:\n  a: ${environments.net"},
		{"an environment", "values:\n  a: ${environments.net.|", "vpc.main", "values:\n  a: ${environments.net[\"vpc.main\"]"},
		{"a value of an environment", "values:\n  a: ${environments.app.base.|", "plain", "values:\n  a: ${environments.app.base.plain"},
		{"an import by name", "imports:\n- app/base\nvalues:\n  a: ${imports.|}", "app/base", "imports:\n- app/base\nvalues:\n  a: ${imports[\"app/base\"]}"},
		{"a value of an import", "imports:\n- app/base\nvalues:\n  a: ${imports[\"app/base\"].|}", "plain", "imports:\n- app/base\nvalues:\n  a: ${imports[\"app/base\"].plain}"},
		{"after other signs than those of ASCII", "values:\n  a: \"\U0001F600 ${pl|}\"", "plain", "values:\n  a: \"\U0001F600 ${plain}\""},
		{"in a file of Windows", "imports:\r\n- app/base\r\nvalues:\r\n  env|", "environmentVariables", "imports:\r\n- app/base\r\nvalues:\r\n  environmentVariables:\n    "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := at(t, &library{}, tt.definition)
			i := slices.IndexFunc(a.Options, func(o Option) bool { return o.Text == tt.option })
			if i < 0 {
				t.Fatalf("%q lacks %q: %+v", tt.definition, tt.option, a.Options)
			}
			before, after, _ := strings.Cut(tt.definition, "|")
			units := utf16.Encode([]rune(before))
			insert := a.Options[i].Insert
			if insert == "" {
				insert = tt.option
			}
			if got := string(utf16.Decode(units[:len(units)-a.Back])) + insert + after; got != tt.want {
				t.Errorf("%q becomes %q, want %q", tt.definition, got, tt.want)
			}
			if !strings.HasSuffix(before, a.Word) {
				t.Errorf("the word %q is not before the place", a.Word)
			}
		})
	}
}

// TestNoSuggestions looks at places where nothing is known.
func TestNoSuggestions(t *testing.T) {
	for _, definition := range []string{
		"# im|", "values:\n  a: |", "values:\n  a: x |", "values:\n  a: ${a b|", "values:\n  a: $${pl|}x: ", "values:\n  a: ${plain}|", "other:\n  |",
		"values:\n  a: ${context.none.|", "values:\n  a: ${net[\"sub nets\"][7].|", "imports:\n- app/none@|", "values:\n  a:\n    fn::open::unknown:\n      a: |", "values:\n  a: ${net[0|",
	} {
		if a := at(t, &library{}, definition); len(a.Options) > 0 {
			t.Errorf("%q has suggestions: %+v", definition, a.Options)
		}
	}
}

func TestNotes(t *testing.T) {
	a := at(t, &library{}, "values:\n  a: ${|")
	for name, want := range map[string]string{"password": "secret", "net": "object", "plain": "text", "context": "who opens the environment"} {
		if !slices.ContainsFunc(a.Options, func(o Option) bool { return o.Text == name && o.Note == want }) {
			t.Errorf("%s has not the note %q: %+v", name, want, a.Options)
		}
	}
	a = at(t, &library{}, "values:\n  a:\n    fn::open::cloud-login:\n      |")
	if o := a.Options[0]; o.Text != "oidc" || o.Note != "Log in with a token (required)" {
		t.Errorf("the first input is %+v", o)
	}
}

// TestEvaluated tests what is evaluated for the names of values, and what happens if that is impossible.
func TestEvaluated(t *testing.T) {
	l := &library{}
	at(t, l, "values:\n  a: x${pl|ain} y\n  b: 1\n")
	if want := []string{"values:\n  a: x y\n  b: 1\n"}; !slices.Equal(l.evaluated, want) {
		t.Errorf("evaluated %q, want %q", l.evaluated, want)
	}
	l.broken = true
	a := at(t, l, "imports: [a\nvalues:\n  first: 1\n  # no: 2\n  \"second\":\n    nested: 3\n  third: ${|\nother:\n  no: 4\n")
	var got []string
	for _, o := range a.Options {
		got = append(got, o.Text)
	}
	if want := []string{"first", "second", "third", "context", "environments", "imports"}; !slices.Equal(got, want) {
		t.Errorf("suggested %q, want %q", got, want)
	}
}

// TestManySuggestions bounds the options, by the word.
func TestManySuggestions(t *testing.T) {
	a := Answer{Word: "B"}
	for i := range 3 * most {
		a.Options = append(a.Options, Option{Text: strings.Repeat(string(rune('a'+i%2)), 1+i/2)})
	}
	if a = a.bounded(); len(a.Options) != most || !a.More || strings.Contains(a.Options[0].Text, "a") {
		t.Errorf("%d options, the first one %+v, more %t", len(a.Options), a.Options[0], a.More)
	}
}

// FuzzAt completes any text.
func FuzzAt(f *testing.F) {
	for _, seed := range []string{"values:\n  a: ${net[\"|", "- - a: [|", "imports:\n-|", "values:\n  fn::open::cloud-login:\n    - b:|", "\xff${|"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, definition string) {
		before, after, _ := strings.Cut(definition, "|")
		a, err := At(t.Context(), &library{}, before, after)
		if err != nil || a.Back > len(utf16.Encode([]rune(before))) {
			t.Errorf("%q: %+v (%v)", definition, a, err)
		}
	})
}
