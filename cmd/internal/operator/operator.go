// Package operator contains what the command lines of the agent and the server share: the commands
// and texts that operators see in both.
package operator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/settings"
	"workflowagent/internal/termtext"
)

// Group completes a command that only has others below it.
func Group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.Args = NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(commands...)
	return cmd
}

// NoArgs rejects arguments. It suggests a command if the first argument is a misspelled one.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see " + cmd.CommandPath() + " --help"
	var names []string
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	if near := settings.Nearest(args[0], names); near != "" {
		hint = "did you mean " + near + "? Otherwise, " + hint
	}
	return program.Usage(fmt.Errorf("%q is unknown to %s; %s", args[0], cmd.CommandPath(), hint))
}

// OneArg requires one argument, which what describes.
func OneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || strings.TrimSpace(args[0]) == "" {
			return program.Usage(fmt.Errorf("%s takes one argument, %s; see %s --help", cmd.CommandPath(), what, cmd.CommandPath()))
		}
		return nil
	}
}

// TwoArgs requires two arguments, which first and second describe.
func TwoArgs(first, second string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 2 || strings.TrimSpace(args[0]) == "" || strings.TrimSpace(args[1]) == "" {
			return program.Usage(fmt.Errorf("%s takes two arguments, %s and %s; see %s --help", cmd.CommandPath(), first, second, cmd.CommandPath()))
		}
		return nil
	}
}

// FlagError returns the error for a wrong flag. secrets describes, by the flag's name, how to set a
// secret that cannot be a flag.
func FlagError(cmd *cobra.Command, err error, secrets map[string]string) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return program.Usage(fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	}
	name := unknown.GetSpecifiedName()
	if remedy := secrets[name]; remedy != "" {
		return program.Usage(fmt.Errorf("--%s is not a flag, because other users can read a program's arguments: %s", name, remedy))
	}
	hint := ""
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := settings.Nearest(name, names); near != "" && len(name) > 1 {
		hint = "; did you mean --" + near + "?"
	}
	return program.Usage(fmt.Errorf("%w%s; see %s --help", err, hint, cmd.CommandPath()))
}

// ShowConfigFlag hides the root's persistent flag --config in the help of commands that do not read
// the configuration.
func ShowConfigFlag(root *cobra.Command, uses func(words []string) bool) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		words := strings.Fields(cmd.CommandPath())
		root.PersistentFlags().Lookup("config").Hidden = !uses(slices.Clip(words[1:]))
		help(cmd, args)
	})
}

// PrintTable prints rows below a header, whose columns are separated by "|". The cells can contain untrusted text; an
// empty one is printed as "-".
func PrintTable(out io.Writer, header string, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.ReplaceAll(header, "|", "\t"))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = cmp.Or(termtext.OneLine(cell, 0), "-")
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// PrintJSON prints a value as indented JSON.
func PrintJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("printing JSON: %w", err)
	}
	return nil
}
