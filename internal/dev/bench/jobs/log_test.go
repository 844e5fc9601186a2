package jobs

import (
	"context"
	"strings"
	"testing"
)

func TestCountLines(t *testing.T) {
	const zero, one, two = "00000000 the quick", "00000001 the quick", "00000002 the quick"
	for _, tt := range []struct {
		name string
		log  []string
		want int
	}{
		{"complete", []string{"+ stamp", zero, one, two, "stamp 1 2"}, 0},
		{"empty", nil, 3},
		{"gap", []string{zero, two}, 1},
		{"end missing", []string{zero, one}, 1},
		{"doubled", []string{zero, one, one, two}, 1},
		{"out of order", []string{one, zero, two}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			page := func(context.Context, string) (text, next string, err error) {
				return strings.Join(tt.log, "\n"), "", nil
			}
			if got, err := countLines(t.Context(), page, 3); err != nil || got != tt.want {
				t.Errorf("got %d, %v, want %d", got, err, tt.want)
			}
		})
	}
}

func TestParseTimes(t *testing.T) {
	got, err := parseTimes("1000 2000\n")
	if err != nil || got.ended.Sub(got.began) != 1000 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "1", "1 x", "1 2 3"} {
		if _, err := parseTimes(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
