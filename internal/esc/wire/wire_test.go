package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func value(t *testing.T, text string) Value {
	t.Helper()
	var v Value
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// TestValues reads and writes values in the form of clients.
func TestValues(t *testing.T) {
	t.Parallel()
	const text = `{"value":{"a":{"value":[{"value":1e3,"trace":{}},{"value":null,"trace":{}}],"secret":true,"trace":{}},` +
		`"b":{"value":"\u003cx\u003e","unknown":true,"trace":{"def":{"begin":{"line":1}}}},"c":{"value":true,"trace":{}},` +
		`"d":{"value":{},"trace":{}},"e":{"value":[],"trace":{}}},"trace":{}}`
	v := value(t, text)
	members := v.Value.(map[string]Value)
	want := map[string]Value{
		"a": {Value: []Value{{Value: json.Number("1e3")}, {}}, Secret: true},
		"b": {Value: "<x>", Unknown: true, Trace: json.RawMessage(`{"def":{"begin":{"line":1}}}`)},
		"c": {Value: true},
		"d": {Value: map[string]Value{}},
		"e": {Value: []Value{}},
	}
	if !reflect.DeepEqual(members, want) {
		t.Errorf("%#v", members)
	}
	if out, err := json.Marshal(v); err != nil || string(out) != text {
		t.Errorf("%s %v", out, err)
	}
	for _, odd := range []string{`{}`, `null`, `{"more":[{}],"trace":null}`} {
		if v := value(t, odd); v.Value != nil || v.Trace != nil {
			t.Errorf("%s is %+v", odd, v)
		}
	}
	for _, wrong := range []string{`1`, `[]`, `{"value":[1]}`, `{"value":{"a":"b"}}`, `{"secret":"yes"}`, `{"value":`} {
		var v Value
		if err := json.Unmarshal([]byte(wrong), &v); err == nil {
			t.Errorf("%s is %+v", wrong, v)
		}
	}
	if _, err := json.Marshal(Value{Value: 1}); err == nil {
		t.Error("a value that no environment has was written")
	}
}

// TestHostileResults reads results that are made to take the server's memory or time.
func TestHostileResults(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"value":[`, 1_000_000)
	nested := strings.Repeat(`{"value":[`, MaxNesting+1) + strings.Repeat(`]}`, MaxNesting+1)
	environment := func(properties string) string {
		return `{"result":{"environment":{"properties":` + properties + `}}}`
	}
	for name, one := range map[string]struct {
		line string
		want error
	}{
		"many values":          {environment(`{"a":{"value":[{}` + strings.Repeat(`,{}`, MaxValues) + `]}}`), errCount},
		"many properties":      {environment(`{"a":{}` + strings.Repeat(`,"b":{}`, MaxValues) + `}`), errCount},
		"nested values":        {environment(`{"a":` + nested + `}`), errNesting},
		"very nested values":   {environment(`{"a":` + deep), errForm},
		"other properties":     {environment(`[]`), errShape},
		"many diagnostics":     {`{"result":{"diagnostics":[{}` + strings.Repeat(`,{}`, MaxDiagnostics) + `]}}`, errList},
		"many imports":         {`{"result":{"imports":[""` + strings.Repeat(`,""`, MaxImports) + `]}}`, errList},
		"imports in an object": {`{"result":{"imports":{}}}`, errShape},
		"inputs of an ask":     {`{"ask":{"open":{"inputs":{"a":{"value":[{}` + strings.Repeat(`,{}`, MaxValues) + `]}}}}}`, errCount},
		"no JSON":              {"x", errForm},
		"two messages":         {"{}{}", errForm},
		"an unfinished line":   {"{", errForm},
		"a list":               {`[1]`, errForm},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var message Message
			err := NewReader(strings.NewReader(one.line+"\n")).Read(&message, MaxResult)
			if !errors.Is(err, one.want) {
				t.Errorf("%v, want %v", err, one.want)
			}
		})
	}
}

// TestNestedValues checks that nested values are not copied again on each level. It does not run in parallel,
// because it counts what the process allocates.
func TestNestedValues(t *testing.T) {
	v := Value{Value: strings.Repeat("x", 1<<20)}
	for range MaxNesting - 1 {
		v = Value{Value: []Value{v}}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var again Value
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > MaxNesting/2 {
		t.Errorf("a text of 1 MiB on %d levels takes %d MiB", MaxNesting, allocated)
	}
}

// TestReader reads lines up to their limit.
func TestReader(t *testing.T) {
	t.Parallel()
	line := func(size int) string { return `"` + strings.Repeat("x", size-2) + `"` + "\n" }
	reader := NewReader(strings.NewReader(line(100_000) + line(10) + line(11)))
	var text string
	if err := reader.Read(&text, 100_000); err != nil || len(text) != 99_998 {
		t.Error(err, len(text))
	}
	if err := reader.Read(&text, 10); err != nil || len(text) != 8 {
		t.Error(err, text)
	}
	if err := reader.Read(&text, 10); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
	endless := NewReader(readerFunc(func(p []byte) (int, error) { return len(p), nil }))
	if err := endless.Read(&text, 1<<20); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
	if err := NewReader(strings.NewReader("")).Read(&text, 10); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if err := NewReader(strings.NewReader(`"half`)).Read(&text, 10); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if err := NewReader(strings.NewReader(`{"secret`+"\n")).Read(&text, 10); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error repeats the message: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestAppend writes lines up to their limit.
func TestAppend(t *testing.T) {
	t.Parallel()
	out, err := Append([]byte("before\n"), "<&>", 5)
	if err != nil || string(out) != "before\n\"<&>\"\n" {
		t.Errorf("%q %v", out, err)
	}
	if _, err := Append(nil, "<&>x", 5); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
}

// TestRoundTrip writes and reads each kind of message.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	v := Value{Value: "x", Secret: true}
	for _, message := range []any{
		&Hello{Protocol: Protocol, Version: "v1.2.3", Sandbox: true},
		&Request{Op: Open, Name: "a/b", Definition: []byte("values: \xff\n"), Context: Values{"pulumi": v}, ShowSecrets: true, Details: true, Milliseconds: 10},
		&Message{Ask: &Ask{Environment: &EnvironmentAsk{Name: "a/b@2", Importer: "a/c", Root: true}}},
		&Message{Ask: &Ask{Open: &OpenAsk{Provider: "p", Inputs: Values{"i": v}, Current: "c", Root: "r"}}},
		&Message{Ask: &Ask{Decrypt: &DecryptAsk{Environment: "a/b", Ciphertext: []byte{0, 1}}}},
		&Answer{Error: "no"},
		&Answer{Provider: &ProviderAnswer{Inputs: json.RawMessage(`{}`), Outputs: json.RawMessage(`true`)}},
		&Answer{Value: &v},
		&Message{Result: &Result{
			Diagnostics: Diagnostics{{Summary: "s", Severity: Warning, Range: &Range{Environment: "a/b", Begin: Position{Line: 1, Column: 2, Byte: 3}}}},
			Environment: &Environment{Properties: Values{"p": v}, Schema: json.RawMessage(`{"type":"object"}`)},
			Imports:     Names{"a/b"}, Definition: []byte("x"),
		}},
	} {
		line, err := Append(nil, message, MaxMessage)
		if err != nil {
			t.Fatal(err)
		}
		again := reflect.New(reflect.TypeOf(message).Elem()).Interface()
		if err := NewReader(bytes.NewReader(line)).Read(again, MaxMessage); err != nil || !reflect.DeepEqual(again, message) {
			t.Errorf("%s became %+v, %v", line, again, err)
		}
	}
}

// TestFailed checks which results must not be used.
func TestFailed(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		result Result
		want   bool
	}{
		{Result{}, false},
		{Result{Error: "x"}, true},
		{Result{Diagnostics: Diagnostics{{Severity: Warning}}}, false},
		{Result{Diagnostics: Diagnostics{{Severity: Warning}, {Severity: Error}}}, true},
		{Result{Diagnostics: Diagnostics{{}}}, true},
	} {
		if got := one.result.Failed(); got != one.want {
			t.Errorf("%+v: %v", one.result, got)
		}
	}
}
