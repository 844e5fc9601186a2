package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{}
		if !a.Alive() {
			t.Error("an agent that has not begun is not alive")
		}
		a.pulse.expect(10 * time.Minute)
		<-time.After(10*time.Minute + pulseGrace - time.Second)
		if !a.Alive() {
			t.Error("not alive within the time that was said")
		}
		<-time.After(2 * time.Second)
		if a.Alive() {
			t.Error("alive although the sign did not come")
		}
		a.pulse.expect(0)
		if !a.Alive() {
			t.Error("not alive after a late sign")
		}
		a.pulse.rest()
		<-time.After(time.Hour)
		if !a.Alive() {
			t.Error("not alive at rest")
		}
	})
}
