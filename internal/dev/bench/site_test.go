package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/bench/figures"
)

func TestChoose(t *testing.T) {
	all, err := choose("")
	if err != nil || len(all) < 5 {
		t.Errorf("without a list: %d, %v", len(all), err)
	}
	if some, err := choose("burst,noop"); err != nil || len(some) != 2 {
		t.Errorf("with a list of two: %d, %v", len(some), err)
	}
	if _, err := choose("noop,nope"); err == nil || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("with an unknown measurement: %v", err)
	}
}

func TestMeasureContinuesAfterAFailure(t *testing.T) {
	fails := func(*bench, context.Context) error { return errors.New("no disk") }
	works := func(b *bench, _ context.Context) error {
		b.add("speed", "MB/s", []float64{1}, nil, figures.Goal{})
		return nil
	}
	for _, quick := range []bool{false, true} {
		b := &bench{quick: quick}
		err := b.measure(t.Context(), []measurement{{"idle", "waiting", works}, {"burst", "printing", fails}, {"lag", "listing", works}})
		if err == nil || !strings.Contains(err.Error(), "burst: no disk") {
			t.Errorf("quick %v: got %v", quick, err)
		}
		got := map[string]string{}
		for _, row := range b.report.Rows {
			got[row.Measurement] += row.Figure + "," + row.Unmeasured
		}
		want := map[string]string{"idle": "speed,", "burst": "printing,the measurement failed", "lag": "speed,"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("quick %v: the rows differ (-want +got):\n%s", quick, diff)
		}
	}
}

type scripted struct {
	site
	log []string
}

func (s scripted) page(context.Context, string, string) (text, next string, err error) {
	return strings.Join(s.log, "\n"), "", nil
}

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
			if got, err := countLines(t.Context(), scripted{log: tt.log}, "1", 3); err != nil || got != tt.want {
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
