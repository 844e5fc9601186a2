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
	all, err := choose("", false)
	if err != nil || len(all) < 10 {
		t.Errorf("without a list: %d, %v", len(all), err)
	}
	if quick, err := choose("", true); err != nil || len(quick) == 0 || len(quick) >= len(all) {
		t.Errorf("a quick run: %d, %v", len(quick), err)
	}
	if some, err := choose("queue,burst", true); err != nil || len(some) != 2 {
		t.Errorf("with a list of two: %d, %v", len(some), err)
	}
	if _, err := choose("queue,nope", false); err == nil || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("with an unknown measurement: %v", err)
	}
}

func TestMeasureContinuesAfterAFailure(t *testing.T) {
	fails := func(context.Context, *figures.Run) error { return errors.New("no disk") }
	works := func(_ context.Context, r *figures.Run) error {
		r.Add("speed", "MB/s", []float64{1}, figures.Goal{})
		return nil
	}
	r := &figures.Run{}
	err := measure(t.Context(), r, []measurement{{"idle", "waiting", true, works}, {"burst", "printing", true, fails}, {"lag", "listing", true, works}})
	if err == nil || !strings.Contains(err.Error(), "burst: no disk") {
		t.Errorf("got %v", err)
	}
	got := map[string]string{}
	for _, row := range r.Report.Rows {
		got[row.Measurement] += row.Figure + "," + row.Unmeasured
	}
	want := map[string]string{"idle": "speed,", "burst": "printing,the measurement failed", "lag": "speed,"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the rows differ (-want +got):\n%s", diff)
	}
}
