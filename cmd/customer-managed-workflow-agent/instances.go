package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"workflowagent/internal/agent/control"
	"workflowagent/internal/agent/status"
)

// running is an agent of this host, with its answer.
type running struct {
	control.Instance
	report status.Report
	err    error // why a running agent does not answer
}

// runningAgents returns the running agents, or only the named one. To find none is a codeError.
func runningAgents(ctx context.Context, load loader, name string) ([]running, error) {
	c, err := load()
	if err != nil {
		return nil, err
	}
	instances, err := control.Find(c.StateDirectory)
	if err != nil {
		return nil, err
	}
	var found []running
	for _, instance := range instances {
		if name != "" && instance.Name != name {
			continue
		}
		report, err := instance.Status(ctx)
		if !errors.Is(err, control.ErrNotRunning) {
			found = append(found, running{instance, report, err})
		}
	}
	switch {
	case len(found) > 0:
		return found, nil
	case name != "":
		return nil, codeError{fmt.Errorf("no agent runs as instance %q of the state directory %s", name, c.StateDirectory), exitNone}
	}
	return nil, codeError{fmt.Errorf("no agent runs with the state directory %s; an agent with another configuration is found with its --config, or as its user", c.StateDirectory), exitNone}
}

func instanceFlag(cmd *cobra.Command, load loader, name *string, usage string) {
	cmd.Flags().StringVar(name, "instance", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("instance", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		agents, err := runningAgents(cmd.Context(), load, "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, a := range agents {
			names = append(names, fmt.Sprintf("%s\t%s, process %d", a.Name, a.report.State, a.report.Agent.PID))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}) // fails only for a flag that does not exist
}

func names(agents []running) string {
	var list []string
	for _, a := range agents {
		list = append(list, a.Name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
