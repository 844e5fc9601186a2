package deploy

import (
	"time"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/joblog"
)

// logLine is a line of a log. A header has no text, and its time is the zero time.
type logLine struct {
	Header    string    `json:"header,omitempty"`
	Timestamp time.Time `json:"timestamp"`
	Line      *string   `json:"line,omitempty"`
}

func logLines(lines []joblog.Line) []logLine {
	return web.Each(lines, func(l joblog.Line) logLine {
		if l.Header != "" {
			return logLine{Header: l.Header}
		}
		return logLine{Timestamp: l.Time.UTC(), Line: &l.Text}
	})
}
