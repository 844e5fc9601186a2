package docker

import (
	"testing"
	"time"
)

func TestVolumeIsSureOnlyAfterItsSecond(t *testing.T) {
	k := known{runners: map[string]seenVolume{}}
	start := time.Unix(1_000_000, 0)
	for _, step := range []struct {
		made  string
		after time.Duration
		sure  bool
	}{
		{"12:00:00", 0, false},
		{"12:00:00", time.Second, false}, // removed and made again in between, for all we know
		{"12:00:00", 3 * time.Second, true},
		{"12:00:00", 4 * time.Second, true},
		{"12:00:05", 5 * time.Second, false},
		{"12:00:05", 8 * time.Second, true},
	} {
		k.saw("v", step.made, start.Add(step.after))
		if got := k.runners["v"].sure; got != step.sure {
			t.Errorf("after %s the volume of %s is sure: %t", step.after, step.made, got)
		}
	}
}
