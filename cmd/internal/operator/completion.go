package operator

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"workflowagent/internal/settings"
)

// CompleteValues adds shell completion for the values of flags and arguments: the choices of a
// setting, files, directories or nothing. A flag that already has a completion function keeps it.
func CompleteValues(cmd *cobra.Command, table *settings.Table) {
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	offer := func(flag *pflag.Flag) {
		values, directive := flagValues(flag.Name, table)
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
		CompleteValues(child, table)
	}
}

// flagValues returns the possible values of a flag. A setting's flag has the setting's name, with
// hyphens instead of underscores.
func flagValues(name string, table *settings.Table) ([]string, cobra.ShellCompDirective) {
	if choices := table.Choices(strings.ReplaceAll(name, "-", "_")); choices != nil {
		return choices, cobra.ShellCompDirectiveNoFileComp
	}
	switch {
	case name == "config":
		return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
	case name == "job":
		return []string{"json"}, cobra.ShellCompDirectiveFilterFileExt
	case strings.HasSuffix(name, "-file"):
		return nil, cobra.ShellCompDirectiveDefault
	case name == "dir" || strings.HasSuffix(name, "-dir") || strings.HasSuffix(name, "-directory"):
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
