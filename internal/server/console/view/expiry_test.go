package view

import (
	"testing"
	"time"
)

func TestExpiry(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for days, want := range map[string]int{"30": 30, "365": 365, "": presetExpiry, "-1": presetExpiry, "x": presetExpiry, "4000": presetExpiry} {
		if got := Expiry(days, now); !got.Equal(now.AddDate(0, 0, want)) {
			t.Errorf("Expiry(%q) = %s, want %d days later", days, got, want)
		}
	}
	if got := Expiry("0", now); !got.IsZero() {
		t.Errorf(`Expiry("0") = %s, want never`, got)
	}
	if Expiries[1].Value != "90" || presetExpiry != 90 {
		t.Error("the preset is no choice")
	}
}
