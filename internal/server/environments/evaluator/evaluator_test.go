package evaluator_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/environments/evaluator"
	"workflowagent/internal/server/fault"
)

// programPrefix begins the names under which the test binary acts as an evaluator. A process gets no variables.
const programPrefix = "evaluator-that-"

func TestMain(m *testing.M) {
	if deed, ok := strings.CutPrefix(filepath.Base(os.Args[0]), programPrefix); ok {
		act(deed)
		return
	}
	os.Exit(m.Run())
}

// act is an evaluator that was taken over, or one that works.
func act(deed string) {
	say := func(text string) { _, _ = io.WriteString(os.Stdout, text+"\n") }
	encode := func(message any) { say(string(value(json.Marshal(message)))) }
	if deed == "is-deaf-once" && os.Mkdir(os.Args[0]+".was", 0o700) == nil {
		_ = os.Stdin.Close() // as if it ended between its hello and the request
	}
	if deed == "starts-the-second-time" && os.Mkdir(os.Args[0]+".was", 0o700) == nil {
		os.Exit(1)
	}
	if deed == "counts-its-starts-and-fails" {
		file := value(os.OpenFile(os.Args[0]+".starts", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600))
		_ = value(file.WriteString("."))
		os.Exit(1)
	}
	hello := wire.Hello{Protocol: wire.Protocol, Version: "test", Sandbox: true}
	if deed == "has-another-version" {
		hello.Protocol++
	}
	encode(hello)
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return
	}
	environment := func(name string) wire.Message {
		return wire.Message{Ask: &wire.Ask{Environment: &wire.EnvironmentAsk{Name: name, Root: true}}}
	}
	switch deed {
	case "dies":
		os.Exit(3)
	case "says-nonsense":
		say("{nonsense")
	case "says-nothing":
		say(`{}`)
	case "says-two-things":
		say(`{"ask":{"provider":{"name":"a"}},"result":{}}`)
	case "asks-two-things":
		say(`{"ask":{"provider":{"name":"a"},"encrypt":{}}}`)
	case "says-too-much":
		for {
			if _, err := io.WriteString(os.Stdout, strings.Repeat("x", 1<<20)); err != nil {
				return
			}
		}
	case "asks-too-much":
		for {
			encode(environment("a"))
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
		}
	case "asks-in-a-long-line":
		encode(wire.Message{Ask: &wire.Ask{Encrypt: &wire.EncryptAsk{Plaintext: make([]byte, wire.MaxMessage)}}})
	case "explains-at-length":
		encode(wire.Message{Result: &wire.Result{Diagnostics: wire.Diagnostics{{Summary: strings.Repeat("a", wire.MaxText+1)}}}})
	case "asks-for-a-long-name":
		encode(environment(strings.Repeat("a", wire.MaxName+1)))
	case "returns-a-definition":
		encode(wire.Message{Result: &wire.Result{Definition: []byte("values: {}")}})
	case "opens-a-provider":
		encode(wire.Message{Ask: &wire.Ask{Open: &wire.OpenAsk{Provider: "slow"}}})
		time.Sleep(time.Hour) // killed
	case "returns-nothing":
		encode(wire.Message{Result: &wire.Result{}})
	case "never-ends":
		time.Sleep(time.Hour) // killed; the runtime ends a program that only blocks
	case "needs-memory":
		var all [][]byte
		for range 400 {
			piece := make([]byte, 1<<20)
			for i := range piece {
				piece[i] = byte(i)
			}
			all = append(all, piece)
		}
		time.Sleep(time.Minute) // killed
		fmt.Fprintln(os.Stderr, len(all))
	default: // asks for an environment and returns what it gets
		encode(environment("a"))
		var answer wire.Answer
		if err := json.Unmarshal([]byte(value(in.ReadString('\n'))), &answer); err != nil {
			return
		}
		got := wire.Value{Value: answer.Error + string(value(json.Marshal(answer.Environment)))}
		encode(wire.Message{Result: &wire.Result{Environment: &wire.Environment{Properties: wire.Values{"got": got}}}})
	}
	_, _ = io.Copy(io.Discard, in)
}

