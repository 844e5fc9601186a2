package source

import "workflowagent/internal/server/environments/difference"

const (
	// around is the number of equal lines that are shown next to changed ones.
	around = 2
	// maxShown is the number of lines of a difference.
	maxShown = 500
)

// differing returns how a definition differs from another one: lines that begin with "-" were removed, with "+" added, and with
// a space are equal. "…" stands for lines that are not shown.
func differing(before, after string) (out []string) {
	for i, part := range difference.Around(difference.Lines(before, after), around) {
		if i > 0 {
			out = append(out, "…")
		}
		for _, l := range part {
			if len(out) >= maxShown {
				return append(out, "…")
			}
			out = append(out, string(rune(l.Op))+l.Text)
		}
	}
	return out
}
