package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
)

// Random is a pair of random strings, one public and one secret, that are drawn once and then kept
// in the stack's state.
type Random struct{}

// RandomArgs are the inputs of a [Random].
type RandomArgs struct {
	Bytes   *int    `pulumi:"bytes,optional" provider:"replaceOnChanges"`
	Trigger *string `pulumi:"trigger,optional" provider:"replaceOnChanges"`
}

// RandomState is the state of a [Random] in the stack.
type RandomState struct {
	RandomArgs
	Hex      string `pulumi:"hex"`
	Password string `pulumi:"password" provider:"secret"`
}

const (
	defaultRandomBytes = 8
	maxRandomBytes     = 1 << 20
)

// Annotate describes the resource.
func (r *Random) Annotate(a infer.Annotator) {
	a.SetToken("index", "Random")
	a.Describe(&r, "Two random strings that stay the same until the resource is replaced.")
}

// Annotate describes the inputs.
func (r *RandomArgs) Annotate(a infer.Annotator) {
	a.Describe(&r.Bytes, "How many random bytes each string encodes, 8 by default.")
	a.Describe(&r.Trigger, "Any value; a change replaces the resource.")
}

// Annotate describes the outputs.
func (r *RandomState) Annotate(a infer.Annotator) {
	a.Describe(&r.Hex, "A random string in hexadecimal.")
	a.Describe(&r.Password, "Another random string, which is always a secret.")
}

// Check rejects sizes that are out of range.
func (Random) Check(ctx context.Context, req infer.CheckRequest) (infer.CheckResponse[RandomArgs], error) {
	args, failures, err := infer.DefaultCheck[RandomArgs](ctx, req.NewInputs)
	if err == nil && args.Bytes != nil && (*args.Bytes < 1 || *args.Bytes > maxRandomBytes) {
		failures = append(failures, p.CheckFailure{
			Property: "bytes",
			Reason:   fmt.Sprintf("must be between 1 and %d", maxRandomBytes),
		})
	}
	return infer.CheckResponse[RandomArgs]{Inputs: args, Failures: failures}, err
}

// Create draws the strings.
func (Random) Create(_ context.Context, req infer.CreateRequest[RandomArgs]) (infer.CreateResponse[RandomState], error) {
	resp := infer.CreateResponse[RandomState]{ID: req.Name, Output: RandomState{RandomArgs: req.Inputs}}
	if req.DryRun {
		return resp, nil
	}
	size := defaultRandomBytes
	if req.Inputs.Bytes != nil {
		size = *req.Inputs.Bytes
	}
	resp.Output.Hex = randomHex(size)
	resp.Output.Password = randomHex(size)
	resp.ID = req.Name + "-" + randomHex(4)
	return resp, nil
}

func randomHex(size int) string {
	b := make([]byte, size)
	rand.Read(b) // It never fails: the standard library crashes the process instead.
	return hex.EncodeToString(b)
}
