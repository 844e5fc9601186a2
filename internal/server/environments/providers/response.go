package providers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/termtext"
)

// Bounds of one evaluation, besides its time.
const (
	maxOpens = 50
	maxCalls = 100
	maxBytes = 4 << 20 // of responses
	// maxValues and maxNesting bound one response.
	maxValues  = 20_000
	maxNesting = 50
	maxError   = 500 // bytes
	// memoryOfByte is what a byte of a response can need as a value, with the message to the evaluator.
	memoryOfByte = 8
)

// Usage is what an evaluation has used up.
type Usage struct{ opens, calls, bytes int }

// do makes a call to another server.
func (c *Call) do(ctx context.Context, call outbound.Call) (outbound.Answer, error) {
	if c.Used.calls++; c.Used.calls > maxCalls {
		return outbound.Answer{}, fault.Invalid("an evaluation can make at most %d calls to other servers", maxCalls)
	}
	switch {
	case c.opts.Client == nil:
		return outbound.Answer{}, fault.Invalid("this server calls no other servers")
	case c.Current == (Environment{}): // every caller can evaluate any definition
		return outbound.Answer{}, c.unnamed("calls another server, which only environments may do")
	}
	call.Header["User-Agent"] = "workflow-server"
	answer, err := c.opts.Client.Do(ctx, call)
	if ctx.Err() != nil {
		return outbound.Answer{}, context.Cause(ctx)
	}
	if err != nil {
		// The names in a certificate are the remote end's, too.
		return outbound.Answer{}, fault.Invalid("the provider %s: %s", c.provider, termtext.OneLine(err.Error(), maxError))
	}
	if c.Used.bytes += len(answer.Body); c.Used.bytes > maxBytes {
		return outbound.Answer{}, fault.Invalid("the providers of an evaluation can get at most %d MiB in all", maxBytes>>20)
	}
	return answer, budget.Of(ctx).Take(ctx, memoryOfByte*int64(len(answer.Body)))
}

// refused returns the error for a response that is no success. It never contains a part of the response: advice is our own.
func (c *Call) refused(who string, status int, advice string) error {
	if advice != "" {
		advice = ": " + advice
	}
	return fault.Invalid("the provider %s: %s responded with status %d%s", c.provider, who, status, advice)
}

// unexpected returns the error for a response that does not have its documented form.
func (c *Call) unexpected(who string) error {
	return fault.Invalid("the provider %s: the response of %s does not have the expected form, or is too large", c.provider, who)
}

// decode decodes a response of a known form. The body is at most what a call returns.
func decode(body []byte, into any) bool { return json.Unmarshal(body, into) == nil }

var errForm = errors.New("the response is not the expected JSON")

// valueOf returns the value that a JSON document contains. All its parts are secret, or none.
func valueOf(body []byte, secret bool) (wire.Value, error) {
	d := &document{Decoder: json.NewDecoder(bytes.NewReader(body)), left: maxValues, secret: secret}
	d.UseNumber()
	v, err := d.value(0)
	if err == nil && d.More() {
		err = errForm
	}
	return v, err
}

// document reads a JSON document of another server, in time and memory proportional to its size.
type document struct {
	*json.Decoder
	left   int // values
	secret bool
}

func (d *document) value(depth int) (wire.Value, error) {
	token, err := d.next(depth)
	if err != nil {
		return wire.Value{}, err
	}
	v := wire.Value{Value: token, Secret: d.secret}
	switch token {
	case json.Delim('['):
		list := []wire.Value{}
		for d.More() {
			element, err := d.value(depth + 1)
			if err != nil {
				return wire.Value{}, err
			}
			list = append(list, element)
		}
		v.Value = list
	case json.Delim('{'):
		members := map[string]wire.Value{}
		for d.More() {
			name, err := d.next(depth)
			if err != nil {
				return wire.Value{}, err
			}
			member, err := d.value(depth + 1)
			if err != nil {
				return wire.Value{}, err
			}
			members[name.(string)] = member // of an object, the decoder returns names only
		}
		v.Value = members
	default:
		return v, nil
	}
	_, err = d.Token()
	return v, err
}

func (d *document) next(depth int) (json.Token, error) {
	if d.left--; d.left < 0 || depth > maxNesting {
		return nil, errForm
	}
	return d.Token()
}
