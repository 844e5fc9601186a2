package workflow

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestNextAllowsOnlyTheTable(t *testing.T) {
	statuses := []Status{StatusNotStarted, StatusAccepted, StatusRunning, StatusSucceeded, StatusFailed, StatusSkipped}
	events := []Event{
		EventClaim, EventRequeue, EventLeave, EventSucceed, EventFail, EventSkip, EventLose,
		EventAbandon, EventCorrectOK, EventCorrectKO,
	}
	want := map[string]Status{
		"not-started claim": StatusAccepted,
		"not-started skip":  StatusSkipped,
		"accepted requeue":  StatusNotStarted,
		"accepted leave":    StatusRunning,
		"accepted fail":     StatusFailed,
		"accepted abandon":  StatusFailed,
		"running succeed":   StatusSucceeded,
		"running fail":      StatusFailed,
		"running lose":      StatusFailed,
	}
	for _, from := range statuses {
		for _, e := range events {
			got, err := Next(from, ReasonNone, e)
			to, legal := want[fmt.Sprintf("%s %s", from, e)]
			switch {
			case legal && (err != nil || got != to):
				t.Errorf("%s + %s = %s, %v; want %s", from, e, got, err, to)
			case !legal && !errors.Is(err, ErrTransition):
				t.Errorf("%s + %s = %s, %v; want it refused", from, e, got, err)
			case !legal && got != from:
				t.Errorf("a refused %s moved %s to %s", e, from, got)
			}
		}
	}
}

func TestOnlyLostIsCorrected(t *testing.T) {
	for _, reason := range []Reason{ReasonExitCode, ReasonCancelled, ReasonTimeout, ReasonOOM, ReasonNone} {
		if got, err := Next(StatusFailed, reason, EventCorrectOK); err == nil {
			t.Errorf("a job that failed with %q became %s", reason, got)
		}
	}
	if got, err := Next(StatusFailed, ReasonLost, EventCorrectOK); err != nil || got != StatusSucceeded {
		t.Errorf("evidence of success gave %s, %v", got, err)
	}
	if got, err := Next(StatusFailed, ReasonLost, EventCorrectKO); err != nil || got != StatusFailed {
		t.Errorf("evidence of failure gave %s, %v", got, err)
	}
}

// TestDiagramIsTheTable checks that the diagram in docs/ARCHITECTURE.md shows the same transitions
// as the table.
func TestDiagramIsTheTable(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	var drawn []string
	for _, m := range regexp.MustCompile(`(?m)^ +([a-z-]+) --> ([a-z-]+): ([a-z-]+)$`).FindAllStringSubmatch(string(doc), -1) {
		drawn = append(drawn, strings.Join(m[1:], " "))
	}
	var table []string
	for from, moves := range transitions {
		for e, to := range moves {
			table = append(table, fmt.Sprintf("%s %s %s", from, to, e))
		}
	}
	slices.Sort(drawn)
	slices.Sort(table)
	if !slices.Equal(drawn, table) {
		t.Errorf("docs/ARCHITECTURE.md draws\n%s\nbut the table has\n%s", strings.Join(drawn, "\n"), strings.Join(table, "\n"))
	}
}
