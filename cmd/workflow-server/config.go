package main

import (
	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server"
	"workflowagent/internal/server/doctor"
)

func newConfigCommand(s source) *cobra.Command {
	show := operator.NewConfigShowCommand(`  workflow-server config show
  workflow-server config show --json --config ./workflow-server.yaml`, func() (operator.Configuration, error) { return s.load(nil) })
	check := operator.NewConfigCheckCommand(`Load the configuration as serve would, check it and the files that it names, also that the
server's user can read them, and print the warnings that serve would log. The command does
not open the database or use the network.

The exit code is 0 if a server can start with the configuration, and 2 otherwise.`, `  workflow-server config check
  workflow-server config check --config ./workflow-server.yaml && systemctl reload workflow-server`, func() (operator.Configuration, error) {
		c, err := s.load(nil)
		if err != nil {
			return nil, err
		}
		if err = server.CheckFiles(c); err == nil {
			err = doctor.CheckReadable(c)
		}
		if err != nil {
			return nil, program.Usage(err)
		}
		return c, nil
	})
	return operator.Group(&cobra.Command{Use: "config", Short: "Show and check the configuration", Example: "  workflow-server config show"}, show, check)
}