func value[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// host answers with one environment.
type host struct{ asked int }

var errHost = errors.New("the database is gone")

func (h *host) Environment(_ context.Context, ask wire.EnvironmentAsk) (wire.Answer, error) {
	h.asked++
	if ask.Name == "gone" {
		return wire.Answer{}, errHost
	}
	return wire.Answer{Environment: &wire.EnvironmentAnswer{Name: "p/a@1", Definition: []byte("values: {}")}}, nil
}

func (h *host) Encrypt(context.Context, wire.EncryptAsk) (wire.Answer, error) {
	return wire.Answer{}, errHost
}

func (h *host) Decrypt(context.Context, wire.DecryptAsk) (wire.Answer, error) {
	return wire.Answer{}, errHost
}

func (h *host) Provider(context.Context, wire.ProviderAsk) (wire.Answer, error) {
	return wire.Answer{}, errHost
}

// Open calls a service that does not answer.
func (h *host) Open(ctx context.Context, _ wire.OpenAsk) (wire.Answer, error) {
	<-ctx.Done()
	return wire.Answer{}, ctx.Err()
}

var acme = evaluator.Owner{Organization: "acme", Caller: "ann"}

// newPool returns a pool whose program is the test binary, which acts by a name.
func newPool(t *testing.T, deed string, change ...func(*evaluator.Options)) *evaluator.Pool {
	t.Helper()
	program := filepath.Join(t.TempDir(), programPrefix+deed)
	must.OK(t, os.Symlink(must.Get(os.Executable())(t), program))
	o := evaluator.Options{Log: storetest.Log(), Program: program}
	for _, c := range change {
		c(&o)
	}
	pool := evaluator.New(o)
	t.Cleanup(pool.Close)
	return pool
}

// TestTakenOverEvaluators runs programs that break the rules. Each ends with one sentence, and the server keeps nothing of what
// they say.
func TestTakenOverEvaluators(t *testing.T) {
	quick := func(o *evaluator.Options) { o.Static, o.WithProviders = time.Millisecond, time.Millisecond }
	for deed, want := range map[string]string{
		"dies":                 "ended without a result",
		"says-nonsense":        "ended without a result",
		"says-nothing":         "ended without a result",
		"says-two-things":      "ended without a result",
		"asks-two-things":      "ended without a result",
		"says-too-much":        "ended without a result",
		"asks-too-much":        "ended without a result",
		"asks-for-a-long-name": "ended without a result",
		"asks-in-a-long-line":  "ended without a result",
		"explains-at-length":   "ended without a result",
		"returns-a-definition": "ended without a result",
		"never-ends":           "took too long",
		"opens-a-provider":     "took too long",
		"needs-memory":         "more than 256 MiB of memory",
		"has-another-version":  "workflow-esc is missing or does not run",
	} {
		t.Run(deed, func(t *testing.T) {
			change := func(*evaluator.Options) {}
			if want == "took too long" {
				change = quick
			}
			pool, h := newPool(t, deed, change), &host{}
			_, err := pool.Run(t.Context(), acme, wire.Request{Op: wire.Open, Definition: []byte("values: {}")}, h)
			if err == nil || !strings.Contains(err.Error(), want) || fault.KindOf(err) == "" {
				t.Errorf("the error is %v (%q), want %s", err, fault.KindOf(err), want)
			}
			if h.asked > 10_000 {
				t.Errorf("the program asked %d times", h.asked)
			}
		})
	}
}

func TestEvaluatorAsks(t *testing.T) {
	pool, h := newPool(t, "works"), &host{}
	for range 3 {
		result, err := pool.Run(t.Context(), acme, wire.Request{Op: wire.Open}, h)
		must.OK(t, err)
		if got := fmt.Sprint(result.Environment.Properties["got"].Value); !strings.Contains(got, `"name":"p/a@1"`) {
			t.Errorf("the program got %s", got)
		}
	}
	if h.asked != 3 {
		t.Errorf("the host was asked %d times", h.asked)
	}
}

// TestEmptyDefinition decrypts the definition of a new environment.
func TestEmptyDefinition(t *testing.T) {
	pool := newPool(t, "returns-nothing")
	for definition, want := range map[string]bool{"": true, " \n": true, "values: {}": false} {
		for _, op := range []wire.Op{wire.Decrypt, wire.Encrypt} {
			_, err := pool.Run(t.Context(), acme, wire.Request{Op: op, Definition: []byte(definition)}, &host{})
			if (err == nil) != want {
				t.Errorf("%s of %q: %v", op, definition, err)
			}
		}
	}
}

// TestRequestEnds cancels a request that would never end.
func TestRequestEnds(t *testing.T) {
	pool := newPool(t, "never-ends")
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client is gone")
	time.AfterFunc(20*time.Millisecond, func() { cancel(gone) })
	if _, err := pool.Run(ctx, acme, wire.Request{Op: wire.Open}, &host{}); !errors.Is(err, gone) {
		t.Errorf("the error is %v", err)
	}
}

func TestMissingProgram(t *testing.T) {
	pool := evaluator.New(evaluator.Options{Log: storetest.Log(), Program: filepath.Join(t.TempDir(), "absent")})
	t.Cleanup(pool.Close)
	if pool.Available() {
		t.Error("the program is available")
	}
	_, err := pool.Run(t.Context(), acme, wire.Request{Op: wire.Open}, &host{})
	if fault.KindOf(err) != fault.KindUnavailable || !strings.Contains(err.Error(), "must install it") {
		t.Errorf("the error is %v", err)
	}
}

// TestProcessEndsBeforeItsRequest gives the request to another process.
func TestProcessEndsBeforeItsRequest(t *testing.T) {
	pool, h := newPool(t, "is-deaf-once"), &host{}
	for range 2 { // the process can be the first or the next one
		if _, err := pool.Run(t.Context(), acme, wire.Request{Op: wire.Open}, h); err != nil {
			t.Error(err)
		}
	}
	if h.asked != 2 {
		t.Errorf("the host was asked %d times", h.asked)
	}
}

// TestFailedStartIsRemembered starts no process for requests that soon follow one whose process could not start.
func TestFailedStartIsRemembered(t *testing.T) {
	var starts string
	pool := newPool(t, "counts-its-starts-and-fails", func(o *evaluator.Options) { o.Failed, starts = time.Hour, o.Program+".starts" })
	run := func(pool *evaluator.Pool) error {
		_, err := pool.Run(t.Context(), acme, wire.Request{Op: wire.Open}, &host{})
		return err
	}
	for range 5 {
		if err := run(pool); fault.KindOf(err) != fault.KindUnavailable {
			t.Errorf("the error is %v", err)
		}
	}
	if got := string(must.Get(os.ReadFile(starts))(t)); len(got) > 2 { // one, and the next one
		t.Errorf("%d processes started", len(got))
	}
	pool = newPool(t, "starts-the-second-time", func(o *evaluator.Options) { o.Failed = time.Nanosecond })
	_ = run(pool) // the process that fails can be this one or the next
	for range 2 {
		must.OK(t, run(pool))
	}
}
