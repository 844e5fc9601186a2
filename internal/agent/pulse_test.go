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
			t.Error("an agent that has not started polling is not alive")
		}
		a.liveness.expect(10 * time.Minute)
		<-time.After(10*time.Minute + livenessGrace - time.Second)
		if !a.Alive() {
			t.Error("not alive within the stated wait")
		}
		<-time.After(2 * time.Second)
		if a.Alive() {
			t.Error("alive without progress after the stated wait")
		}
		a.liveness.expect(0)
		if !a.Alive() {
			t.Error("not alive after late progress")
		}
		a.liveness.pause()
		<-time.After(time.Hour)
		if !a.Alive() {
			t.Error("not alive while paused")
		}
	})
}
