package triggers_test

import (
	"testing"

	"workflowagent/internal/server/triggers"
)

func TestWords(t *testing.T) {
	for expression, want := range map[string]string{
		"* * * * *":       "every minute",
		"*/15 * * * *":    "every 15 minutes",
		"5 * * * *":       "every hour at :05",
		"0 */6 * * *":     "every 6 hours at :00",
		"0 3 * * *":       "every day at 03:00",
		"30 3,15 * * *":   "every day at 03:30 and 15:30",
		"0 3 * * 1-5":     "on weekdays at 03:00",
		"0 3 * * MON-FRI": "on weekdays at 03:00",
		"0 22 * * 5,7":    "on Friday and Sunday at 22:00",
		"0 22 * * sat":    "on Saturday at 22:00",
		"0 4 1 * *":       "on day 1 of each month at 04:00",
		"*/5 * * * 1-5":   "every 5 minutes on weekdays",
		"*/45 * * * *":    "",
		"0 */5 * * *":     "",
		"0 */24 * * *":    "",
		"0 4 1 1 *":       "",
		"0 4 1 * 1":       "",
		"0 9-17 * * *":    "",
		"0 0 L * *":       "",
		"* 3 * * *":       "",
		"@daily":          "",
		"":                "",
	} {
		if got := triggers.Words(expression); got != want {
			t.Errorf("%q is %q, want %q", expression, got, want)
		}
	}
}
