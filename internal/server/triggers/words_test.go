package triggers_test

import (
	"testing"

	"workflowagent/internal/server/triggers"
)

func TestInWords(t *testing.T) {
	for expression, want := range map[string]string{
		"0 3 * * *":        "every day at 03:00 UTC",
		"5 23 * * 1-5":     "Monday to Friday at 23:05 UTC",
		"0 3 * * 0":        "every Sunday at 03:00 UTC",
		"0 3 * * 1,4,7":    "every Monday, Thursday and Sunday at 03:00 UTC",
		"30 2 1 * *":       "on day 1 of each month at 02:30 UTC",
		"*/15 * * * *":     "every 15 minutes",
		"*/7 * * * *":      "", // 7 minutes, and 4 at the end of the hour
		"10 * * * *":       "every hour, at minute 10",
		"0 */6 * * *":      "every 6 hours, at minute 0",
		"0 */5 * * *":      "",
		"0 3 1 * 1":        "",
		"0 3 * 2 *":        "",
		"0 3 * * MON":      "",
		"0 3,9 * * *":      "",
		"0 3 * *":          "",
		"* * * * *":        "",
		"0 3 L * *":        "",
		"*/15 * * * 1":     "",
		"<b>x</b> 3 * * *": "",
	} {
		if got := triggers.InWords(expression); got != want {
			t.Errorf("%s: %q, want %q", expression, got, want)
		}
	}
}
