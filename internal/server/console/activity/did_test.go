package activity

import (
	"testing"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/store"
)

// TestDetail says in words what settings and schedules changed, and shows of other entries what they record.
func TestDetail(t *testing.T) {
	for text, c := range map[string]struct {
		action audit.Action
		want   string
	}{
		`{"keys":["operationContext.environmentVariables.A","operationContext.environmentVariables.B","sourceContext.git.branch","sourceContext.git.repoDir"],"version":3}`: {audit.SettingsChanged, "branch, folder and 2 variables"},
		`{"keys":["operationContext.shell"],"version":3}`:          {audit.SettingsChanged, "shell"},
		`{"keys":null,"version":3}`:                                {audit.SettingsChanged, "version: 3"},
		`{"schedule":"x","kind":"drift","cron":"0 3 * * *"}`:       {audit.ScheduleCreated, "drift detection, 0 3 * * *"},
		`{"schedule":"x","kind":"ttl","once":"2099-01-02T03:04Z"}`: {audit.ScheduleDeleted, "time to live, once, 2099-01-02T03:04Z"},
		`{"team":"added"}`: {audit.StackTagsChanged, "team: added"},
		`no JSON`:          {audit.ScheduleCreated, "no JSON"},
	} {
		if got := detail(store.AuditEntry{Action: string(c.action), Detail: text}); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.action, text, got, c.want)
		}
	}
}
