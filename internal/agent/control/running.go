package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/agent/status"
)

// Running is a running agent on this host and its response.
type Running struct {
	Instance
	Report status.Report
	Err    error // the reason if the agent does not respond
}

// NoneError reports that no agent is running.
type NoneError struct {
	Instance string // the requested instance; "" means any
	StateDir string
}

func (e *NoneError) Error() string {
	if e.Instance != "" {
		return fmt.Sprintf("no agent runs as instance %q of the state directory %s", e.Instance, e.StateDir)
	}
	return fmt.Sprintf("no agent runs with the state directory %s; to find an agent with another configuration, use its --config, or run this command as its user", e.StateDir)
}

// FindRunning returns the running agents of a state directory, or only the agent with the given
// name. If none is running, the error is a [*NoneError].
func FindRunning(ctx context.Context, stateDir, name string) ([]Running, error) {
	instances, err := Find(stateDir)
	if err != nil {
		return nil, err
	}
	var found []Running
	for _, instance := range instances {
		if name != "" && instance.Name != name {
			continue
		}
		report, err := instance.Status(ctx)
		if !errors.Is(err, ErrNotRunning) {
			found = append(found, Running{instance, report, err})
		}
	}
	if len(found) == 0 {
		return nil, &NoneError{name, stateDir}
	}
	return found, nil
}

// Names returns the instance numbers of agents, separated by commas.
func Names(agents []Running) string {
	var list []string
	for _, a := range agents {
		list = append(list, a.Name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
