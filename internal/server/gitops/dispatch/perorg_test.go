package dispatch

import (
	"fmt"
	"testing"
)

// TestPollsPerOrganization starts polls that do not end. Those of one organization, whatever the number
// of its integrations, leave room for others.
func TestPollsPerOrganization(t *testing.T) {
	ended := make(chan struct{})
	p := &pollers{busy: map[string]bool{}, running: map[string]int{}, done: func() {}}
	start := func(org string, integrations, n int) {
		for i := range n {
			id := fmt.Sprint(org, i)
			p.do(t.Context(), org, fmt.Sprint(org, " integration ", i%integrations), id, func() error { <-ended; return nil })
		}
	}
	start("busy", 5, 2*maxPolls)
	if n := len(p.busy); n != pollsPerOrg {
		t.Errorf("%d polls of one organization run, want %d", n, pollsPerOrg)
	}
	start("quiet", 1, maxPolls)
	if n := len(p.busy); n != maxPolls || p.running["quiet"] != perForge {
		t.Errorf("%d polls run, %d of them of the second organization", n, p.running["quiet"])
	}
	close(ended)
	p.group.Wait()
	if len(p.busy)+len(p.running) > 0 {
		t.Errorf("after the polls, %v and %v remain", p.busy, p.running)
	}
}
