package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{}
		if !a.Alive() {
			t.Error("an agent that has not begun is not alive")
		}
		a.liveness.expect(10 * time.Minute)
		<-time.After(10*time.Minute + livenessGrace - time.Second)
		if !a.Alive() {
			t.Error("not alive within the time that was said")
		}
		<-time.After(2 * time.Second)
		if a.Alive() {
			t.Error("alive although the sign did not come")
		}
		a.liveness.expect(0)
		if !a.Alive() {
			t.Error("not alive after a late sign")
		}
		a.liveness.pause()
		<-time.After(time.Hour)
		if !a.Alive() {
			t.Error("not alive at rest")
		}
	})
}
