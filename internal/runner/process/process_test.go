package process

import (
	"os/exec"
	"testing"
)

// gate is a writer whose writes wait until the test takes them.
type gate struct{ begin, end chan struct{} }

func (g gate) Write(p []byte) (int, error) {
	g.begin <- struct{}{}
	g.end <- struct{}{}
	return len(p), nil
}

// TestDrainCountsTheTimeOfWriters checks that only a write that lasts from tick to tick waits for space. A
// background process that writes all the time must not keep its step from ending.
func TestDrainCountsTheTimeOfWriters(t *testing.T) {
	g := gate{make(chan struct{}), make(chan struct{})}
	p, err := Start(exec.CommandContext(t.Context(), "sh", "-c", "yes & exit 0"), g)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		<-g.begin
		if p.stalled() {
			t.Errorf("write %d has stalled at the first tick", n)
		}
		if !p.stalled() {
			t.Errorf("write %d has not stalled at the second tick", n)
		}
		<-g.end
	}
	<-p.Exited
	KillSessions(p.PID)
	go func() {
		for range g.begin {
			<-g.end
		}
	}()
	p.Drain(lingerTick)
	close(g.begin)
}
