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

// Limits on reading the launch from standard input.
const (
	LaunchTimeout = 30 * time.Second
	maxLaunch     = 24 << 20 // bytes; a definition has at most 16 MiB
)

// ReadLaunch reads the job from r, the standard input of the process. If ctx is done first, a read
// from r can still block, which is harmless because the process is about to exit. Errors never
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
		return nil, errors.New("waiting for a job on standard input: timeout; nothing was started: only the agent may start this program")
	case got := <-done:
		if got.err != nil {
			return nil, fmt.Errorf("reading a job from standard input: %w", got.err)
		}
		data = got.data
	}
	switch {
	case len(data) == 0:
		return nil, errors.New("reading a job from standard input: no input; nothing was started: only the agent may start this program")
	case len(data) > maxLaunch:
		return nil, fmt.Errorf("reading a job from standard input: longer than %d bytes; nothing was started", maxLaunch)
	}
	var launch protocol.Launch
	if err := json.Unmarshal(data, &launch); err != nil {
		// The error might quote the input, which contains secrets.
		return nil, errors.New("reading a job from standard input: not valid JSON or not a job; nothing was started")
	}
	return &launch, validateLaunch(&launch)
}

// validateLaunch validates everything except the definition. Errors in the definition are found
// later and reported in the job's log.
func validateLaunch(l *protocol.Launch) error {
	if l.Offline && l.Definition != nil {
		return nil
	}
	base, err := url.Parse(l.ServiceURL)
	switch {
	case err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "":
		return errors.New("reading a job from standard input: no usable service URL; nothing was started")
	case l.JobID == "" || l.JobToken == "":
		return errors.New("reading a job from standard input: no id or no token; nothing was started")
	case l.Epoch < 0:
		return errors.New("reading a job from standard input: negative epoch; nothing was started")
	}
	return nil
}
