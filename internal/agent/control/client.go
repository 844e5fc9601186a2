package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"workflowagent/internal/agent/status"
	"workflowagent/internal/sys/unixsocket"
)

const (
	// answerTime bounds a request to an agent, which responds from memory.
	answerTime = 10 * time.Second
	maxAnswer  = 16 << 20
)

// ErrNotRunning reports that no agent is running in the instance.
var ErrNotRunning = errors.New("no agent runs in this instance")

// Instance is the instance directory of an agent that runs or ran on this host.
type Instance struct {
	Name string // the directory's name, which is a number
	dir  string
}

// Find returns the instances in a state directory, ordered by number. Their agents may not be
// running.
func Find(stateDir string) ([]Instance, error) {
	base := filepath.Join(stateDir, "instances")
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%s is not readable: run this command as the agent's user, or as root", base)
	}
	if err != nil {
		return nil, fmt.Errorf("searching for agents: %w", err)
	}
	var found []Instance
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err == nil && entry.IsDir() {
			found = append(found, Instance{Name: entry.Name(), dir: filepath.Join(base, entry.Name())})
		}
	}
	slices.SortFunc(found, func(a, b Instance) int {
		x, _ := strconv.Atoi(a.Name)
		y, _ := strconv.Atoi(b.Name)
		return x - y
	})
	return found, nil
}

// Status returns the agent's report. It returns [ErrNotRunning] if no agent is running.
func (i Instance) Status(ctx context.Context) (status.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return i.call(ctx, http.MethodGet, "/status")
}

// Drain makes the agent stop claiming jobs and exit after its running jobs. It returns the agent's
// report.
func (i Instance) Drain(ctx context.Context) (status.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return i.call(ctx, http.MethodPost, "/drain")
}

// DrainAndWait is like [Instance.Drain], but waits until the agent has stopped and returns its last
// report. If ctx is canceled first, the agent continues to drain.
func (i Instance) DrainAndWait(ctx context.Context) (status.Report, error) {
	return i.call(ctx, http.MethodPost, "/drain?wait=true")
}

func (i Instance) call(ctx context.Context, method, path string) (status.Report, error) {
	var report status.Report
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, nil)
	if err != nil {
		return report, fmt.Errorf("creating the request to the agent: %w", err)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: i.dial}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return report, ErrNotRunning
	case errors.Is(err, fs.ErrPermission):
		return report, fmt.Errorf("only its own user and root have access to agent %s", i.Name)
	case err != nil:
		return report, fmt.Errorf("agent %s does not answer: %w", i.Name, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return report, fmt.Errorf("agent %s answered %s: it may have another version", i.Name, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&report); err != nil {
		return report, fmt.Errorf("reading the answer of agent %s, which may have exited: %w", i.Name, err)
	}
	return report, nil
}

func (i Instance) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := unixsocket.Dial(ctx, filepath.Join(i.dir, socketName))
	if err != nil {
		return nil, err
	}
	return conn, nil
}
