package evaluator

import (
	"bytes"
	"strings"
	"testing"

	"workflowagent/internal/esc/wire"
)

// TestTooManyAsks checks that a definition cannot ask the server without end.
func TestTooManyAsks(t *testing.T) {
	var out bytes.Buffer
	p := newPeer(strings.NewReader(`{"bytes":"eA=="}`+"\n"), &out)
	p.asks = wire.MaxAsks - 1
	if answer, err := p.ask(wire.Ask{Encrypt: &wire.EncryptAsk{}}); err != nil || string(answer.Bytes) != "x" {
		t.Fatal(answer, err)
	}
	out.Reset()
	if _, err := p.ask(wire.Ask{Encrypt: &wire.EncryptAsk{}}); err == nil || out.Len() > 0 {
		t.Error(err, &out)
	}
	if _, err := newPeer(nil, &out).ask(wire.Ask{Encrypt: &wire.EncryptAsk{Plaintext: make([]byte, wire.MaxMessage)}}); err == nil || out.Len() > 0 {
		t.Error(err, &out)
	}
}

// TestOneResult checks that what comes after a result is not written.
func TestOneResult(t *testing.T) {
	var out bytes.Buffer
	p := newPeer(nil, &out)
	if err := p.finish(&wire.Result{Error: "first"}); err != nil {
		t.Fatal(err)
	}
	if err := p.finish(&wire.Result{Error: "second"}); err != nil {
		t.Fatal(err)
	}
	if err := p.write(wire.Message{}, wire.MaxMessage); err == nil {
		t.Error("an ask was written after the result")
	}
	if got := out.String(); got != `{"result":{"error":"first"}}`+"\n" {
		t.Errorf("%q", got)
	}
	out.Reset()
	if err := newPeer(nil, &out).finish(&wire.Result{Definition: make([]byte, wire.MaxResult)}); err != nil || !strings.Contains(out.String(), "larger than 16 MiB") {
		t.Error(err, out.Len())
	}
}

// TestUnwritableResult checks that there is a result nevertheless.
func TestUnwritableResult(t *testing.T) {
	var out bytes.Buffer
	result := &wire.Result{Environment: &wire.Environment{Properties: wire.Values{"a": {Value: 1}}}}
	if err := newPeer(nil, &out).finish(result); err != nil || !strings.Contains(out.String(), `"fault":true`) {
		t.Error(err, &out)
	}
}

// TestOneDocument checks that nothing is stored that the library does not read.
func TestOneDocument(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "values: {}": false, "---\nvalues: {}\n": false, "values: {}\n---\nvalues: {a: {fn::secret: b}}": true, "a: 1\n---\n}": true,
	} {
		if got := several([]byte(text)); got != want {
			t.Errorf("%q has several documents: %v", text, got)
		}
	}
	result, err := evaluate(&peer{}, &wire.Request{Op: wire.Encrypt, Definition: []byte("values: {}\n---\nvalues: {}")})
	if err != nil || !strings.Contains(result.Error, "more than one YAML document") {
		t.Errorf("%+v %v", result, err)
	}
}

// TestPanic checks that a mistake of the evaluator does not show values.
func TestPanic(t *testing.T) {
	result, err := evaluate(&peer{}, &wire.Request{Op: wire.Open, Definition: []byte("imports: [a/b]")})
	if err != nil || !result.Fault || !strings.Contains(result.Error, "evaluator.(*peer).write") {
		t.Errorf("%+v %v", result, err)
	}
}
