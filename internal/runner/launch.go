package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"workflowagent/internal/protocol"
)

// Bounds of the standard input.
const (
	LaunchTimeout = 30 * time.Second
	maxLaunch     = 24 << 20 // bytes; a definition is at most 16 MiB
)

// ReadLaunch reads the job from r, the standard input of the process. If ctx ends first, a read
// of r may still be blocked, which is harmless in a process about to end. Its errors never
// repeat the input.
func ReadLaunch(ctx context.Context, r io.Reader) (*protocol.Launch, error) {
	type read struct {
		data []byte
		err  error
	}
	done := make(chan read, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(r, maxLaunch+1))
		done <- read{data, err}
	}()
	var data []byte
	select {
	case <-ctx.Done():
		return nil, errors.New("no job arrived on standard input in time; nothing was started: the agent must start this program")
	case got := <-done:
		if got.err != nil {
			return nil, fmt.Errorf("reading the job from standard input: %w", got.err)
		}
		data = got.data
	}
	switch {
	case len(data) == 0:
		return nil, errors.New("standard input is empty; nothing was started: the agent must start this program")
	case len(data) > maxLaunch:
		return nil, fmt.Errorf("the job on standard input is longer than %d bytes; nothing was started", maxLaunch)
	}
	var launch protocol.Launch
	if err := json.Unmarshal(data, &launch); err != nil {
		// The error could quote the input, which holds secrets.
		return nil, errors.New("the job on standard input is not the JSON document that was expected; nothing was started")
	}
	return &launch, validateLaunch(&launch)
}

// validateLaunch leaves a bad definition to a later check, which reports to the log.
func validateLaunch(l *protocol.Launch) error {
	if l.Offline && l.Definition != nil {
		return nil
	}
	base, err := url.Parse(l.ServiceURL)
	switch {
	case err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "":
		return errors.New("the job on standard input names no usable service URL; nothing was started")
	case l.JobID == "" || l.JobToken == "":
		return errors.New("the job on standard input has no id or no token; nothing was started")
	case l.Epoch < 0:
		return errors.New("the job on standard input has a negative epoch; nothing was started")
	}
	return nil
}
