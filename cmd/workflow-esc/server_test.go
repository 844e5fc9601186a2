package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/cmd/workflow-esc/internal/evaluator"
	"workflowagent/cmd/workflow-esc/internal/sandbox"
	"workflowagent/internal/esc/wire"
)

// limitsVariable makes the test binary the program, with these limits: MiB and a duration.
const limitsVariable = "WORKFLOW_ESC_TEST_LIMITS"

func TestMain(m *testing.M) {
	text := os.Getenv(limitsVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	mebibytes, duration, _ := strings.Cut(text, " ")
	memory, _ := strconv.ParseUint(mebibytes, 10, 64)
	cpu, _ := time.ParseDuration(duration)
	limits := sandbox.Limits{Memory: memory << 20, CPU: cpu}
	if err := (evaluator.Program{Version: "v1.2.3", Limits: limits, In: os.Stdin, Out: os.Stdout}).Serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// server is what the server knows.
type server struct {
	environments map[string]string // by name with an optional version
	refuse       string            // an environment that must not be imported
	providers    map[string]func(map[string]wire.Value) (wire.Value, error)
	silent       bool // it answers no asks

	asks []wire.Ask
}

// process is a started program.
type process struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *wire.Reader
	hello   wire.Hello
}

func start(tb testing.TB, limits string) *process {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	p := &process{command: exec.CommandContext(tb.Context(), self)}
	p.command.Env = []string{limitsVariable + "=" + limits}
	p.command.Dir = "/"
	p.command.Stderr = &bytes.Buffer{}
	if p.in, err = p.command.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		tb.Fatal(err)
	}
	p.out = wire.NewReader(out)
	if err := p.out.Read(&p.hello, wire.MaxMessage); err != nil {
		tb.Fatalf("%v: %s", err, p.command.Stderr)
	}
	return p
}

const usualLimits = "256 10s"

// ask serves one request with a new process.
func (s *server) ask(tb testing.TB, request wire.Request) *wire.Result {
	tb.Helper()
	result, err := s.askWithin(tb, usualLimits, request)
	if err != nil {
		tb.Fatal(err)
	}
	return result
}

// askWithin fails if the program ends without a result.
func (s *server) askWithin(tb testing.TB, limits string, request wire.Request) (*wire.Result, error) {
	tb.Helper()
	p := start(tb, limits)
	result, err := s.serve(p, request)
	_ = p.in.Close()
	ended := p.command.Wait()
	usage, ok := p.command.ProcessState.SysUsage().(*syscall.Rusage)
	if used := usage.Maxrss; ok && used > (256+128)<<10 {
		tb.Errorf("the program used %d KiB of memory", used)
	}
	if err := errors.Join(err, ended); err != nil {
		return nil, fmt.Errorf("%w: %.500s", err, p.command.Stderr)
	}
	return result, nil
}

// serve does the server's part of a request.
func (s *server) serve(p *process, request wire.Request) (*wire.Result, error) {
	if request.Milliseconds == 0 {
		request.Milliseconds = 60_000
	}
	if err := send(p.in, request); err != nil {
		return nil, err
	}
	for {
		var message wire.Message
		if err := p.out.Read(&message, wire.MaxResult); err != nil {
			return nil, fmt.Errorf("reading: %w", err)
		}
		if message.Result != nil {
			return message.Result, nil
		}
		s.asks = append(s.asks, *message.Ask)
		if s.silent {
			continue
		}
		answer, err := s.answer(message.Ask)
		if err != nil {
			answer = wire.Answer{Error: err.Error()}
		}
		if err := send(p.in, answer); err != nil {
			return nil, err
		}
	}
}

func send(w io.Writer, message any) error {
	line, err := wire.Append(nil, message, wire.MaxMessage)
	if err == nil {
		_, err = w.Write(line)
	}
	return err
}

func (s *server) answer(ask *wire.Ask) (wire.Answer, error) {
	switch {
	case ask.Environment != nil:
		name := ask.Environment.Name
		definition, ok := s.environments[name]
		if !ok || name == s.refuse {
			return wire.Answer{}, fmt.Errorf("there is no environment %s", name)
		}
		resolved, _, _ := strings.Cut(name, "@")
		return wire.Answer{Environment: &wire.EnvironmentAnswer{Name: resolved, Definition: []byte(definition)}}, nil
	case ask.Encrypt != nil:
		return wire.Answer{Bytes: slices.Concat([]byte(header), rotate(ask.Encrypt.Plaintext))}, nil
	case ask.Decrypt != nil:
		ciphertext, ok := bytes.CutPrefix(ask.Decrypt.Ciphertext, []byte(header))
		if !ok {
			return wire.Answer{}, errors.New("the secret cannot be decrypted")
		}
		return wire.Answer{Bytes: rotate(ciphertext)}, nil
	case ask.Provider != nil:
		if _, ok := s.providers[ask.Provider.Name]; !ok {
			return wire.Answer{}, fmt.Errorf("there is no provider %s", ask.Provider.Name)
		}
		return wire.Answer{Provider: &wire.ProviderAnswer{
			Inputs:  []byte(`{"type":"object","properties":{"stack":{"type":"string"}},"required":["stack"]}`),
			Outputs: []byte(`{"type":"object","additionalProperties":true}`),
		}}, nil
	case ask.Open != nil:
		value, err := s.providers[ask.Open.Provider](ask.Open.Inputs)
		return wire.Answer{Value: &value}, err
	}
	return wire.Answer{}, errors.New("an unknown ask")
}

const header = "tests' cipher: "

// rotate is the tests' cipher: it is its own inverse.
func rotate(text []byte) []byte {
	out := make([]byte, len(text))
	for i, b := range text {
		out[i] = b ^ 0x55
	}
	return out
}
