package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/pulumi/pulumi-go-provider/infer"
)

// Record appends one line to a ledger file each time it is created, updated or
// deleted. Tests count the lines: a deployment that ran twice shows as two.
type Record struct{}

// RecordArgs are the inputs of a [Record].
type RecordArgs struct {
	Ledger  string  `pulumi:"ledger" provider:"replaceOnChanges"`
	Trigger *string `pulumi:"trigger,optional"`
}

// RecordState is the state of a [Record] in the stack.
type RecordState struct {
	RecordArgs
	Name string `pulumi:"name"`
}

// Annotate describes the resource.
func (r *Record) Annotate(a infer.Annotator) {
	a.SetToken("index", "Record")
	a.Describe(&r, "A line in a ledger for each operation, so that operations can be counted.")
}

// Annotate describes the inputs.
func (r *RecordArgs) Annotate(a infer.Annotator) {
	a.Describe(&r.Ledger, "The file that lines are appended to: `VERB NAME PID TIME`.")
	a.Describe(&r.Trigger, "Any value; a change updates the record.")
}

// Annotate describes the outputs.
func (r *RecordState) Annotate(a infer.Annotator) {
	a.Describe(&r.Name, "The name in the ledger, which is the resource's own.")
}

// Create appends a "create" line.
func (Record) Create(_ context.Context, req infer.CreateRequest[RecordArgs]) (infer.CreateResponse[RecordState], error) {
	resp := infer.CreateResponse[RecordState]{
		ID:     req.Name,
		Output: RecordState{RecordArgs: req.Inputs, Name: req.Name},
	}
	if req.DryRun {
		return resp, nil
	}
	return resp, appendLine(req.Inputs.Ledger, "create", req.Name)
}

// Update appends an "update" line.
func (Record) Update(_ context.Context, req infer.UpdateRequest[RecordArgs, RecordState]) (infer.UpdateResponse[RecordState], error) {
	resp := infer.UpdateResponse[RecordState]{Output: RecordState{RecordArgs: req.Inputs, Name: req.State.Name}}
	if req.DryRun {
		return resp, nil
	}
	return resp, appendLine(req.Inputs.Ledger, "update", req.State.Name)
}

// Delete appends a "delete" line.
func (Record) Delete(_ context.Context, req infer.DeleteRequest[RecordState]) (infer.DeleteResponse, error) {
	return infer.DeleteResponse{}, appendLine(req.State.Ledger, "delete", req.State.Name)
}

// appendLine appends with a single write in append mode, so that lines of concurrent processes
// never mix.
func appendLine(ledger, verb, name string) error {
	f, err := os.OpenFile(ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the ledger: %w", err)
	}
	_, err = fmt.Fprintf(f, "%s %s %d %s\n", verb, name, os.Getpid(), time.Now().UTC().Format(time.RFC3339Nano))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("writing the ledger: %w", err)
	}
	return nil
}
