package status

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteText writes a report as plain text, with tables, for a terminal.
func WriteText(out io.Writer, r Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "State\t%s\n", clean(strings.ToUpper(string(r.State))))
	for _, l := range r.facts() {
		fmt.Fprintf(w, "%s\t%s\n", l.name, clean(l.value))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, part := range []struct {
		none string
		name string
		t    table
	}{
		{"No jobs.", "Jobs:", r.jobTable()},
		{"", "Ended:", r.endedTable()},
	} {
		if len(part.t.rows) == 0 {
			if part.none != "" {
				fmt.Fprintf(out, "\n%s\n", part.none)
			}
			continue
		}
		fmt.Fprintf(out, "\n%s\n", part.name)
		fmt.Fprintln(w, strings.ToUpper(strings.Join(part.t.heads, "\t")))
		for _, row := range part.t.rows {
			for i := range row {
				row[i] = clean(row[i])
			}
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// Line returns a one-line summary of the report for a service manager.
func (r Report) Line() string {
	line := fmt.Sprintf("%s, %d of %d slots busy", r.State, r.Slots.Busy, r.Slots.Total)
	if len(r.Reasons) > 0 {
		line += ": " + r.Reasons[0]
	}
	return clean(line)
}
