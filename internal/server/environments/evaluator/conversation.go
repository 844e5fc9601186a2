package evaluator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"workflowagent/internal/esc/wire"
)

// Bounds of what one request may ask for, in addition to those of package wire.
const (
	maxEnvironmentAsks = 5000      // pairs of environments that import each other
	maxProviderOpens   = 200       // providers that are opened
	maxAnswered        = 128 << 20 // bytes of definitions, also of one that several environments import
)

// conversation exchanges the messages of one request with a process.
type conversation struct {
	proc *process
	host Host

	timer     *time.Timer
	started   time.Time
	limit     time.Duration // of requests that open providers
	starved   func() bool   // whether others wait for a place that this request takes
	providers atomic.Bool   // whether the request opens providers

	asks, environments, opens, answered int
}

// yieldInterval is the interval at which a slow request makes way for others.
const yieldInterval = time.Second

// expire ends a request whose time is over. One that opens providers can continue, up to its limit, while no other request
// waits for its place.
func (c *conversation) expire(end func(error)) {
	switch left := c.limit - time.Since(c.started); {
	case !c.providers.Load() || left <= 0:
		end(errSlow)
	case c.starved():
		end(errContended)
	default:
		c.timer.Reset(min(left, yieldInterval))
	}
}

func (c *conversation) run(ctx context.Context, req wire.Request) (*wire.Result, error) {
	if err := c.proc.write(req); err != nil {
		if errors.Is(err, wire.ErrTooLong) {
			return nil, err
		}
		return nil, broken(fmt.Errorf("%w: %w", errUnsent, err))
	}
	for {
		var m wire.Message
		if err := c.proc.read(&m, wire.MaxResult); err != nil {
			return nil, broken(err)
		}
		switch {
		case m.Result != nil && m.Ask == nil:
			return m.Result, check(m.Result, req)
		case m.Ask == nil || m.Result != nil:
			return nil, broken(errors.New("a message is neither a question nor a result"))
		case c.proc.reader.Size() > wire.MaxMessage:
			return nil, broken(errors.New("a question is too long"))
		}
		answer, err := c.answer(ctx, *m.Ask)
		if err != nil {
			return nil, err
		}
		if err := c.proc.write(answer); err != nil {
			if !errors.Is(err, wire.ErrTooLong) {
				return nil, broken(err)
			}
			if err := c.proc.write(wire.Answer{Error: "the answer of the server is too large"}); err != nil {
				return nil, broken(err)
			}
		}
	}
}

// check returns an error for a result that does not fit the request.
func check(r *wire.Result, req wire.Request) error {
	if r.Failed() {
		return nil
	}
	changes := req.Op == wire.Encrypt || req.Op == wire.Decrypt
	lacks := r.Definition == nil && len(bytes.TrimSpace(req.Definition)) > 0 // an empty definition remains empty
	switch {
	case changes && (lacks || r.Environment != nil), !changes && r.Definition != nil:
		return broken(errors.New("the result is not the one that was requested"))
	case len(r.Definition) > wire.MaxDefinition:
		return broken(errors.New("the definition of the result is too large"))
	}
	for _, name := range r.Imports {
		if len(name) > wire.MaxName {
			return broken(errors.New("a name in the result is too long"))
		}
	}
	return nil
}

func (c *conversation) answer(ctx context.Context, ask wire.Ask) (wire.Answer, error) {
	if c.asks++; c.asks > wire.MaxAsks {
		return wire.Answer{}, broken(errors.New("the program asks too much"))
	}
	given := 0
	for _, set := range []bool{ask.Environment != nil, ask.Encrypt != nil, ask.Decrypt != nil, ask.Provider != nil, ask.Open != nil} {
		if set {
			given++
		}
	}
	if given != 1 {
		return wire.Answer{}, broken(fmt.Errorf("a question has %d members", given))
	}
	switch {
	case ask.Environment != nil:
		return c.environment(ctx, *ask.Environment)
	case ask.Encrypt != nil:
		return c.host.Encrypt(ctx, *ask.Encrypt)
	case ask.Decrypt != nil:
		return c.host.Decrypt(ctx, *ask.Decrypt)
	case ask.Provider != nil:
		if len(ask.Provider.Name) > wire.MaxName {
			return wire.Answer{}, broken(errors.New("a name is too long"))
		}
		return c.host.Provider(ctx, *ask.Provider)
	default:
		if c.opens++; c.opens > maxProviderOpens {
			return wire.Answer{Error: fmt.Sprintf("the environment opens more than %d providers", maxProviderOpens)}, nil
		}
		c.providers.Store(true)
		return c.host.Open(ctx, *ask.Open)
	}
}

func (c *conversation) environment(ctx context.Context, ask wire.EnvironmentAsk) (wire.Answer, error) {
	c.environments++
	if c.environments > maxEnvironmentAsks || len(ask.Name) > wire.MaxName || len(ask.Importer) > wire.MaxName {
		return wire.Answer{}, broken(errors.New("the program asks for too many environments, or for too long names"))
	}
	if c.answered > maxAnswered { // before the host reads another one
		return wire.Answer{Error: fmt.Sprintf("the imported environments are larger than %d MiB in all", maxAnswered>>20)}, nil
	}
	answer, err := c.host.Environment(ctx, ask)
	if err == nil && answer.Environment != nil {
		c.answered += len(answer.Environment.Definition)
	}
	return answer, err
}
