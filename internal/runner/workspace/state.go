package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/runner/lockfiles"
	"workflowagent/internal/runner/source"
	"workflowagent/internal/sys/durable"
)

// State is the record of a whole workspace. It contains no secret: see [lockfiles.Stamp].
type State struct {
	// Checkout is the checkout in DirSource; nil: there is none.
	Checkout *source.Kept `json:"checkout,omitempty"`
	// Installed describes the dependencies in the checkout; nil: none are proven.
	Installed *lockfiles.Stamp `json:"installed,omitempty"`
	// FetchTime and InstallTime are how long the steps took when nothing was kept.
	FetchTime   time.Duration `json:"fetchTime,omitempty"`
	InstallTime time.Duration `json:"installTime,omitempty"`
}

// stored is the content of the file.
type stored struct {
	Version int    `json:"version"`
	Key     string `json:"key"`
	State   State  `json:"state"`
}

const (
	stateVersion = 1
	maxState     = 1 << 20 // bytes
)

// Key returns the key of everything that the content of a workspace depends on.
func Key(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s\n", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// readState returns the record. If there is none, the error wraps [fs.ErrNotExist].
func (w *Workspace) readState() (State, error) {
	// Check before opening, because opening a named pipe or a device can block or have an effect.
	info, err := w.root.Lstat(protocol.FileWorkspaceState)
	if err != nil {
		return State{}, err
	}
	damaged := errors.New("its record is damaged")
	if !info.Mode().IsRegular() || !ownedBySelf(info) || info.Size() > maxState {
		return State{}, damaged
	}
	file, err := w.root.OpenFile(protocol.FileWorkspaceState, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, damaged // it exists
	}
	if err != nil {
		return State{}, err
	}
	defer file.Close() // opened for reading only
	data, err := io.ReadAll(io.LimitReader(file, maxState+1))
	if err != nil {
		return State{}, err
	}
	var got stored
	if err := json.Unmarshal(data, &got); err != nil || len(data) > maxState {
		return State{}, damaged
	}
	if got.Version != stateVersion || got.Key != w.key {
		return State{}, errors.New("the image, a tool's version, the repository or the settings changed since")
	}
	return got.State, nil
}

func (w *Workspace) writeState(state State) error {
	data, err := json.Marshal(stored{Version: stateVersion, Key: w.key, State: state})
	if err != nil {
		return err
	}
	if len(data) > maxState {
		return fmt.Errorf("its record has more than %d bytes", maxState)
	}
	return durable.WriteFile(filepath.Join(w.dir, protocol.FileWorkspaceState), data, 0o600)
}
