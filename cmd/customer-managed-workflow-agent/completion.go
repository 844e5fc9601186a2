package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"workflowagent/internal/agent/config"
)

// completeValues lets shells complete the values of flags and arguments: those of settings, files,
// or nothing. Flags with their own completion keep it.
func completeValues(cmd *cobra.Command) {
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	offer := func(flag *pflag.Flag) {
		values, directive := flagValues(flag.Name)
		if values == nil && directive == cobra.ShellCompDirectiveNoFileComp {
			return // the default
		}
		if _, taken := cmd.GetFlagCompletionFunc(flag.Name); taken {
			return
		}
		_ = cmd.RegisterFlagCompletionFunc(flag.Name, cobra.FixedCompletions(values, directive)) // fails only for a flag that does not exist
	}
	cmd.LocalFlags().VisitAll(offer)
	cmd.PersistentFlags().VisitAll(offer)
	for _, child := range cmd.Commands() {
		completeValues(child)
	}
}

// flagValues returns the possible values of a flag. A setting's flag has its name, with hyphens.
func flagValues(name string) ([]string, cobra.ShellCompDirective) {
	if choices := config.Table().Choices(strings.ReplaceAll(name, "-", "_")); choices != nil {
		return choices, cobra.ShellCompDirectiveNoFileComp
	}
	switch {
	case name == "config":
		return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
	case name == "job":
		return []string{"json"}, cobra.ShellCompDirectiveFilterFileExt
	case strings.HasSuffix(name, "-file"):
		return nil, cobra.ShellCompDirectiveDefault
	case name == "dir" || strings.HasSuffix(name, "-directory"):
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
