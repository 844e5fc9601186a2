// Package evaluator serves the server's requests with the evaluator of Pulumi's SDK. What the evaluator needs
// besides the definition, it gets from the server.
package evaluator

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"workflowagent/cmd/workflow-esc/internal/sandbox"
	"workflowagent/internal/esc/wire"
)

// Program is a program that serves one request.
type Program struct {
	Version string
	Limits  sandbox.Limits
	In      io.Reader
	Out     io.Writer
}

// Serve enters the sandbox and serves one request. It exits the process if the request exceeds a limit.
func (p Program) Serve() error {
	entered, err := sandbox.Enter(p.Limits)
	if err != nil {
		return err
	}
	peer := newPeer(p.In, p.Out)
	if err := peer.write(wire.Hello{Protocol: wire.Protocol, Version: p.Version, Sandbox: entered}, wire.MaxMessage); err != nil {
		return err
	}
	var request wire.Request
	switch err := peer.reader.Read(&request, wire.MaxMessage); {
	case errors.Is(err, io.EOF):
		return nil // the server does not need this program any more
	case err != nil:
		return fmt.Errorf("reading the request: %w", err)
	}
	exceeded := func(why string) {
		// The evaluation cannot be interrupted.
		_ = peer.finish(&wire.Result{Error: "evaluating the environment was stopped: " + why})
		os.Exit(0)
	}
	allowed := time.Duration(request.Milliseconds) * time.Millisecond
	timer := time.AfterFunc(allowed, func() { exceeded(fmt.Sprintf("it takes longer than %s", allowed)) })
	defer timer.Stop()
	defer sandbox.Watch(p.Limits, exceeded)()
	result, err := evaluate(peer, &request)
	switch {
	case peer.hasResult(): // the server may have left since
		return nil
	case err != nil:
		return err
	}
	return peer.finish(result)
}

// peer is the server.
type peer struct {
	reader *wire.Reader
	asks   int

	mu       sync.Mutex
	writer   io.Writer
	finished bool
}

func newPeer(r io.Reader, w io.Writer) *peer {
	return &peer{reader: wire.NewReader(r), writer: w}
}

func (p *peer) write(message any, limit int) error {
	line, err := wire.Append(nil, message, limit)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return errors.New("the request has its result")
	}
	_, err = p.writer.Write(line)
	return err
}

// finish writes the result. Only the first result is written.
func (p *peer) finish(result *wire.Result) error {
	line, err := wire.Append(nil, wire.Message{Result: result}, wire.MaxResult)
	if err != nil {
		failed := &wire.Result{Error: err.Error(), Fault: true}
		if errors.Is(err, wire.ErrTooLong) {
			failed = &wire.Result{Error: fmt.Sprintf("the environment's values are larger than %d MiB", wire.MaxResult>>20)}
		}
		if line, err = wire.Append(nil, wire.Message{Result: failed}, wire.MaxResult); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished {
		return nil
	}
	p.finished = true
	_, err = p.writer.Write(line)
	return err
}

func (p *peer) hasResult() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.finished
}

// errGone is the panic that ends an evaluation whose server does not answer.
type errGone struct{ err error }

// ask returns the server's answer. Errors are about the definition. If the server is gone, ask panics with
// [errGone], because the evaluator would take an error for one about the definition and continue.
func (p *peer) ask(ask wire.Ask) (*wire.Answer, error) {
	if p.asks++; p.asks > wire.MaxAsks {
		return nil, fmt.Errorf("the environment needs more than %d imports, secrets and providers", wire.MaxAsks)
	}
	err := p.write(wire.Message{Ask: &ask}, wire.MaxMessage)
	if errors.Is(err, wire.ErrTooLong) {
		return nil, fmt.Errorf("the secret or the inputs are larger than %d MiB", wire.MaxMessage>>20)
	}
	var answer wire.Answer
	if err == nil {
		err = p.reader.Read(&answer, wire.MaxMessage)
	}
	if err != nil {
		panic(errGone{fmt.Errorf("the server did not answer: %w", err)}) //nolint:forbidigo // see above; evaluate recovers
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return &answer, nil
}
