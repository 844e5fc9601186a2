package operator

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/program"
)

// NewVersionCommand returns the command that prints the version.
func NewVersionCommand(version string) *cobra.Command {
	var asJSON bool
	cmd := program.NewVersionCommand(version)
	cmd.Long = `Print the version. With --json also the commit and its time, whether the source had changes
that were not committed, the Go version and the platform.`
	printText := cmd.RunE
	cmd.Args = NoArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !asJSON {
			return printText(cmd, args)
		}
		about := struct {
			Version  string `json:"version"`
			Commit   string `json:"commit,omitempty"`
			Time     string `json:"time,omitempty"`
			Modified bool   `json:"modified,omitempty"`
			Go       string `json:"go"`
			Platform string `json:"platform"`
		}{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, s := range info.Settings {
				switch s.Key {
				case "vcs.revision":
					about.Commit = s.Value
				case "vcs.time":
					about.Time = s.Value
				case "vcs.modified":
					about.Modified = s.Value == "true"
				}
			}
		}
		return PrintJSON(cmd.OutOrStdout(), about)
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
