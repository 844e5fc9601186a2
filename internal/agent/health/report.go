package health

import (
	"fmt"
	"slices"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/sys/diskspace"
	"workflowagent/internal/words"
)

// lowDisk is the amount of free space on the disk of state_directory, in bytes, below which the
// report contains a problem.
const lowDisk = 512 << 20

var alwaysShown = []string{"deploy_target", "max_concurrent_jobs", "polling_interval"}

// Reports returns a function that returns the agent's status report. The report combines the
// agent's status with the state of the whole process.
func Reports(agentStatus func() status.Report, tracker *Tracker, c *config.Config) func() status.Report {
	settings := []status.Setting{}
	if file := c.File(); file != "" {
		settings = append(settings, status.Setting{Key: "config", Value: file, Source: "file"})
	}
	for _, s := range c.Settings() {
		if !s.Source.IsDefault() || slices.Contains(alwaysShown, s.Key) {
			settings = append(settings, status.Setting{Key: s.Key, Value: s.Value, Source: s.Source.String()})
		}
	}
	return func() status.Report {
		r := agentStatus()
		r.Config = settings
		tracker.fill(&r)
		r.Storage.Directory, r.Storage.FreeBytes = c.StateDirectory, -1 // unknown
		_, free, err := diskspace.Of(c.StateDirectory)
		if err == nil {
			r.Storage.FreeBytes = free
		}
		if err == nil && free < lowDisk {
			r.Problems = append(r.Problems, fmt.Sprintf("The disk of state_directory, %s, has only %s free: logs that wait for the server need space.", c.StateDirectory, words.Bytes(free)))
		}
		r.Judge()
		return r
	}
}
