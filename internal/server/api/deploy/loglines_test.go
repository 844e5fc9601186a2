package deploy

import (
	"encoding/json"
	"testing"
	"time"

	"workflowagent/internal/server/joblog"
)

func TestLogLines(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678000000, time.FixedZone("", 3600))
	for want, lines := range map[string][]joblog.Line{
		`[]`: nil,
		`[{"header":"Get \"source\"","timestamp":"0001-01-01T00:00:00Z"},` +
			`{"timestamp":"2026-01-02T02:04:05.678Z","line":"a\n"},{"timestamp":"0001-01-01T00:00:00Z","line":""}]`: {
			{Header: `Get "source"`}, {Time: at, Text: "a\n"}, {},
		},
	} {
		got, err := json.Marshal(logLines(lines))
		if err != nil || string(got) != want {
			t.Errorf("%s (%v), want %s", got, err, want)
		}
	}
}
