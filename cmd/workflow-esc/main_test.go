package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/esc/wire"
)

// plain returns a value without its wrapping, with a mark before secrets.
func plain(v wire.Value) any {
	mark := func(x any) any {
		if text, ok := x.(string); ok && v.Secret {
			return "secret " + text
		}
		return x
	}
	switch content := v.Value.(type) {
	case []wire.Value:
		list := make([]any, len(content))
		for i, element := range content {
			list[i] = plain(element)
		}
		return list
	case map[string]wire.Value:
		return plainAll(content)
	}
	if v.Unknown {
		return "unknown"
	}
	return mark(v.Value)
}

func plainAll(values map[string]wire.Value) map[string]any {
	object := map[string]any{}
	for key, value := range values {
		object[key] = plain(value)
	}
	return object
}

func text(t *testing.T, result *wire.Result) string {
	t.Helper()
	if result.Environment == nil {
		return ""
	}
	out, err := json.Marshal(plainAll(result.Environment.Properties))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func summaries(result *wire.Result) string {
	var all []string
	for _, d := range result.Diagnostics {
		all = append(all, string(d.Severity)+": "+d.Summary)
	}
	if result.Error != "" {
		all = append(all, "failed: "+result.Error)
	}
	return strings.Join(all, "\n")
}

// TestOpen opens an environment with everything that needs the server.
func TestOpen(t *testing.T) {
	t.Parallel()
	encrypted := (&server{}).ask(t, wire.Request{Op: wire.Encrypt, Name: "infra/base", Definition: []byte("values:\n  password: {fn::secret: 'open sesame'}\n")})
	if !bytes.Contains(encrypted.Definition, []byte("ciphertext")) || bytes.Contains(encrypted.Definition, []byte("sesame")) {
		t.Fatalf("%s\n%s", encrypted.Definition, summaries(encrypted))
	}
	s := &server{
		environments: map[string]string{
			"infra/base@prod": string(encrypted.Definition),
			"infra/other":     "values: {place: 'here'}",
		},
		providers: map[string]func(map[string]wire.Value) (wire.Value, error){
			"pulumi-stacks": func(inputs map[string]wire.Value) (wire.Value, error) {
				return wire.Value{Value: map[string]wire.Value{
					"of":   inputs["stack"],
					"port": {Value: json.Number("8080")},
					"key":  {Value: "k", Secret: true},
				}}, nil
			},
		},
	}
	request := wire.Request{Op: wire.Open, Name: "infra/app", Definition: []byte(`
imports: [infra/base@prod]
values:
  url: https://u:${password}@${environments.infra.other.place}:${outputs.port}
  outputs: {fn::open::pulumi-stacks: {stack: "app/dev"}}
  user: ${context.pulumi.user.login}
  me: ${context.currentEnvironment.name}
`), Context: wire.Values{"pulumi": {Value: map[string]wire.Value{"user": {Value: map[string]wire.Value{"login": {Value: "lena"}}}}}}}
	result := s.ask(t, request)
	want := `{"me":"infra/app","outputs":{"key":"secret k","of":"app/dev","port":8080},"password":"secret open sesame",` +
		`"url":"secret https://u:open sesame@here:8080","user":"lena"}`
	if got := text(t, result); got != want || result.Failed() {
		t.Errorf("%s\nwant %s\n%s", got, want, summaries(result))
	}
	if !slices.Equal(result.Imports, []string{"infra/base@prod"}) {
		t.Errorf("imports %q", result.Imports)
	}
	if result.Environment.Expressions != nil || result.Environment.Properties["me"].Trace != nil {
		t.Error("the result has details that were not asked for")
	}
	if len(s.asks) != 5 || *s.asks[0].Environment != (wire.EnvironmentAsk{Name: "infra/base@prod", Importer: "infra/app", Root: true}) {
		t.Errorf("asks: %+v", s.asks)
	}
	for _, ask := range s.asks {
		if ask.Decrypt != nil && (ask.Decrypt.Root || ask.Decrypt.Environment != "infra/base") {
			t.Errorf("the secret of an import was asked for as %+v", ask.Decrypt)
		}
		if ask.Open != nil && (ask.Open.Root != "infra/app" || ask.Open.Current != "infra/app") {
			t.Errorf("the provider was opened for %+v", ask.Open)
		}
	}

	// A check opens and decrypts nothing.
	s.asks = nil
	request.Op, request.Details = wire.Check, true
	result = s.ask(t, request)
	if result.Failed() || result.Environment.Expressions == nil || result.Environment.Properties["me"].Trace == nil {
		t.Errorf("%s\n%+v", summaries(result), result.Environment)
	}
	for _, ask := range s.asks {
		if ask.Open != nil || ask.Decrypt != nil {
			t.Errorf("a check asked for %+v", ask)
		}
	}
}

// TestAnonymous evaluates the list of environments of a stack.
func TestAnonymous(t *testing.T) {
	t.Parallel()
	s := &server{environments: map[string]string{"infra/base": "values: {name: '${context.rootEnvironment.name}'}"}}
	result := s.ask(t, wire.Request{Op: wire.Open, Definition: []byte(`{"imports":["infra/base"]}`)})
	if got := text(t, result); got != `{"name":"infra/base"}` {
		t.Errorf("%s\n%s", got, summaries(result))
	}
	if got := s.asks[0].Environment; got.Importer != "" || !got.Root {
		t.Errorf("%+v", got)
	}
	for _, op := range []wire.Op{wire.Check, wire.Open, wire.Encrypt, wire.Decrypt} {
		if result := (&server{}).ask(t, wire.Request{Op: op}); result.Failed() || result.Environment != nil || len(result.Definition) > 0 {
			t.Errorf("%s of an empty definition: %+v", op, result)
		}
	}
}

// TestSecretsRoundTrip encrypts and decrypts a definition, whose comments remain.
func TestSecretsRoundTrip(t *testing.T) {
	t.Parallel()
	const odd = "values:   {a:   'x'}  # odd, but without secrets"
	if kept := (&server{}).ask(t, wire.Request{Op: wire.Encrypt, Definition: []byte(odd)}); string(kept.Definition) != odd {
		t.Errorf("%q became %q", odd, kept.Definition)
	}
	const definition = "# about\nvalues:\n  # the password\n  password:\n    fn::secret: öffne dich\n  list:\n    - fn::secret: two\n"
	s := &server{}
	encrypted := s.ask(t, wire.Request{Op: wire.Encrypt, Name: "a/b", Definition: []byte(definition)})
	if got := bytes.Count(encrypted.Definition, []byte("ciphertext")); got != 2 || encrypted.Failed() {
		t.Fatalf("%s\n%s", encrypted.Definition, summaries(encrypted))
	}
	if again := s.ask(t, wire.Request{Op: wire.Encrypt, Name: "a/b", Definition: encrypted.Definition}); !bytes.Equal(again.Definition, encrypted.Definition) {
		t.Errorf("encrypting again changes the definition: %s\n%s", again.Definition, summaries(again))
	}
	// A ciphertext of another environment is found if the request wants it.
	foreign := wire.Request{Op: wire.Encrypt, Name: "a/b", Definition: []byte("values: {x: {fn::secret: {ciphertext: ZXNjeAAAAAEAAAAAAAAAAAAAAAAAAAAAEmA7+g==}}}")}
	if got := s.ask(t, foreign); got.Failed() {
		t.Error(summaries(got))
	}
	foreign.ShowSecrets = true
	if got := s.ask(t, foreign); !strings.Contains(summaries(got), "the secret cannot be decrypted") || got.Definition != nil || got.Diagnostics[0].Range == nil {
		t.Errorf("%s %+v", summaries(got), got)
	}
	decrypted := s.ask(t, wire.Request{Op: wire.Decrypt, Name: "a/b", Definition: encrypted.Definition})
	if string(decrypted.Definition) != definition {
		t.Errorf("%s\n%s", decrypted.Definition, summaries(decrypted))
	}
	opened := s.ask(t, wire.Request{Op: wire.Open, Name: "a/b", Definition: encrypted.Definition})
	if got := text(t, opened); got != `{"list":["secret two"],"password":"secret öffne dich"}` {
		t.Errorf("%s", got)
	}
}

// TestDiagnostics checks what is said about definitions with mistakes.
func TestDiagnostics(t *testing.T) {
	t.Parallel()
	s := &server{
		environments: map[string]string{
			"a/private": "values: {}", "a/self": "imports: [a/self]", "a/one": "imports: [a/two]", "a/two": "imports: [a/one]",
			"a/broken": "values: [",
		},
		refuse: "a/private",
	}
	for definition, want := range map[string]string{
		"values: {x: '${y}'}":                           `error: unknown property "y"`,
		"values: {x: '${x}'}":                           "error: cyclic reference to x",
		"values: {x: {fn::open::nothing: {}}}":          "error: there is no provider nothing",
		"values: {x: {fn::rotate::k: {inputs: {}}}}":    "error: this server has no rotator \"k\": it does not rotate secrets",
		"imports: [a/private]":                          "error: there is no environment a/private",
		"imports: [a/none]":                             "error: there is no environment a/none",
		"values: {x: '${environments.a.private.x}'}":    "error: there is no environment a/private",
		"imports: [a/self]":                             "error: cyclic import of a/self",
		"imports: [a/one]":                              "error: cyclic import of a/one",
		"values: {x: &y 1, z: *y}":                      "error: alias nodes are not supported",
		"imports: ['" + strings.Repeat("x", 300) + "']": "error: the name of the imported environment has more than 256 bytes",
	} {
		for _, op := range []wire.Op{wire.Check, wire.Open, wire.Encrypt} {
			result := s.ask(t, wire.Request{Op: op, Name: "a/b", Definition: []byte(definition)})
			if got := summaries(result); !strings.HasPrefix(got, want) || !result.Failed() {
				t.Errorf("%s of %.60s: %s, want %s", op, definition, got, want)
			}
			if result.Definition != nil {
				t.Errorf("%s of %.60s returns a definition", op, definition)
			}
			if len(result.Diagnostics) > 0 {
				if r := result.Diagnostics[0].Range; r == nil || r.Environment == "" || r.Begin.Line == 0 {
					t.Errorf("%s of %.60s: at %+v", op, definition, r)
				}
			}
		}
	}
	for _, definition := range []string{"imports: [a/broken]", "values: ["} {
		if result := s.ask(t, wire.Request{Op: wire.Open, Name: "a/b", Definition: []byte(definition)}); !result.Failed() || result.Error != "" {
			t.Errorf("%s: %s", definition, summaries(result))
		}
	}
}

// TestServerGone ends the standard input before and during a request.
func TestServerGone(t *testing.T) {
	t.Parallel()
	before := start(t, usualLimits)
	if before.hello.Protocol != wire.Protocol || before.hello.Version != "v1.2.3" {
		t.Errorf("%+v", before.hello)
	}
	_ = before.in.Close()
	if err := before.command.Wait(); err != nil {
		t.Errorf("before the request: %v", err)
	}

	during := start(t, usualLimits)
	if err := send(during.in, wire.Request{Op: wire.Open, Definition: []byte("imports: [a/b]"), Milliseconds: 60_000}); err != nil {
		t.Fatal(err)
	}
	var message wire.Message
	if err := during.out.Read(&message, wire.MaxMessage); err != nil || message.Ask == nil {
		t.Fatal(message, err)
	}
	_ = during.in.Close()
	if err := during.command.Wait(); err == nil || during.command.ProcessState.ExitCode() != 1 {
		t.Errorf("during the request: %v", err)
	}
}

// TestRun checks the command line.
func TestRun(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]int{"--version": 0, "--help": 0, "--unknown": 2, "argument": 2} {
		var out, errs bytes.Buffer
		if got := run([]string{arguments}, &out, &errs); got != want || out.Len()+errs.Len() == 0 {
			t.Errorf("%s: %d, want %d: %s%s", arguments, got, want, &out, &errs)
		}
	}
}
