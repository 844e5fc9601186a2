package checkup

import (
	"fmt"
	"io"
	"strings"
)

var colours = map[Status]string{StatusOK: "32", StatusWarn: "33", StatusFail: "31;1", StatusSkip: "2"}

// Print writes a result of [Plan.Run] as text for an operator.
func Print(w io.Writer, r Result, colour bool) {
	status := fmt.Sprintf("%-4s", r.Status)
	if colour {
		status = "\x1b[" + colours[r.Status] + "m" + status + "\x1b[0m"
	}
	fmt.Fprintf(w, "%s  %-17s  %s\n", status, r.Title, r.Found)
	const indent = "                         "
	for _, line := range r.Details {
		fmt.Fprintf(w, "%s%s\n", indent, line)
	}
	if r.Advice != "" {
		fmt.Fprintf(w, "%s-> %s\n", indent, r.Advice)
	}
}

// Summary returns the last line of a report.
func Summary(report Report) string {
	count := map[Status]int{}
	for _, r := range report.Checks {
		count[r.Status]++
	}
	parts := []string{}
	for _, p := range []struct {
		status Status
		text   string
	}{{StatusFail, "failed"}, {StatusWarn, "to review"}, {StatusOK, "ok"}, {StatusSkip, "skipped"}} {
		if n := count[p.status]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, p.text))
		}
	}
	return strings.Join(parts, ", ")
}
