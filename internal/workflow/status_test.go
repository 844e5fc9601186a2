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
	common := []string{
		"not-started claim accepted", "not-started skip skipped",
		"accepted requeue not-started", "accepted leave running", "accepted fail failed", "accepted abandon failed",
		"running succeed succeeded", "running fail failed",
	}
	for _, tt := range []struct {
		of  Type
		own []string
	}{
		{TypeDeployment, []string{"running lose failed"}},
		{TypePolicyEvaluation, []string{"running requeue not-started", "running abandon failed"}},
		{TypeInsightsScan, nil}, // no server assigns it
	} {
		want := map[string]Status{}
		for _, row := range slices.Concat(common, tt.own) {
			if words := strings.Fields(row); tt.own != nil {
				want[words[0]+" "+words[1]] = Status(words[2])
			}
		}
		for _, from := range statuses {
			for _, e := range events {
				got, err := Next(tt.of, from, ReasonNone, e)
				to, legal := want[fmt.Sprintf("%s %s", from, e)]
				switch {
				case legal && (err != nil || got != to):
					t.Errorf("%s: %s + %s = %s, %v; want %s", tt.of, from, e, got, err, to)
				case !legal && !errors.Is(err, ErrTransition):
					t.Errorf("%s: %s + %s = %s, %v; want it refused", tt.of, from, e, got, err)
				case !legal && got != from:
					t.Errorf("%s: a refused %s moved %s to %s", tt.of, e, from, got)
				}
			}
		}
	}
}

func TestOnlyLostIsCorrected(t *testing.T) {
	for _, reason := range []Reason{ReasonExitCode, ReasonCancelled, ReasonTimeout, ReasonOOM, ReasonNone} {
		if got, err := Next(TypeDeployment, StatusFailed, reason, EventCorrectOK); err == nil {
			t.Errorf("a job that failed with %q became %s", reason, got)
		}
	}
	if got, err := Next(TypeDeployment, StatusFailed, ReasonLost, EventCorrectOK); err != nil || got != StatusSucceeded {
		t.Errorf("evidence of success gave %s, %v", got, err)
	}
	if got, err := Next(TypeDeployment, StatusFailed, ReasonLost, EventCorrectKO); err != nil || got != StatusFailed {
		t.Errorf("evidence of failure gave %s, %v", got, err)
	}
}

// TestDiagramsAreTheTable checks that the diagrams in docs/ARCHITECTURE.md, one per type of work, show the same
// transitions as the table.
func TestDiagramsAreTheTable(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[Type][]string{}
	for _, diagram := range regexp.MustCompile("(?s)```mermaid\n%% ([a-z_]+)\nstateDiagram-v2\n(.*?)```").FindAllStringSubmatch(string(doc), -1) {
		for _, m := range regexp.MustCompile(`(?m)^ +([a-z-]+) --> ([a-z-]+): ([a-z-]+)$`).FindAllStringSubmatch(diagram[2], -1) {
			drawn[Type(diagram[1])] = append(drawn[Type(diagram[1])], strings.Join(m[1:], " "))
		}
	}
	for of, moves := range transitions {
		var table []string
		for from, events := range moves {
			for e, to := range events {
				table = append(table, fmt.Sprintf("%s %s %s", from, to, e))
			}
		}
		slices.Sort(drawn[of])
		slices.Sort(table)
		if !slices.Equal(drawn[of], table) {
			t.Errorf("docs/ARCHITECTURE.md draws for %s\n%s\nbut the table has\n%s", of, strings.Join(drawn[of], "\n"), strings.Join(table, "\n"))
		}
	}
}
