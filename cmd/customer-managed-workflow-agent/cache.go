package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/workspace"
	"workflowagent/internal/host/daemon"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
)

func newCacheCommand(load loader) *cobra.Command {
	return operator.Group(
		&cobra.Command{Use: "cache", Short: "Show and remove what agents keep for later jobs", Example: "  customer-managed-workflow-agent cache ls"},
		newCacheLsCommand(load), newCachePruneCommand(load),
	)
}

// shownWorkspace is a workspace in JSON.
type shownWorkspace struct {
	Workspace string    `json:"workspace"`
	Stack     string    `json:"stack,omitempty"`
	Bytes     *int64    `json:"bytes,omitempty"` // absent if unknown
	Used      time.Time `json:"used"`
	InUse     bool      `json:"inUse"`
}

func shown(all []executor.Workspace) []shownWorkspace {
	out := []shownWorkspace{}
	for _, w := range all {
		s := shownWorkspace{Workspace: w.Scope, Stack: w.Stack, Used: w.Used.UTC(), InUse: w.InUse}
		if w.Bytes >= 0 {
			s.Bytes = &w.Bytes
		}
		out = append(out, s)
	}
	return out
}

func newCacheLsCommand(load loader) *cobra.Command {
	var asJSON bool
	var dir string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the workspaces",
		Long: `List the workspaces of all agents with the configured state_directory: what they keep of
jobs for the next jobs of the same stack. Run it as the agent's user or as root. A stack has
one workspace for its own branch and one for other branches and pull requests; docs/caches.md
describes what is kept for whom.`,
		Example: `  customer-managed-workflow-agent cache ls
  customer-managed-workflow-agent cache ls --json`,
		Args: operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []executor.Workspace
			err := withWorkspaces(load, dir, func(w *daemon.Workspaces) (err error) {
				all, err = w.List(cmd.Context())
				return err
			})
			if err != nil {
				return err
			}
			if asJSON {
				return operator.PrintJSON(cmd.OutOrStdout(), shown(all))
			}
			return printWorkspaces(cmd.OutOrStdout(), all, time.Now())
		},
	}
	cacheFlags(cmd, &asJSON, &dir)
	return cmd
}

func newCachePruneCommand(load loader) *cobra.Command {
	var asJSON, all bool
	var dir string
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the workspaces that exceed the limits, or all",
		Long: `Remove the workspaces that exceed workspace_max_age and workspace_max_size: those above a
quarter of that size first, then the least recently used ones, as running agents do by
themselves. It removes none that a job uses. A job without its workspace takes longer and is
not otherwise affected.`,
		Example: `  customer-managed-workflow-agent cache prune
  customer-managed-workflow-agent cache prune --all`,
		Args: operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			var u workspace.Usage
			err := withWorkspaces(load, dir, func(w *daemon.Workspaces) (err error) {
				u, err = w.Prune(ctx, all)
				return err
			})
			out := cmd.OutOrStdout()
			if asJSON {
				return errors.Join(err, operator.PrintJSON(out, map[string]any{"removed": shown(u.Removed), "kept": u.Count, "keptBytes": u.Bytes, "inUse": u.InUse}))
			}
			var freed int64
			for _, w := range u.Removed {
				freed += max(w.Bytes, 0)
			}
			fmt.Fprintf(out, "Removed %s (%s). Kept %s (%s), of which %d in use.\n",
				words.Count(len(u.Removed), "workspace"), words.Bytes(freed), words.Count(u.Count, "workspace"), words.Bytes(u.Bytes), u.InUse)
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove all that no job uses")
	cacheFlags(cmd, &asJSON, &dir)
	return cmd
}

func cacheFlags(cmd *cobra.Command, asJSON *bool, dir *string) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(dir, "directory", "", "use the workspaces in this directory, such as a volume in a cluster")
}

func withWorkspaces(load loader, dir string, use func(*daemon.Workspaces) error) error {
	c, err := load()
	if err != nil {
		return err
	}
	w, err := daemon.OpenWorkspaces(c, dir)
	if err != nil {
		return err
	}
	return errors.Join(use(w), w.Close())
}

func printWorkspaces(out io.Writer, all []executor.Workspace, now time.Time) error {
	if len(all) == 0 {
		fmt.Fprintln(out, "No workspaces.")
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WORKSPACE\tSTACK\tSIZE\tUSED\tSTATE")
	for _, s := range all {
		size, state := "unknown", "idle"
		if s.Bytes >= 0 {
			size = words.Bytes(s.Bytes)
		}
		if s.InUse {
			state = "in use"
		}
		used := words.Short(now.Sub(s.Used)) + " ago"
		if s.Used.IsZero() {
			used, state = "never", "unusable"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", workspace.Short(s.Scope), cmp.Or(termtext.OneLine(s.Stack, 0), "unknown"), size, used, state)
	}
	return w.Flush()
}
