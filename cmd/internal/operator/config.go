package operator

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"workflowagent/internal/settings"
)

// Configuration is a program's loaded configuration.
type Configuration interface {
	// File returns the path of the file, or "" if none was read.
	File() string
	Warnings() []string
	Settings() []settings.Setting
}

// NewConfigShowCommand returns the command that prints the configuration of a program. The examples
// show how to use it.
func NewConfigShowCommand(examples string, load func() (Configuration, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Print the effective values and where each comes from, secrets redacted",
		Example: examples,
		Args:    NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := load()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if asJSON {
				type setting struct {
					Key    string `json:"key"`
					Value  string `json:"value"`
					Source string `json:"source"`
				}
				var list []setting
				for _, s := range c.Settings() {
					list = append(list, setting{s.Key, s.Value, s.Source.String()})
				}
				return PrintJSON(out, list)
			}
			w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			for _, s := range c.Settings() {
				fmt.Fprintf(w, "%s\t%s\t%s\n", s.Key, s.Value, s.Source)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// NewConfigCheckCommand returns the command that checks the configuration of a program. check loads
// the configuration and returns an error if the program cannot start with it.
func NewConfigCheckCommand(long, examples string, check func() (Configuration, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "check",
		Short:   "Check the configuration without starting anything",
		Long:    long,
		Example: examples,
		Args:    NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := check()
			if err != nil {
				return err
			}
			if asJSON {
				return PrintJSON(cmd.OutOrStdout(), struct {
					File     string   `json:"file"`
					Warnings []string `json:"warnings"`
				}{c.File(), append([]string{}, c.Warnings()...)})
			}
			for _, warning := range c.Warnings() {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", warning)
			}
			from := c.File()
			if from == "" {
				from = "no file was found; the environment and the defaults apply"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "The configuration is valid (%s).\n", from)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
