package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/pulumi/pulumi-go-provider/infer"
)

// Sleep is slow to create, so that a test can inspect, cancel or kill an update in progress.
type Sleep struct{}

// SleepArgs are the inputs of a [Sleep].
type SleepArgs struct {
	Seconds      float64 `pulumi:"seconds"`
	Started      *string `pulumi:"started,optional"`
	Until        *string `pulumi:"until,optional"`
	IgnoreCancel *bool   `pulumi:"ignoreCancel,optional"`
}

// SleepState is the state of a [Sleep] in the stack.
type SleepState struct {
	SleepArgs
	Slept float64 `pulumi:"slept"`
}

// untilInterval is how often a Sleep checks for the file that ends it.
const untilInterval = 20 * time.Millisecond

// Annotate describes the resource.
func (s *Sleep) Annotate(a infer.Annotator) {
	a.SetToken("index", "Sleep")
	a.Describe(&s, "A resource that is slow to create.")
}

// Annotate describes the inputs.
func (s *SleepArgs) Annotate(a infer.Annotator) {
	a.Describe(&s.Seconds, "How long creating takes at most.")
	a.Describe(&s.Started, "A file that is written when creating begins.")
	a.Describe(&s.Until, "A file whose appearance ends the wait early.")
	a.Describe(&s.IgnoreCancel, "Whether to continue when the update is cancelled.")
}

// Annotate describes the outputs.
func (s *SleepState) Annotate(a infer.Annotator) {
	a.Describe(&s.Slept, "How many seconds creating took.")
}

// Create waits. A cancelled update ends the wait with an error, unless the resource ignores
// cancellation.
func (Sleep) Create(ctx context.Context, req infer.CreateRequest[SleepArgs]) (infer.CreateResponse[SleepState], error) {
	resp := infer.CreateResponse[SleepState]{ID: req.Name, Output: SleepState{SleepArgs: req.Inputs}}
	if req.DryRun {
		return resp, nil
	}
	begin := time.Now()
	if err := req.Inputs.wait(ctx); err != nil {
		return resp, err
	}
	resp.Output.Slept = time.Since(begin).Seconds()
	return resp, nil
}

func (s SleepArgs) wait(ctx context.Context) error {
	if s.Started != nil {
		if err := os.WriteFile(*s.Started, []byte("started\n"), 0o644); err != nil {
			return fmt.Errorf("writing the file that marks the start of the wait: %w", err)
		}
	}
	if s.IgnoreCancel != nil && *s.IgnoreCancel {
		ctx = context.WithoutCancel(ctx)
	}
	timer := time.NewTimer(time.Duration(s.Seconds * float64(time.Second)))
	defer timer.Stop()
	ticker := time.NewTicker(untilInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the wait was cancelled: %w", context.Cause(ctx))
		case <-timer.C:
			return nil
		case <-ticker.C:
			if s.Until == nil {
				ticker.Stop()
				continue
			}
			if _, err := os.Stat(*s.Until); err == nil {
				return nil
			} else if !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("checking for the file that ends the wait: %w", err)
			}
		}
	}
}
