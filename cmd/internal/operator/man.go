package operator

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/settings"
)

// NewManCommand returns the command that writes the manual pages. The page of the command with the
// given name also describes the settings.
func NewManCommand(version, name string, table *settings.Table) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man --dir DIR",
		Short: "Write the manual pages, one for each command",
		Long: `Write the manual pages into a directory, one for each command. SOURCE_DATE_EPOCH sets their
date, so that two builds of a package are identical.`,
		Hidden: true,
		Args:   NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return program.Usage(fmt.Errorf("--dir is required; see %s --help", cmd.CommandPath()))
			}
			date := time.Now().UTC()
			if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
				seconds, err := strconv.ParseInt(epoch, 10, 64)
				if err != nil {
					return program.Usage(fmt.Errorf("SOURCE_DATE_EPOCH is %q: it must be a number of seconds since 1970", epoch))
				}
				date = time.Unix(seconds, 0).UTC()
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("creating the directory for the manual pages: %w", err)
			}
			root := cmd.Root()
			if err := addManualSections(root, name, table); err != nil {
				return err
			}
			header := &doc.GenManHeader{Section: "1", Date: &date, Source: root.Name() + " " + version, Manual: "User Commands"}
			if err := doc.GenManTree(root, header, dir); err != nil {
				return fmt.Errorf("writing the manual pages: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory for the pages, created if it is missing")
	return cmd
}

// maxDefault is the length of the longest default that fits into a line of a page next to the name of its flag.
const maxDefault = 40

// addManualSections appends the exit codes and the settings to the commands' long descriptions.
func addManualSections(root *cobra.Command, name string, table *settings.Table) error {
	root.DisableAutoGenTag = true
	root.Long += `

# EXIT STATUS
0: done. 1: failed; a retry may help. 2: the command line or the configuration is wrong.
The pages of the commands describe the other codes.`
	command, _, err := root.Find([]string{name})
	if err != nil {
		return err
	}
	var list strings.Builder
	if err := table.WriteHelp(&list); err != nil {
		return fmt.Errorf("listing the settings: %w", err)
	}
	command.Flags().VisitAll(func(f *pflag.Flag) {
		if len(f.DefValue) > maxDefault {
			f.DefValue = "" // the section below contains it
		}
	})
	command.Long += "\n\n# SETTINGS\n```\n" + list.String() + "```"
	return nil
}
