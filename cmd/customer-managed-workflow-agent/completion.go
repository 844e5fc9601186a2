package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"workflowagent/internal/agent/config"
)

// completeValues adds shell completion for the values of flags and arguments: the choices of a
// setting, files, directories or nothing. A flag that already has a completion function keeps it.
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
		_ = cmd.RegisterFlagCompletionFunc(flag.Name, cobra.FixedCompletions(values, directive)) // the only error is for an unknown flag
	}
	cmd.LocalFlags().VisitAll(offer)
	cmd.PersistentFlags().VisitAll(offer)
	for _, child := range cmd.Commands() {
		completeValues(child)
	}
}

// flagValues returns the possible values of a flag. A setting's flag has the setting's name, with
// hyphens instead of underscores.
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
