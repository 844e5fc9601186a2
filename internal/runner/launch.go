package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"syscall"
	"time"

	"workflowagent/internal/protocol"
)

// Limits on reading the launch from standard input.
const (
	launchTimeout = 30 * time.Second
	maxLaunch     = 24 << 20 // bytes; a definition has at most 16 MiB
)

// ReadLaunch reads the job from r, the standard input of the process, within a time limit. If a signal
// arrives or ctx is done first, a read from r can still block, which is harmless because the process is
// about to exit. Errors never repeat the input.
func ReadLaunch(ctx context.Context, r io.Reader, signals <-chan os.Signal) (*protocol.Launch, error) {
	ctx, cancel := context.WithTimeout(ctx, launchTimeout)
	defer cancel()
	type read struct {
		data []byte
		err  error
	}
	done := make(chan read, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(r, maxLaunch+1))
		done <- read{data, err}
	}()
	select {
	case <-ctx.Done():
		return nil, errors.New("waiting for a job on standard input: timeout; nothing was started: only the agent may start this program")
	case sig := <-signals:
		return nil, fmt.Errorf("ended by %s before a job arrived; nothing was started", sig)
	case got := <-done:
		if got.err != nil {
			return nil, fmt.Errorf("reading a job from standard input: %w", got.err)
		}
		return parseLaunch(got.data, "standard input")
	}
}

// consumeLaunch reads the launch from a file and removes the file, so that no other process can read
// it. The file's directory must be writable. Errors never repeat the content.
func consumeLaunch(file string) (*protocol.Launch, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading a job from %s: no such file; nothing was started: a job runs only once, so a copy of its pod cannot run it again", file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a job; nothing was started: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxLaunch+1))
	err = errors.Join(err, f.Close())
	if removeErr := os.Remove(file); removeErr != nil {
		return nil, fmt.Errorf("removing the file with the job; nothing was started, because a step could read it: %w", removeErr)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a job; nothing was started: %w", err)
	}
	return parseLaunch(data, file)
}

func parseLaunch(data []byte, source string) (*protocol.Launch, error) {
	switch {
	case len(data) == 0:
		return nil, fmt.Errorf("reading a job from %s: no input; nothing was started: only the agent may start this program", source)
	case len(data) > maxLaunch:
		return nil, fmt.Errorf("reading a job from %s: longer than %d bytes; nothing was started", source, maxLaunch)
	}
	var launch protocol.Launch
	if err := json.Unmarshal(data, &launch); err != nil {
		// The error might quote the input, which contains secrets.
		return nil, fmt.Errorf("reading a job from %s: not valid JSON or not a job; nothing was started", source)
	}
	if err := validateLaunch(&launch); err != nil {
		return nil, fmt.Errorf("reading a job from %s: %w; nothing was started", source, err)
	}
	return &launch, nil
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
		return errors.New("no usable service URL")
	case l.JobID == "" || l.JobToken == "":
		return errors.New("no id or no token")
	case l.Epoch < 0:
		return errors.New("negative epoch")
	}
	return nil
}
